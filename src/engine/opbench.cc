#include "engine/opbench.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/units.h"
#include "engine/opbench_expert.h"
#include "engine/opbench_formats.h"
#include "engine/opbench_layer.h"
#include "engine/worker_threads.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "sys/aligned_buffer.h"
#include "sys/bandwidth.h"
#include "sys/clock.h"
#include "sys/host_info.h"
#include "sys/topology.h"

namespace bellhop::engine {
namespace {

constexpr int32_t kDecodeRows = 32;  // the largest number of rows that is decode class by itself
constexpr int kBandwidthPasses = 3;
// Memory that is read to measure the bandwidth, when the weights are smaller.
constexpr uint64_t kLeastBandwidthBytes = uint64_t{64} << 20;
// The reference kernels are timed for this long at most; a call that takes longer than the second figure is replaced by
// one with a single expert.
constexpr int32_t kScalarRepetitions = 3;
constexpr int64_t kScalarNs = 1'000'000'000;
constexpr double kLongestScalarCallUs = 1e6;
// Calls that are not timed, to wake the workers and to fill the caches with what stays in them.
constexpr int64_t kWarmUpNs = 2'000'000;
constexpr int kMaxWarmUpCalls = 8;
// Free memory that the rest of the process and the machine keep.
constexpr uint64_t kReserveBytes = uint64_t{128} << 20;

struct Timing {
  std::vector<double> us;
  double share = 1;  // of the call's work that was timed
};

// What is fixed before anything is timed.
struct Sweep {
  std::vector<sys::CpuCaps> isas;
  std::vector<int32_t> rows, threads;
  std::vector<OpbenchLayer::Shape> shapes;  // one per format
  uint64_t weight_memory = 0;               // of the largest format
  int64_t total = 0;                        // cases and measurements of the reference
};

bool IsPrompt(const config::OpbenchOptions& options, int32_t rows) {
  if (options.bench_class == config::BenchClass::kAuto) return rows > kDecodeRows;
  return options.bench_class == config::BenchClass::kPrompt;
}

template <typename T>
std::vector<T> Distinct(const std::vector<T>& values) {
  std::vector<T> distinct;
  for (const T& value : values) {
    if (std::find(distinct.begin(), distinct.end(), value) == distinct.end()) distinct.push_back(value);
  }
  return distinct;
}

Result<std::vector<sys::CpuCaps>> ChooseIsas(const std::vector<std::string>& names, const sys::CpuCaps& caps) {
  std::vector<std::string> wanted;
  for (const std::string& name : names) {
    if (name != "all") {
      wanted.push_back(name);
      continue;
    }
    for (const sys::Isa isa : sys::kAllIsas) {
      if (isa <= caps.isa) wanted.emplace_back(sys::IsaName(isa));
    }
  }
  std::vector<sys::CpuCaps> isas;
  for (const std::string& name : wanted) {
    Result<sys::CpuCaps> limited = sys::LimitIsa(caps, name);
    if (!limited.ok()) return limited.status().WithContext("--isa");
    const bool known = std::any_of(isas.begin(), isas.end(), [&](const auto& c) { return c.isa == limited->isa; });
    if (!known) isas.push_back(*std::move(limited));
  }
  return isas;
}

// The bundle whose kernels serve a class: AMX has none of its own for decoding.
sys::Isa Serving(sys::Isa isa, bool prompt) { return prompt ? isa : std::min(isa, sys::Isa::kAvx512); }

// False for a bundle that would repeat another one of the list.
bool Measures(const std::vector<sys::CpuCaps>& isas, sys::Isa isa, bool prompt) {
  const sys::Isa serving = Serving(isa, prompt);
  return serving == isa || std::none_of(isas.begin(), isas.end(), [&](const auto& c) { return c.isa == serving; });
}

std::string KernelName(quant::WeightFormat format, const sys::CpuCaps& caps, bool prompt) {
  if (prompt) return kernels::SelectGemm(caps)->name;
  const kernels::DotKernel* kernel = kernels::SelectDot(format, caps);
  return kernel == nullptr ? "" : kernel->name;
}

// A format that came with a list such as `all` gets a shape of whole blocks where the one asked for is not.
Result<OpbenchLayer::Shape> MakeShape(const config::OpbenchOptions& options, const OpbenchFormat& format) {
  OpbenchLayer::Shape shape{.format = format,
                            .hidden = options.hidden,
                            .inter = options.inter,
                            .experts = 0,
                            .active = options.active,
                            .topk = options.topk == 0 ? options.active : options.topk,
                            .max_rows = *std::max_element(options.rows.begin(), options.rows.end()),
                            .seed = options.seed};
  const OpbenchWidths widths = WholeBlocks(format, {options.hidden, options.inter});
  shape.hidden = widths.hidden;
  shape.inter = widths.inter;
  BELLHOP_TRY_ASSIGN(const uint64_t stride, OpbenchLayer::ExpertStride(shape));
  const sys::CpuCaps plain;  // the reference kernels are the last resort of every bundle
  if (kernels::SelectDot(format.format, plain) == nullptr ||
      kernels::SelectRowDecode(format.format, plain) == nullptr) {
    return Unsupported("--format {}: there are no CPU kernels for it", format.name);
  }
  uint64_t calls = 0;
  if (options.experts > 0) {
    calls = static_cast<uint64_t>(options.experts / options.active);
  } else {
    const uint64_t call_bytes = stride * static_cast<uint64_t>(options.active);
    calls = options.rotate_bytes / call_bytes + (options.rotate_bytes % call_bytes != 0 ? 1 : 0);
  }
  const uint64_t experts = std::max<uint64_t>(calls, 1) * static_cast<uint64_t>(options.active);
  if (experts > static_cast<uint64_t>(INT32_MAX)) {
    return InvalidArgument("--rotate {} needs {} experts of {} bytes; lower it, or raise --hidden or --inter",
                           options.rotate_bytes, experts, stride);
  }
  shape.experts = static_cast<int32_t>(experts);
  return shape;
}

// One line for all formats of a shape that is not the one asked for, and one when caches may serve the weights.
void AddShapeNotes(const config::OpbenchOptions& options, const std::vector<OpbenchLayer::Shape>& shapes,
                   std::vector<std::string>* notes) {
  std::map<std::pair<int64_t, int64_t>, std::string> formats;
  uint64_t most = 0;
  for (const OpbenchLayer::Shape& shape : shapes) {
    if (shape.hidden != options.hidden || shape.inter != options.inter) {
      std::string& names = formats[{shape.hidden, shape.inter}];
      names += (names.empty() ? "" : ", ") + shape.format.name;
    }
    const uint64_t stride = OpbenchLayer::ExpertStride(shape).value();
    most = std::max(most, stride * static_cast<uint64_t>(shape.experts));
  }
  for (const auto& [shape, names] : formats) {
    notes->push_back(
        fmt::format("hidden {} and inter {}, which are whole blocks, for {}", shape.first, shape.second, names));
  }
  const uint64_t cache = sys::LastLevelCacheBytes();
  if (most < 2 * cache) {
    notes->push_back(fmt::format(
        "{} of weights partly stay in the last-level cache of {}, so figures may exceed those of memory; raise {}",
        FormatBytes(most), FormatBytes(cache), options.experts > 0 ? "--experts" : "--rotate"));
  }
}

Result<Sweep> PlanSweep(const config::OpbenchOptions& options, const sys::CpuCaps& caps, const sys::Topology& topology,
                        std::vector<std::string>* notes) {
  if (options.device == config::Device::kCuda) {
    return Unsupported("this measures the CPU's kernels (RunGpuOpbench the GPU's); use --device cpu");
  }
  Sweep sweep;
  sweep.rows = Distinct(options.rows);
  for (const int32_t threads : options.threads) {  // 0 and a number may mean the same
    BELLHOP_TRY_ASSIGN(const sys::WorkerPool::Options workers, ChooseWorkers(topology, threads, true, notes));
    sweep.threads.push_back(static_cast<int32_t>(workers.cpus.size()));
  }
  sweep.threads = Distinct(sweep.threads);
  if (sweep.rows.empty() || sweep.threads.empty()) return InvalidArgument("no --rows or no --threads: nothing to do");
  std::sort(sweep.rows.begin(), sweep.rows.end());
  BELLHOP_TRY_ASSIGN(const std::vector<OpbenchFormat> formats, ParseOpbenchFormats(options.formats));
  BELLHOP_TRY_ASSIGN(sweep.isas, ChooseIsas(options.isas, caps));
  uint64_t workspace = 0;
  for (const OpbenchFormat& format : formats) {
    Result<OpbenchLayer::Shape> shape = MakeShape(options, format);
    if (!shape.ok()) {
      if (!format.from_list) return shape.status();
      notes->push_back(fmt::format("left out: {}", shape.status().message()));
      continue;
    }
    BELLHOP_TRY_ASSIGN(const uint64_t stride, OpbenchLayer::ExpertStride(*shape));
    uint64_t bytes = 0;
    if (!CheckedMul(stride, static_cast<uint64_t>(shape->experts), &bytes)) bytes = UINT64_MAX;
    sweep.weight_memory = std::max(sweep.weight_memory, bytes);
    workspace = std::max(workspace, OpbenchLayer::WorkspaceBytes(*shape));
    sweep.shapes.push_back(*std::move(shape));
  }
  if (sweep.shapes.empty()) return Unsupported("no format of the list can be measured: {}", notes->back());
  AddShapeNotes(options, sweep.shapes, notes);
  sweep.weight_memory = std::max(sweep.weight_memory, kLeastBandwidthBytes);
  uint64_t needed = 0;
  if (!CheckedAdd(sweep.weight_memory, workspace + kReserveBytes, &needed)) needed = UINT64_MAX;
  if (needed > topology.memory_available_bytes) {
    return InvalidArgument(
        "{} of weights and {} of buffers do not fit in the {} of memory that are available; lower {}",
        FormatBytes(sweep.weight_memory), FormatBytes(workspace), FormatBytes(topology.memory_available_bytes),
        workspace > sweep.weight_memory ? "--rows"
        : options.experts > 0           ? "--experts"
                                        : "--rotate");
  }
  for (const int32_t rows : sweep.rows) {
    ++sweep.total;  // the reference, which every case is compared with
    for (const sys::CpuCaps& isa : sweep.isas) sweep.total += Measures(sweep.isas, isa.isa, IsPrompt(options, rows));
  }
  sweep.total *= static_cast<int64_t>(sweep.shapes.size() * sweep.threads.size());
  return sweep;
}

class SweepRunner {
 public:
  SweepRunner(const config::OpbenchOptions& options, const OpbenchControl& control, const Sweep& sweep,
              OpbenchReport* report)
      : options_(options), control_(control), sweep_(sweep), report_(report) {}

  Status RunThreads(const sys::Topology& topology, int32_t threads) {
    std::vector<std::string> known_notes;  // PlanSweep reported them
    BELLHOP_TRY_ASSIGN(sys::WorkerPool::Options workers,
                       ChooseWorkers(topology, threads, options_.pin_threads, &known_notes));
    workers.spin_us = kWorkerSpinUs;
    BELLHOP_TRY_ASSIGN(pool_, sys::WorkerPool::Create(workers));
    for (const std::string& note : pool_->notes()) report_->notes.push_back(note);
    BELLHOP_TRY_ASSIGN(memory_, sys::AlignedBuffer::Create(sweep_.weight_memory, MemoryTag::kExpertWeights));
    pool_->Run([&](int worker, int count) {  // first touch places the pages on the worker's node
      constexpr int64_t kPage = 4096;
      const RowRange part = sys::WorkerPool::Split(static_cast<int64_t>(memory_.size()), kPage, worker, count);
      for (int64_t at = part.begin; at < part.end; at += kPage) memory_.bytes()[static_cast<size_t>(at)] = std::byte{0};
    });
    report_->bandwidth.push_back({pool_->size(), {}});
    for (const OpbenchLayer::Shape& shape : sweep_.shapes) {
      BELLHOP_TRY(RunFormat(shape));
      if (Cancelled()) return Status();
    }
    return MeasureBandwidth();
  }

 private:
  bool Cancelled() const { return control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed); }

  void Starting(const std::string& what) const {
    if (control_.progress) control_.progress(done_, sweep_.total, what);
  }

  // Reading the weights through pushes out of the caches what the calls that follow use first.
  Status MeasureBandwidth() {
    BELLHOP_TRY_ASSIGN(const sys::ReadBandwidth measured,
                       sys::MeasureReadBandwidth(*pool_, memory_.bytes(), kBandwidthPasses));
    report_->bandwidth.back().gbps.push_back(measured.gb_per_s);
    call_ = 0;
    return Status();
  }

  Status RunFormat(const OpbenchLayer::Shape& shape) {
    Starting(shape.format.name + ": filling memory");
    BELLHOP_TRY_ASSIGN(layer_, OpbenchLayer::Create(shape, memory_.bytes(), pool_.get()));
    BELLHOP_TRY_ASSIGN(const sys::CpuCaps scalar_caps, sys::LimitIsa(sweep_.isas.front(), "reference"));
    BELLHOP_TRY(layer_->UseKernels(scalar_caps));
    std::map<int32_t, Timing> scalar;  // by rows
    for (const int32_t rows : sweep_.rows) {
      Starting(fmt::format("{} reference, {} rows", shape.format.name, rows));
      scalar[rows] = TimeScalar(shape, rows);
      if (Cancelled()) return Status();
      ++done_;
    }
    for (const sys::CpuCaps& caps : sweep_.isas) {
      BELLHOP_TRY(layer_->UseKernels(caps));
      BELLHOP_TRY(MeasureBandwidth());
      for (const int32_t rows : sweep_.rows) {
        const bool prompt = IsPrompt(options_, rows);
        if (!Measures(sweep_.isas, caps.isa, prompt)) continue;
        const std::string isa(sys::IsaName(Serving(caps.isa, prompt)));
        Starting(fmt::format("{} {}, {} rows", shape.format.name, isa, rows));
        OpbenchCase result{.format = shape.format.name,
                           .isa = isa,
                           .kernel = KernelName(shape.format.format, caps, prompt),
                           .threads = pool_->size(),
                           .rows = rows,
                           .hidden = shape.hidden,
                           .inter = shape.inter,
                           .prompt = prompt,
                           .experts = shape.experts,
                           .distinct_experts = layer_->DistinctExperts(rows),
                           .weight_bytes = 0,
                           .flops = 2.0 * 3.0 * static_cast<double>(shape.hidden) * static_cast<double>(shape.inter) *
                                    rows * shape.topk,
                           .us = {},
                           .scalar_us = scalar[rows].us,
                           .scalar_share = scalar[rows].share};
        result.weight_bytes = layer_->expert_bytes() * static_cast<uint64_t>(result.distinct_experts);
        result.us = caps.isa == sys::Isa::kReference ? result.scalar_us
                                                     : Time(rows, shape.active, options_.repetitions, INT64_MAX, true);
        if (Cancelled()) return Status();
        report_->cases.push_back(std::move(result));
        ++done_;
      }
    }
    return Status();
  }

  double OneCall(int32_t rows, int32_t active) {
    layer_->Prepare(call_++, rows, active);
    const int64_t start = sys::MonotonicNs();
    layer_->Run(IsPrompt(options_, rows) ? moe::NumericClass::kPrompt : moe::NumericClass::kDecode);
    return static_cast<double>(sys::MonotonicNs() - start) / 1e3;
  }

  // At most `repetitions` timed calls, at least one, for at most `budget_ns`.
  std::vector<double> Time(int32_t rows, int32_t active, int32_t repetitions, int64_t budget_ns, bool warm_up) {
    int64_t start = sys::MonotonicNs();
    for (int i = 0; warm_up && i < kMaxWarmUpCalls; ++i) {
      OneCall(rows, active);
      if (sys::MonotonicNs() - start > kWarmUpNs || Cancelled()) break;
    }
    start = sys::MonotonicNs();
    std::vector<double> us;
    do {
      us.push_back(OneCall(rows, active));
    } while (static_cast<int32_t>(us.size()) < repetitions && sys::MonotonicNs() - start < budget_ns && !Cancelled());
    return us;
  }

  Timing TimeScalar(const OpbenchLayer::Shape& shape, int32_t rows) {
    const double one_expert = OneCall(rows, 1);  // the warm-up too
    const double share = static_cast<double>(rows) / (static_cast<double>(rows) * shape.topk);
    if (one_expert / share > kLongestScalarCallUs) return {{one_expert}, share};
    return {Time(rows, shape.active, std::min(options_.repetitions, kScalarRepetitions), kScalarNs, false), 1};
  }

  const config::OpbenchOptions& options_;
  const OpbenchControl& control_;
  const Sweep& sweep_;
  OpbenchReport* report_;
  std::unique_ptr<sys::WorkerPool> pool_;
  sys::AlignedBuffer memory_;
  std::unique_ptr<OpbenchLayer> layer_;
  int64_t call_ = 0, done_ = 0;
};

}  // namespace

Result<OpbenchReport> RunOpbench(const config::OpbenchOptions& options, const OpbenchControl& control) {
  OpbenchReport report;
  const sys::Topology topology = sys::ReadTopology();
  BELLHOP_TRY_ASSIGN(const Sweep sweep, PlanSweep(options, sys::DetectCpu(), topology, &report.notes));
  SweepRunner runner(options, control, sweep, &report);
  for (const int32_t threads : sweep.threads) {
    BELLHOP_TRY(runner.RunThreads(topology, threads));
    if (control.cancel != nullptr && control.cancel->load(std::memory_order_relaxed)) {
      report.cancelled = true;
      break;
    }
  }
  if (report.cases.empty()) return Status(StatusCode::kCancelled, "nothing was measured before the interruption");
  return report;
}

}  // namespace bellhop::engine
