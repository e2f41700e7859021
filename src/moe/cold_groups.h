// The misses of one layer and step, grouped by expert: the order in which the cold path works.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/span.h"

namespace bellhop::moe {

// The routes of one layer and step: row m has `used` routes m*used .. m*used+used-1. skip[route] != 0: a hit, computed
// elsewhere; null: all are misses.
struct Routes {
  int32_t rows = 0;
  int32_t used = 0;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  const uint8_t* skip = nullptr;
};

// State of an expert's bytes on the host, written by whoever loads them. Release when set; acquire when read.
enum class ExpertReady : uint8_t { kLoading, kReady, kFailed };
// Waits for an expert that still loads; `ready` [experts], null: all are. False: its load failed.
bool WaitUntilReady(const std::atomic<ExpertReady>* ready, int32_t expert);

// Misses [first, first + count) of the group order belong to one expert.
struct ColdGroup {
  int32_t expert = 0;
  int32_t first = 0;
  int32_t count = 0;
};

class ColdGroups {
 public:
  ColdGroups(int32_t max_experts, int32_t max_routes);

  // Groups ascend by expert id, those whose expert is ready before those that still load (`ready` [experts], null: all
  // are). The sums do not depend on this order. No allocation.
  void Build(const Routes& routes, int32_t experts, const std::atomic<ExpertReady>* ready);

  HostSpan<const ColdGroup> groups() const { return {groups_.data(), groups_.size()}; }
  int32_t misses() const { return misses_; }
  // Miss i of the group order is route route(i) of row row(i); position(route) is its inverse, -1 for hits.
  const int32_t* routes() const { return routes_.data(); }
  const int32_t* rows() const { return rows_.data(); }
  const int32_t* positions() const { return positions_.data(); }

 private:
  std::vector<int32_t> counts_, starts_;  // [experts]
  std::vector<int32_t> routes_, rows_;    // [misses]
  std::vector<int32_t> positions_;        // [routes]
  std::vector<ColdGroup> groups_;
  int32_t misses_ = 0;
};

}  // namespace bellhop::moe
