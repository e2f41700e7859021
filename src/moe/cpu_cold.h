// The cold path: experts without a GPU slot, computed by the CPU where their bytes lie.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "moe/linear.h"
#include "store/expert_store.h"

namespace bellhop::moe {

enum class ExpertActivation : uint8_t {
  kSwiGlu,     // silu(gate) * up
  kSwiGluOai,  // gpt-oss: clamped, alpha 1.702, (up + 1)
  kGeGlu,      // gelu(gate) * up
};

struct ActivationParams {
  ExpertActivation kind = ExpertActivation::kSwiGlu;
  float alpha = 1.702f;
  float limit = 7.0f;
};

// gate[i] = act(gate[i], up[i]) for i < n.
void ApplyActivation(const kernels::VecOps& ops, const ActivationParams& params, float* gate, const float* up,
                     int64_t n);

// The routes of one layer and step: row m has `used` routes m*used .. m*used+used-1. skip[route] != 0: a hit, computed
// elsewhere; null: all are misses.
struct Routes {
  int32_t rows = 0;
  int32_t used = 0;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  const uint8_t* skip = nullptr;
};

class CpuColdPath {
 public:
  struct Options {
    int64_t hidden = 0;
    int32_t max_rows = 0;  // rows of one call
    int32_t max_used = 0;  // routes per row
    ActivationParams activation;
  };
  // The store and the context must outlive the path. Notes name formats that run on reference kernels.
  static Result<std::unique_ptr<CpuColdPath>> Create(const store::ExpertStore& store, const CpuContext& cpu,
                                                     const Options& options, std::vector<std::string>* notes);

  // y(m, :) = sum over the misses of row m, in route order, of weight * expert(x(m, :)); rows without a miss get 0.
  // Prompt class: x is rounded to bf16 by the caller. Deterministic for any thread count. No allocation.
  void Run(LayerId layer, NumericClass numeric_class, const Routes& routes, MatView<const float> x, MatView<float> y);

  uint64_t workspace_bytes() const { return workspace_.size(); }

 private:
  struct Expert {
    Linear gate, up, down;
  };
  // The misses of one expert: entries [first, first + count) of order_.
  struct Group {
    const Expert* expert;
    int32_t first, count;
  };
  struct Phase;

  CpuColdPath(const CpuContext& cpu, const Options& options, int64_t inner)
      : cpu_(cpu), options_(options), inner_(inner) {}
  void GroupByExpert(LayerId layer, const Routes& routes, MatView<const float> x);
  void Fc1(const Group& group, NumericClass numeric_class, RowRange rows, int worker);
  void Fc2(const Group& group, NumericClass numeric_class, RowRange rows, int worker);
  void Combine(const Routes& routes, RowRange columns, MatView<float> y) const;

  const CpuContext& cpu_;
  Options options_;
  int64_t inner_;
  std::vector<std::vector<Expert>> experts_;  // [layer][expert]
  sys::AlignedBuffer workspace_;
  // Views into workspace_, one row per miss in group order: gathered inputs, gate and up products, outputs.
  float *x_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *out_ = nullptr;
  std::vector<int32_t> counts_, starts_;  // [experts]
  std::vector<int32_t> order_;            // miss i of the group order is route order_[i]
  std::vector<int32_t> position_;         // route -> index in group order, -1: not a miss
  std::vector<Group> groups_;
};

}  // namespace bellhop::moe
