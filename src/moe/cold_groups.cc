#include "moe/cold_groups.h"

#include <algorithm>

#include "sys/spin_wait.h"

namespace bellhop::moe {

bool WaitUntilReady(const std::atomic<ExpertReady>* ready, int32_t expert) {
  if (ready == nullptr) return true;
  ExpertReady now;
  // Acquire; pairs with the loader's release of the expert's bytes.
  while ((now = ready[expert].load(std::memory_order_acquire)) == ExpertReady::kLoading) sys::CpuRelax();
  return now == ExpertReady::kReady;
}

ColdGroups::ColdGroups(int32_t max_experts, int32_t max_routes) {
  counts_.resize(static_cast<size_t>(max_experts));
  starts_.resize(static_cast<size_t>(max_experts));
  routes_.resize(static_cast<size_t>(max_routes));
  rows_.resize(static_cast<size_t>(max_routes));
  positions_.resize(static_cast<size_t>(max_routes));
  groups_.reserve(static_cast<size_t>(max_experts));
}

void ColdGroups::Build(const Routes& routes, int32_t experts, const std::atomic<ExpertReady>* ready) {
  const int32_t total = routes.rows * routes.used;
  std::fill_n(counts_.begin(), experts, 0);
  auto is_miss = [&](int32_t r) { return routes.skip == nullptr || routes.skip[r] == 0; };
  for (int32_t r = 0; r < total; ++r) {
    if (is_miss(r)) ++counts_[static_cast<size_t>(routes.ids[r])];
  }
  groups_.clear();
  misses_ = 0;
  auto add = [&](int32_t e) {
    const int32_t count = counts_[static_cast<size_t>(e)];
    starts_[static_cast<size_t>(e)] = misses_;
    groups_.push_back({e, misses_, count});
    misses_ += count;
    counts_[static_cast<size_t>(e)] = 0;
  };
  // An expert that becomes ready between the passes is simply among the later ones.
  if (ready != nullptr) {
    for (int32_t e = 0; e < experts; ++e) {
      if (counts_[static_cast<size_t>(e)] == 0) continue;
      // Acquire; pairs with the loader's release.
      if (ready[e].load(std::memory_order_acquire) != ExpertReady::kLoading) add(e);
    }
  }
  for (int32_t e = 0; e < experts; ++e) {
    if (counts_[static_cast<size_t>(e)] > 0) add(e);
  }
  for (int32_t r = 0; r < total; ++r) {
    positions_[static_cast<size_t>(r)] = -1;
    if (!is_miss(r)) continue;
    const int32_t at = starts_[static_cast<size_t>(routes.ids[r])]++;
    routes_[static_cast<size_t>(at)] = r;
    rows_[static_cast<size_t>(at)] = r / routes.used;
    positions_[static_cast<size_t>(r)] = at;
  }
}

}  // namespace bellhop::moe
