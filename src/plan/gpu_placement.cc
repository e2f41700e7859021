#include "plan/gpu_placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"

namespace bellhop::plan {
namespace {

// One slot to fill: the `position`-th best expert of a layer.
struct Candidate {
  size_t layer = 0;
  int32_t position = 0;
  double gain_per_byte = 0;
  double position_share = 0;  // (position + 1) / experts
  uint64_t slot_bytes = 0;
};

uint64_t SlotBytes(const ExpertLayerInfo& layer) {
  uint64_t bytes = 1;
  for (const uint64_t b : layer.expert_bytes) bytes = std::max(bytes, b);
  return RoundUp(bytes, kSlotAlignment);
}

// A layer's experts, those first that move most bytes to the GPU; ties: the lowest id.
std::vector<int32_t> RankLayer(const ExpertLayerInfo& layer, const std::vector<double>& routes) {
  std::vector<int32_t> order(layer.expert_bytes.size());
  std::iota(order.begin(), order.end(), 0);
  auto key = [&](int32_t e) {
    const auto i = static_cast<size_t>(e);
    return routes[i] * static_cast<double>(layer.expert_bytes[i]);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  return order;
}

// Seconds that a row saves with the first n experts of the order in slots, n = 0 .. experts. A layer rings unless none
// of its misses is chosen; choices are taken as independent.
std::vector<double> Gains(const ExpertLayerInfo& layer, const std::vector<double>& routes,
                          const std::vector<int32_t>& order, const PlacementRequest& request) {
  const double miss_bytes_per_s = request.machine.MissGbps(request.lane) * 1e9;
  const double per_byte = 1 / miss_bytes_per_s - 1 / (request.machine.hbm_gbps * 1e9);
  const size_t experts = order.size();
  std::vector<double> quiet(experts + 1, 1.0);  // chance that no expert from n on is chosen
  for (size_t n = experts; n > 0; --n) {
    quiet[n - 1] = quiet[n] * (1 - routes[static_cast<size_t>(order[n - 1])]);
  }
  std::vector<double> gains(experts + 1, 0.0);
  double bytes_saved = 0;
  for (size_t n = 1; n <= experts; ++n) {
    const auto e = static_cast<size_t>(order[n - 1]);
    bytes_saved += routes[e] * static_cast<double>(layer.expert_bytes[e]);
    gains[n] = bytes_saved * per_byte + request.machine.MissUs(request.lane) * 1e-6 * (quiet[n] - quiet[0]);
  }
  return gains;
}

// The slope of the upper convex hull of gains under each step n → n + 1. A jump that pays only as a whole (the last
// experts of a layer, after which it never rings) thereby counts with its mean.
std::vector<double> HullSlopes(const std::vector<double>& gains) {
  std::vector<size_t> hull;
  auto slope = [&](size_t a, size_t b) { return (gains[b] - gains[a]) / static_cast<double>(b - a); };
  for (size_t n = 0; n < gains.size(); ++n) {
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), n)) hull.pop_back();
    hull.push_back(n);
  }
  std::vector<double> slopes;
  for (size_t i = 1; i < hull.size(); ++i)
    slopes.insert(slopes.end(), hull[i] - hull[i - 1], slope(hull[i - 1], hull[i]));
  return slopes;
}

Status Check(const PlacementRequest& request) {
  if (request.percent && !(*request.percent >= 0 && *request.percent <= 100)) {
    return InvalidArgument("--gpu-experts {}%: expects a share from 0% to 100%", *request.percent);
  }
  if (!(request.machine.hbm_gbps > 0) || !(request.machine.MissGbps(request.lane) > 0)) {
    return InvalidArgument(
        "placement needs the bandwidths of GPU memory and of the miss lane; measure them with "
        "`bellhop doctor`");
  }
  bool same = request.popularity.routes.size() == request.layers.size();
  for (size_t l = 0; same && l < request.layers.size(); ++l) {
    same = request.popularity.routes[l].size() == request.layers[l].expert_bytes.size();
  }
  return same ? Status() : InvalidArgument("popularity of another model: layers or experts differ in number");
}

// Every expert of the model in the order in which slots are given.
std::vector<Candidate> OrderCandidates(const PlacementRequest& request,
                                       const std::vector<std::vector<int32_t>>& ranked) {
  std::vector<Candidate> all;
  for (size_t l = 0; l < request.layers.size(); ++l) {
    const ExpertLayerInfo& layer = request.layers[l];
    const uint64_t slot_bytes = SlotBytes(layer);
    const std::vector<double> slopes = HullSlopes(Gains(layer, request.popularity.routes[l], ranked[l], request));
    for (int32_t i = 0; i < layer.experts(); ++i) {
      all.push_back({.layer = l,
                     .position = i,
                     .gain_per_byte = slopes[static_cast<size_t>(i)] / static_cast<double>(slot_bytes),
                     .position_share = (i + 1.0) / layer.experts(),
                     .slot_bytes = slot_bytes});
    }
  }
  // Stable: equal ones stay in order of layer and position. Slopes do not rise within a layer, so positions ascend.
  if (request.popularity.even) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.position_share < b.position_share; });
  } else {
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.gain_per_byte > b.gain_per_byte; });
  }
  return all;
}

// How many of its ranked experts each layer gets.
Result<std::vector<size_t>> CountSlots(const PlacementRequest& request,
                                       const std::vector<std::vector<int32_t>>& ranked) {
  std::vector<size_t> counts(request.layers.size(), 0);
  uint64_t all_bytes = 0, asked_bytes = 0;
  for (size_t l = 0; l < counts.size(); ++l) {
    const ExpertLayerInfo& layer = request.layers[l];
    uint64_t bytes = 0, wanted = 0;
    const uint64_t slots = std::min<uint64_t>(request.per_layer.value_or(0), layer.expert_bytes.size());
    if (!CheckedMul(SlotBytes(layer), layer.expert_bytes.size(), &bytes) || !CheckedAdd(all_bytes, bytes, &all_bytes)) {
      return InvalidArgument("layer {}: the sizes of its experts overflow", l);
    }
    wanted = SlotBytes(layer) * slots;
    asked_bytes += wanted;
    counts[l] = slots;
  }
  uint64_t budget = request.budget_bytes;
  if (request.percent) {
    const double share = *request.percent / 100;
    asked_bytes = share >= 1 ? all_bytes : static_cast<uint64_t>(static_cast<double>(all_bytes) * share);
    budget = asked_bytes;
  }
  if (asked_bytes > request.budget_bytes) {
    return OutOfMemory(
        "--gpu-experts asks for {} of GPU memory, {} are left for experts; ask for fewer, raise --vram, "
        "or lower --ctx-size",
        FormatBytes(asked_bytes), FormatBytes(request.budget_bytes));
  }
  if (request.per_layer) return counts;
  uint64_t used = 0;
  // Stopping at the first that does not fit (less than one slot is left over) keeps placements nested.
  for (const Candidate& candidate : OrderCandidates(request, ranked)) {
    if (candidate.slot_bytes > budget - used) break;
    used += candidate.slot_bytes;
    ++counts[candidate.layer];
  }
  return counts;
}

}  // namespace

Result<uint64_t> ExpertBudget(uint64_t vram_bytes, const VramCharges& charges) {
  uint64_t sum = charges.dense_bytes;
  const bool fits = CheckedAdd(sum, charges.kv_bytes, &sum) && CheckedAdd(sum, charges.workspace_bytes, &sum) &&
                    CheckedAdd(sum, charges.graph_bytes, &sum) && sum <= vram_bytes;
  if (fits && charges.staging_bytes <= vram_bytes - sum) return vram_bytes - sum - charges.staging_bytes;
  if (fits) {
    return OutOfMemory(
        "misses that the GPU reads over PCIe need a bank of {}, and {} of {} of GPU memory are left for it; use "
        "--miss-lane cpu, lower --ctx-size, or raise --vram",
        FormatBytes(charges.staging_bytes), FormatBytes(vram_bytes - sum), FormatBytes(vram_bytes));
  }
  return OutOfMemory(
      "dense weights {} + KV cache {} + workspace {} + graphs {} exceed {} of GPU memory; lower --ctx-size or "
      "--batch-size, raise --vram, or run with --device cpu",
      FormatBytes(charges.dense_bytes), FormatBytes(charges.kv_bytes), FormatBytes(charges.workspace_bytes),
      FormatBytes(charges.graph_bytes), FormatBytes(vram_bytes));
}

Result<GpuPlacement> PlaceExperts(const PlacementRequest& request) {
  BELLHOP_TRY(Check(request));
  std::vector<std::vector<int32_t>> ranked;
  for (size_t l = 0; l < request.layers.size(); ++l) {
    ranked.push_back(RankLayer(request.layers[l], request.popularity.routes[l]));
  }
  BELLHOP_TRY_ASSIGN(const std::vector<size_t> counts, CountSlots(request, ranked));
  GpuPlacement result;
  std::vector<int32_t> experts_per_layer;
  std::vector<std::vector<ExpertId>> residents;
  uint64_t resident_bytes = 0, total_bytes = 0;
  for (size_t l = 0; l < request.layers.size(); ++l) {
    const ExpertLayerInfo& layer = request.layers[l];
    std::sort(ranked[l].begin(), ranked[l].begin() + static_cast<ptrdiff_t>(counts[l]));
    Bank bank{.slot_bytes = SlotBytes(layer), .experts = {}};
    for (size_t i = 0; i < counts[l]; ++i) {
      bank.experts.push_back(ExpertId(ranked[l][i]));
      resident_bytes += layer.expert_bytes[bank.experts.back().index()];
    }
    total_bytes += std::accumulate(layer.expert_bytes.begin(), layer.expert_bytes.end(), uint64_t{0});
    result.bank_bytes += bank.bytes();
    experts_per_layer.push_back(layer.experts());
    residents.push_back(bank.experts);
    result.banks.push_back(std::move(bank));
  }
  result.placement = Placement::FromSlots(experts_per_layer, residents);
  if (total_bytes > 0) result.residency = static_cast<double>(resident_bytes) / static_cast<double>(total_bytes);
  return result;
}

}  // namespace bellhop::plan
