#include "model/gpu/gpu_counts.h"

#include <utility>

#include "cuda/memory.h"

namespace bellhop::model {

Status GpuCounts::Fetch(const store::ExpertStore& store, const StepBuffers& buffers, const cuda::Stream& stream) {
  std::vector<uint32_t> routes(seen_routes_.size());
  std::vector<uint64_t> distinct(seen_distinct_.size());
  auto fetch = [&](const void* from, void* to, size_t bytes) {
    return cuda::CopyToHost({static_cast<std::byte*>(to), bytes}, {static_cast<const std::byte*>(from), bytes}, stream);
  };
  BELLHOP_TRY(fetch(buffers.route_counts, routes.data(), routes.size() * sizeof routes[0]));
  BELLHOP_TRY(fetch(buffers.distinct, distinct.data(), distinct.size() * sizeof distinct[0]));
  BELLHOP_TRY(stream.Synchronize());
  for (size_t l = 0; 2 * l < distinct.size(); ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    const auto experts = static_cast<size_t>(store.experts(layer));
    if (experts == 0) continue;
    moe::RouteCounts::Layer totals;
    std::vector<uint32_t> fresh(experts);
    for (size_t e = 0; e < experts; ++e) {
      const size_t at = l * static_cast<size_t>(experts_) + e;
      fresh[e] = routes[at] - seen_routes_[at];
      (placement_.IsHit(layer, ExpertId(static_cast<int32_t>(e))) ? totals.hits : totals.misses) += fresh[e];
    }
    totals.hot_experts = distinct[2 * l] - seen_distinct_[2 * l];
    totals.cold_experts = distinct[2 * l + 1] - seen_distinct_[2 * l + 1];
    totals_.Accumulate(layer, fresh, totals);
  }
  seen_routes_ = std::move(routes);
  seen_distinct_ = std::move(distinct);
  return Status();
}

}  // namespace bellhop::model
