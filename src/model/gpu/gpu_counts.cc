#include "model/gpu/gpu_counts.h"

#include <algorithm>
#include <utility>

#include "cuda/memory.h"

namespace bellhop::model {

Status GpuCounts::Fetch(const store::ExpertStore& store, const StepBuffers& buffers, const cuda::Stream& stream) {
  std::vector<uint32_t> routes(seen_routes_.size());
  std::vector<uint64_t> totals(seen_totals_.size());
  auto fetch = [&](const void* from, void* to, size_t bytes) {
    return cuda::CopyToHost({static_cast<std::byte*>(to), bytes}, {static_cast<const std::byte*>(from), bytes}, stream);
  };
  BELLHOP_TRY(fetch(buffers.route_counts, routes.data(), routes.size() * sizeof routes[0]));
  BELLHOP_TRY(fetch(buffers.totals, totals.data(), totals.size() * sizeof totals[0]));
  BELLHOP_TRY(stream.Synchronize());
  for (size_t l = 0; l < misses_.size(); ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    const auto experts = static_cast<size_t>(store.experts(layer));
    if (experts == 0) continue;
    moe::RouteCounts::Layer run;
    std::vector<uint32_t> fresh(experts);
    for (size_t e = 0; e < experts; ++e) {
      const size_t at = l * static_cast<size_t>(experts_) + e;
      fresh[e] = routes[at] - seen_routes_[at];
      (placement_.IsHit(layer, ExpertId(static_cast<int32_t>(e))) ? run.hits : run.misses) += fresh[e];
    }
    const auto more = [&](int which) {
      const size_t at = l * kLayerTotals + static_cast<size_t>(which);
      return totals[at] - seen_totals_[at];
    };
    run.hot_experts = more(kDecodeDistinct) + more(kPromptDistinct);
    run.cold_experts = more(kDecodeDistinct + 1) + more(kPromptDistinct + 1);
    misses_[l].decode += more(kDecodeDistinct + 1);
    misses_[l].fetched += more(kFetchedTotal);
    totals_.Accumulate(layer, fresh, run);
  }
  seen_routes_ = std::move(routes);
  seen_totals_ = std::move(totals);
  return Status();
}

void GpuCounts::Reset() {
  totals_.Reset();
  std::fill(misses_.begin(), misses_.end(), Misses());
}

}  // namespace bellhop::model
