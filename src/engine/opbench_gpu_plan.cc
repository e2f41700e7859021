#include "engine/opbench_gpu_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "base/units.h"
#include "kernels/cuda/device_matrix.h"
#include "model/gpu/device_layout.h"

namespace bellhop::engine {
namespace {

constexpr std::array<std::pair<std::string_view, OpbenchMode>, 5> kModes = {{{"resident", OpbenchMode::kResident},
                                                                             {"off_all", OpbenchMode::kOffAll},
                                                                             {"off_cpu", OpbenchMode::kOffCpu},
                                                                             {"off_gpu", OpbenchMode::kOffGpu},
                                                                             {"off_ring", OpbenchMode::kOffRing}}};
// What the GPU's router takes.
constexpr int32_t kMaxExperts = 1024;
constexpr int32_t kMaxTopk = 32;
// Where the options leave it open: those of the layer with the default widths.
constexpr int32_t kDefaultExperts = 512;
constexpr int32_t kDefaultTopk = 10;

template <typename T>
std::vector<T> Ascending(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Why the GPU cannot run experts like this.
Status CheckExpert(const OpbenchExpert& expert) {
  const store::ExpertView view = expert.View(nullptr);
  for (const quant::QuantView* matrix : {&view.gate, &view.up, &view.down}) {
    const Status readable = model::CheckDeviceMatrix(*matrix);
    if (!readable.ok()) return readable.WithContext("--format " + expert.format.name);
  }
  if (expert.hidden % 16 != 0 || expert.inter % 16 != 0) {
    return Unsupported("--hidden {} and --inter {}: the GPU's kernels take multiples of 16", expert.hidden,
                       expert.inter);
  }
  return Status();
}

uint64_t SlotBytes(const OpbenchExpert& expert) {
  const store::ExpertView view = expert.View(nullptr);
  uint64_t bytes = 0;
  for (const quant::QuantView* matrix : {&view.gate, &view.up, &view.down}) {
    bytes += RoundUp(model::DeviceBytes(*matrix), plan::kSlotAlignment);
  }
  return bytes;
}

struct Residency {
  OpbenchMode mode;
  double hit_rate;
};
Result<std::vector<Residency>> Residencies(const config::OpbenchOptions& options) {
  std::vector<Residency> all;
  for (const std::string& name : options.modes) {
    BELLHOP_TRY_ASSIGN(const OpbenchMode mode, ParseOpbenchMode(name));
    const bool known = std::any_of(all.begin(), all.end(), [&](const Residency& r) { return r.mode == mode; });
    if (known) continue;
    if (mode == OpbenchMode::kResident || mode == OpbenchMode::kOffAll) {
      all.push_back({mode, 1});
      continue;
    }
    for (const double percent : Ascending(options.hit_rates)) all.push_back({mode, percent / 100});
  }
  return all;
}

}  // namespace

std::string_view OpbenchModeName(OpbenchMode mode) {
  return std::find_if(kModes.begin(), kModes.end(), [&](const auto& m) { return m.second == mode; })->first;
}

Result<OpbenchMode> ParseOpbenchMode(std::string_view name) {
  for (const auto& [known, mode] : kModes) {
    if (known == name) return mode;
  }
  return InvalidArgument("--mode '{}': expects resident, off_all, off_cpu, off_gpu or off_ring", name);
}

uint64_t GpuOpbenchBank::device_bytes() const {
  return static_cast<uint64_t>(layers) * static_cast<uint64_t>(resident) * slot_bytes;
}

uint64_t GpuOpbenchBank::host_bytes() const {
  return (kShared + static_cast<uint64_t>(layers) * static_cast<uint64_t>(experts - resident)) * expert.stride;
}

Result<GpuOpbenchPlan> PlanGpuOpbench(const config::OpbenchOptions& options, std::vector<std::string>* notes) {
  const int32_t experts = options.experts > 0 ? options.experts : kDefaultExperts;
  const int32_t topk = options.topk > 0 ? options.topk : std::min(kDefaultTopk, experts);
  if (experts > kMaxExperts) {
    return InvalidArgument("--experts {}: the GPU's router takes {} of a layer at most", experts, kMaxExperts);
  }
  if (topk > kMaxTopk || topk > experts) {
    return InvalidArgument("--topk {}: a row can use up to {} of the {} experts", topk, std::min(kMaxTopk, experts),
                           experts);
  }
  if (options.rows.empty()) return InvalidArgument("no --rows: nothing to do");
  BELLHOP_TRY_ASSIGN(const std::vector<OpbenchFormat> formats, ParseOpbenchFormats(options.formats));
  BELLHOP_TRY_ASSIGN(const std::vector<Residency> residencies, Residencies(options));
  if (residencies.empty()) return InvalidArgument("no --mode or no --hit-rate: nothing to do");
  GpuOpbenchPlan made;
  std::map<std::pair<int64_t, int64_t>, std::string> rounded;
  for (const OpbenchFormat& format : formats) {
    const OpbenchWidths widths = WholeBlocks(format, {options.hidden, options.inter});
    auto expert = OpbenchExpert::Create(format, widths.hidden, widths.inter);
    const Status fits = expert.ok() ? CheckExpert(*expert) : expert.status();
    if (!fits.ok()) {
      if (!format.from_list) return fits;
      notes->push_back(fmt::format("left out: {}", fits.message()));
      continue;
    }
    if (widths.hidden != options.hidden || widths.inter != options.inter) {
      std::string& names = rounded[{widths.hidden, widths.inter}];
      names += (names.empty() ? "" : ", ") + format.name;
    }
    for (const Residency& residency : residencies) {
      made.banks.push_back({.expert = *expert,
                            .mode = residency.mode,
                            .hit_rate = residency.hit_rate,
                            .layers = options.layers,
                            .experts = experts,
                            .topk = topk,
                            .resident = static_cast<int32_t>(std::lround(residency.hit_rate * experts)),
                            .slot_bytes = SlotBytes(*expert),
                            .rows = Ascending(options.rows)});
      made.cases += static_cast<int64_t>(made.banks.back().rows.size());
    }
  }
  if (made.banks.empty()) return Unsupported("no format of the list can be measured: {}", notes->back());
  for (const auto& [widths, names] : rounded) {
    notes->push_back(
        fmt::format("hidden {} and inter {}, which are whole blocks, for {}", widths.first, widths.second, names));
  }
  return made;
}

plan::GpuPlacement PlaceOpbenchExperts(const GpuOpbenchBank& bank, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<ExpertId>> residents;
  plan::GpuPlacement placement;
  for (int32_t l = 0; l < bank.layers; ++l) {
    std::vector<int32_t> ids(static_cast<size_t>(bank.experts));
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = ids.size(); bank.mode != OpbenchMode::kResident && i > 1; --i) {
      std::swap(ids[i - 1], ids[random() % i]);
    }
    ids.resize(static_cast<size_t>(bank.resident));
    residents.emplace_back(ids.begin(), ids.end());
    placement.banks.push_back({bank.slot_bytes, residents.back()});
  }
  placement.placement =
      plan::Placement::FromSlots(std::vector<int32_t>(static_cast<size_t>(bank.layers), bank.experts), residents);
  placement.bank_bytes = bank.device_bytes();
  placement.residency = static_cast<double>(bank.resident) / bank.experts;
  return placement;
}

}  // namespace bellhop::engine
