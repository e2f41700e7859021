// The layer executor: applies a plan's placement to the routes of a step. Routes become hits and misses; misses run on
// the cold path; sums are combined as one final add of hits and misses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "moe/cpu_cold.h"
#include "moe/router.h"
#include "plan/placement.h"

namespace bellhop::moe {

// Always-on route counters, one per (layer, expert): popularity for profiles, hits and misses for reports.
class RouteCounts {
 public:
  struct Layer {
    uint64_t hits = 0, misses = 0;
    // Experts that were run, counted once in each step however many rows chose them: what weight bytes follow from.
    uint64_t hot_experts = 0, cold_experts = 0;
  };

  explicit RouteCounts(const plan::Placement& placement);
  // The routes of one layer in one step.
  void Add(LayerId layer, const int32_t* ids, int32_t count, const uint8_t* hit);
  // A layer's counts of some steps that something else counted, as a GPU does: routes [experts], and what became of
  // them.
  void Accumulate(LayerId layer, HostSpan<const uint32_t> routes, const Layer& totals);
  void Reset();

  const std::vector<std::vector<uint64_t>>& per_expert() const { return counts_; }
  const std::vector<Layer>& per_layer() const { return layers_; }
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }

 private:
  std::vector<std::vector<uint64_t>> counts_;  // [layer][expert]
  std::vector<Layer> layers_;
  std::vector<uint64_t> last_call_;  // [expert]: the call of Add that saw it last
  uint64_t call_ = 0;
  uint64_t hits_ = 0, misses_ = 0;
};

// Receives the routes of every layer and step; for `logits --experts` and tests. ids and weights: [rows * used].
class RouteObserver {
 public:
  virtual ~RouteObserver() = default;
  virtual void OnRoutes(LayerId layer, int32_t rows, int32_t used, const int32_t* ids, const float* weights,
                        const float* probabilities, int32_t experts) = 0;
};

class MoeExecutor {
 public:
  struct Options {
    int64_t hidden = 0;
    int32_t max_rows = 0;
    int32_t max_used = 0;
    int32_t max_experts = 0;
    ActivationParams activation;
  };
  // kUnsupported when the placement has hits: this build has no GPU half.
  static Result<std::unique_ptr<MoeExecutor>> Create(const store::ExpertStore& store, const plan::Placement& placement,
                                                     const CpuContext& cpu, const Options& options,
                                                     std::vector<std::string>* notes);

  // y(m, :) = the routed experts' weighted sum for row m.
  //   x [rows, hidden] f32: the router reads it as it is, the experts as their class asks.
  // bad_rows[m] is set to 1 when row m's router output is not a number.
  void Run(LayerId layer, NumericClass numeric_class, const Linear& router, const RouterParams& params,
           MatView<const float> x, MatView<float> y, uint8_t* bad_rows);

  RouteCounts& counts() { return counts_; }
  void set_observer(RouteObserver* observer) { observer_ = observer; }

 private:
  MoeExecutor(const plan::Placement& placement, const CpuContext& cpu, const Options& options)
      : placement_(placement), cpu_(cpu), options_(options), counts_(placement) {}

  const plan::Placement& placement_;
  const CpuContext& cpu_;
  Options options_;
  RouteCounts counts_;
  RouteObserver* observer_ = nullptr;
  std::unique_ptr<CpuColdPath> cold_;
  std::vector<float> logits_, scratch_, weights_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> hit_;
};

}  // namespace bellhop::moe
