// The part of loading that puts weights where steps read them fastest: experts onto huge pages, mapped pages into
// memory, both on the node of their readers. What may be done was decided by the plan; this carries it out, and says
// what the kernel gave.
#include "base/units.h"
#include "engine/text_engine_impl.h"
#include "store/host_memory.h"
#include "sys/huge_pages.h"

namespace bellhop::engine {
namespace {

// Below this a note is worth its line: workers read much of their memory from other nodes.
constexpr double kPoorLocality = 0.9;

int Percent(double share) { return static_cast<int>(share * 100); }

// ", 97 % on the NUMA node that reads it", or nothing on one node.
std::string LocalityWords(const store::Locality& locality) {
  if (!locality.measured) return {};
  return fmt::format(", {} % on the NUMA node that reads it", Percent(*locality.measured * locality.planned));
}

std::string CopyLine(const store::CopyReport& report) {
  if (!report.huge_bytes) {
    return fmt::format(
        "expert memory: {} copied; /proc/self/smaps cannot be read, so the share on huge pages is unknown",
        FormatBytes(report.bytes));
  }
  const double share = static_cast<double>(*report.huge_bytes) / static_cast<double>(report.bytes);
  const std::string pool = report.reserved ? " of the reserved pool" : "";
  if (report.all_huge()) {
    return fmt::format("expert memory: {} on huge pages{} (100 %){}", FormatBytes(report.bytes), pool,
                       LocalityWords(report.locality));
  }
  return fmt::format("expert memory: {} of {} on huge pages ({} %){}", FormatBytes(*report.huge_bytes),
                     FormatBytes(report.bytes), Percent(share), LocalityWords(report.locality));
}

std::string NotAllHuge(const store::CopyReport& report, const sys::HugePageState& state) {
  return fmt::format(
      "{} of the experts' {} are on small pages: free memory is short or in small pieces; end other programs and "
      "`echo 1 | sudo tee /proc/sys/vm/compact_memory`, or set pages aside: {}",
      FormatBytes(report.bytes - report.huge_bytes.value_or(0)), FormatBytes(report.bytes),
      sys::ReserveHugePagesCommand(state, report.bytes));
}

}  // namespace

store::TouchOptions TextEngineImpl::Touch(const LoadProgress& progress, std::string_view what) {
  store::TouchOptions touch;
  touch.pool = pool_.get();
  touch.partition = &partition_;
  touch.caller_cpu = caller_cpu_;
  if (progress) {
    touch.progress = [&progress, what](uint64_t done, uint64_t total) { return progress(what, done, total); };
  }
  return touch;
}

Status TextEngineImpl::PlaceWeights(const LoadProgress& progress) {
  // A second plan may find them copied by the first.
  if (plan_.copy_experts && !store_->copied()) BELLHOP_TRY(CopyExperts(progress).WithContext(config_.model_path));
  if (plan_.prefault) {
    const auto report = store::Prefault(manifest_, *store_, Touch(progress, "reading the model"));
    if (!report.ok()) return report.status();
    const store::Locality& locality = report->locality;
    if (locality.measured) {
      memory_lines_.push_back(
          fmt::format("mapped weights: {} in memory{}", FormatBytes(report->bytes), LocalityWords(locality)));
      if (*locality.measured < kPoorLocality) {
        plan_notes_.push_back(
            "pages of the model file were in the page cache already, on other NUMA nodes than the workers that read "
            "them; to place them anew: echo 1 | sudo tee /proc/sys/vm/drop_caches, then start again");
      }
    }
  }
  return Status();
}

Status TextEngineImpl::CopyExperts(const LoadProgress& progress) {
  const bool required = config_.runtime.huge_pages == config::HugePagesMode::kRequired;
  const uint64_t copy_bytes = store::CopyBytes(*store_);
  store::CopyOptions options;
  options.touch = Touch(progress, "copying experts to huge pages");
  options.huge_pages = sys::ReadHugePageState();
  options.release_source = true;
  // When the file's cached pages and the copy do not both fit, the kernel would have to make room for each huge page.
  options.drop_cache = topology_.memory_available_bytes < copy_bytes + store_->TotalBytes() + plan_.host_bytes;
  const auto report = store_->CopyToHugePages(options);
  if (!report.ok()) {
    if (required || report.status().code() != StatusCode::kOutOfMemory) return report.status();
    plan_notes_.push_back(
        fmt::format("--hugepages auto: the experts are read from the mapped file: {}", report.status().message()));
    return Status();
  }
  if (required && !report->huge_bytes) {
    return IoError("--hugepages required: whether memory is on huge pages cannot be checked; mount /proc");
  }
  if (!report->all_huge() && report->huge_bytes) {
    const std::string reason = NotAllHuge(*report, options.huge_pages);
    if (required) return OutOfMemory("--hugepages required: {}", reason);
    plan_notes_.push_back("--hugepages auto: " + reason);
  }
  memory_lines_.push_back(CopyLine(*report));
  if (report->locality.planned < kPoorLocality) {
    plan_notes_.push_back(fmt::format(
        "huge pages are larger than a node's part of an expert's matrix: {} % of the bytes can lie on the NUMA node "
        "that reads them; --hugepages off places them page by page",
        Percent(report->locality.planned)));
  }
  return Status();
}

}  // namespace bellhop::engine
