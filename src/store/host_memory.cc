#include "store/host_memory.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/units.h"
#include "store/expert_store.h"
#include "sys/host_region.h"
#include "sys/page_residency.h"
#include "sys/page_touch.h"

namespace bellhop::store {
namespace {

using quant::QuantView;
using sys::MatrixBytes;
using sys::PagePlan;
using sys::PageRun;

constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Enough to tell shares to a percent.
constexpr uint64_t kSamplesPerNode = 4096;

// Tensors of a manifest are packed blocks: one plane.
uint64_t BytesOf(const QuantView& view) {
  return static_cast<uint64_t>(view.rows) * static_cast<uint64_t>(view.planes[0].row_bytes);
}

MatrixBytes ToMatrix(const QuantView& view, uint64_t offset) {
  return {.offset = offset, .rows = view.rows, .row_bytes = view.planes[0].row_bytes};
}

uint64_t AddressOf(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }
const std::byte* AtAddress(uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

sys::PageTouchOptions ToSys(const TouchOptions& options) {
  sys::PageTouchOptions out;
  out.caller_cpu = options.caller_cpu;
  out.progress = options.progress;
  return out;
}

// `base` is added to the plan's offsets to get addresses.
Locality MeasureLocality(const PagePlan& plan, uint64_t base, const sys::NodePartition& partition) {
  Locality locality;
  if (partition.nodes() == 1) return locality;
  locality.planned = plan.local_share();
  uint64_t sampled = 0, there = 0;
  for (int i = 0; i < partition.nodes(); ++i) {
    uint64_t bytes = 0;
    for (const PageRun& run : plan.runs) bytes += run.node_index == i ? run.bytes() : 0;
    const uint64_t step = std::max(bytes / kSamplesPerNode, kSmallPage);
    std::vector<const std::byte*> addresses;
    uint64_t skip = 0;  // bytes until the next sample
    for (const PageRun& run : plan.runs) {
      if (run.node_index != i) continue;
      uint64_t at = skip;
      for (; at < run.bytes(); at += step) addresses.push_back(AtAddress(base + run.begin + at));
      skip = at - run.bytes();
    }
    const std::optional<std::vector<uint64_t>> nodes = sys::CountNodes(addresses);
    if (!nodes) return locality;
    for (const uint64_t count : *nodes) sampled += count;
    const auto node = static_cast<size_t>(partition.node(i));
    if (node < nodes->size()) there += (*nodes)[node];
  }
  if (sampled > 0) locality.measured = static_cast<double>(there) / static_cast<double>(sampled);
  return locality;
}

// Copies the part [begin, end) of the copy.
Status CopyPart(const CopyLayout& layout, const CopyOptions& options, const sys::HostRegion& region, uint64_t begin,
                uint64_t end) {
  BELLHOP_TRY(region.Populate(begin, end - begin));
  auto segment = std::upper_bound(layout.segments.begin(), layout.segments.end(), begin,
                                  [](uint64_t at, const CopyLayout::Segment& s) { return at < s.offset; });
  if (segment != layout.segments.begin()) --segment;
  for (; segment != layout.segments.end() && segment->offset < end; ++segment) {
    const uint64_t from = std::max(begin, segment->offset), to = std::min(end, segment->offset + segment->bytes);
    if (from >= to) continue;
    const HostSpan<const std::byte> source(segment->source + (from - segment->offset), to - from);
    BELLHOP_TRY(sys::PopulateForReading(source, "experts of the model file"));
    std::memcpy(region.bytes().data() + from, source.data(), source.size());
    if (options.release_source) sys::ReleasePages(source, options.drop_cache);
  }
  return Status();
}

// A tensor's bytes as rows, for those whose rows are whole; others (scalars, odd shapes) are one row.
MatrixBytes TensorMatrix(const manifest::Tensor& tensor) {
  const uint64_t rows = std::max<uint64_t>(tensor.rows(), 1);
  const bool whole = tensor.bytes % rows == 0;
  return {.offset = AddressOf(tensor.data.data()),
          .rows = whole ? static_cast<int64_t>(rows) : 1,
          .row_bytes = static_cast<int64_t>(whole ? tensor.bytes / rows : tensor.bytes)};
}

std::set<int32_t> ExpertTensors(const manifest::Manifest& manifest) {
  std::set<int32_t> tensors;
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    tensors.insert({layer.gate, layer.up, layer.down, layer.gate_up});
    for (const auto* each : {&layer.gate_each, &layer.up_each, &layer.down_each}) {
      tensors.insert(each->begin(), each->end());
    }
  }
  return tensors;
}

}  // namespace

uint64_t CopyLayout::OffsetOf(const std::byte* source) const {
  auto segment = std::upper_bound(segments.begin(), segments.end(), source,
                                  [](const std::byte* at, const Segment& s) { return at < s.source; });
  --segment;
  return segment->offset + static_cast<uint64_t>(source - segment->source);
}

CopyLayout LayOutCopy(const std::vector<QuantView>& views) {
  std::vector<const QuantView*> order;
  for (const QuantView& view : views) {
    if (BytesOf(view) > 0) order.push_back(&view);
  }
  std::sort(order.begin(), order.end(),
            [](const QuantView* a, const QuantView* b) { return a->planes[0].data < b->planes[0].data; });
  CopyLayout layout;
  for (const QuantView* view : order) {
    const std::byte* const begin = view->planes[0].data;
    const uint64_t bytes = BytesOf(*view);
    if (!layout.segments.empty()) {
      CopyLayout::Segment& last = layout.segments.back();
      const std::byte* const last_end = last.source + last.bytes;
      if (begin <= last_end) {
        if (begin + bytes > last_end) last.bytes += static_cast<uint64_t>(begin + bytes - last_end);
        layout.bytes = last.offset + last.bytes;
        continue;
      }
    }
    const uint64_t offset = RoundUp(layout.bytes, kCacheLine);
    layout.segments.push_back({begin, bytes, offset});
    layout.bytes = offset + bytes;
  }
  return layout;
}

uint64_t CopyBytes(const ExpertStore& store) { return RoundUp(LayOutCopy(store.Matrices()).bytes, kHugePage); }

Result<CopyReport> ExpertStore::CopyToHugePages(const CopyOptions& options) {
  std::vector<QuantView> views = Matrices();
  const CopyLayout layout = LayOutCopy(views);
  BELLHOP_TRY_ASSIGN(sys::HostRegion region,
                     sys::HostRegion::Create(layout.bytes, options.huge_pages, MemoryTag::kExpertWeights));
  std::vector<MatrixBytes> matrices;
  for (const QuantView& view : views) matrices.push_back(ToMatrix(view, layout.OffsetOf(view.planes[0].data)));
  std::sort(matrices.begin(), matrices.end(),
            [](const MatrixBytes& a, const MatrixBytes& b) { return a.offset < b.offset; });
  const sys::NodePartition& partition = *options.touch.partition;
  const PagePlan plan = sys::AssignPages(partition, matrices, std::max(region.page_bytes(), kSmallPage));
  sys::PageTouchOptions touch = ToSys(options.touch);
  touch.chunk_bytes = std::max(region.page_bytes(), kHugePage);
  BELLHOP_TRY(sys::TouchPages(*options.touch.pool, partition, plan.runs, touch, [&](uint64_t begin, uint64_t end) {
    return CopyPart(layout, options, region, begin, std::min(end, region.size()));
  }));

  CopyReport report;
  report.bytes = region.size();
  report.reserved = region.reserved();
  std::optional<sys::RangePages> pages = sys::ReadRangePages(region.bytes());
  if (pages && pages->huge_bytes < region.size() && options.huge_pages.transparent_allowed()) {
    region.Collapse();
    pages = sys::ReadRangePages(region.bytes());
  }
  if (pages) report.huge_bytes = pages->huge_bytes;
  report.locality = MeasureLocality(plan, AddressOf(region.bytes().data()), partition);

  region.MakeReadOnly();
  const std::byte* const base = region.bytes().data();
  ForEachMatrix([&](QuantView* view) {
    if (BytesOf(*view) > 0) view->planes[0].data = base + layout.OffsetOf(view->planes[0].data);
  });
  copy_ = std::move(region);
  return report;
}

Result<PrefaultReport> Prefault(const manifest::Manifest& manifest, const ExpertStore& store,
                                const TouchOptions& options) {
  const std::set<int32_t> experts = ExpertTensors(manifest);
  std::vector<MatrixBytes> matrices;
  std::vector<std::pair<uint64_t, uint32_t>> files;  // address of a tensor, file that it is in
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const manifest::Tensor& tensor = manifest.tensors[t];
    if (tensor.bytes == 0) continue;
    files.emplace_back(AddressOf(tensor.data.data()), tensor.file);
    if (!experts.contains(static_cast<int32_t>(t))) matrices.push_back(TensorMatrix(tensor));
  }
  if (!store.copied()) {
    for (const QuantView& view : store.Matrices()) matrices.push_back(ToMatrix(view, AddressOf(view.planes[0].data)));
  }
  std::sort(files.begin(), files.end());
  std::sort(matrices.begin(), matrices.end(),
            [](const MatrixBytes& a, const MatrixBytes& b) { return a.offset < b.offset; });
  const PagePlan plan = sys::AssignPages(*options.partition, matrices, kSmallPage);
  const auto file_of = [&](uint64_t address) -> std::string {
    auto it = std::upper_bound(files.begin(), files.end(), std::pair(address, UINT32_MAX));
    if (it != files.begin()) --it;
    return it != files.end() && it->second < manifest.files.size() ? manifest.files[it->second].path : "the model file";
  };
  BELLHOP_TRY(
      sys::TouchPages(*options.pool, *options.partition, plan.runs, ToSys(options), [&](uint64_t begin, uint64_t end) {
        return sys::PopulateForReading({AtAddress(begin), end - begin}, file_of(end - 1));
      }));
  PrefaultReport report;
  report.bytes = plan.bytes;
  report.locality = MeasureLocality(plan, 0, *options.partition);
  return report;
}

}  // namespace bellhop::store
