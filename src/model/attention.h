// Softmax attention over the paged KV cache: QKV, QK norm, rotation, append, attention, output projection.
#pragma once

#include <memory>

#include "base/status.h"
#include "model/attention_workspace.h"
#include "model/spec.h"
#include "model/stages.h"
#include "model/weights.h"

namespace bellhop::model {

class AttentionMixer final : public Mixer {
 public:
  // `layer` is the layer's index in the KV pool.
  static Result<std::unique_ptr<AttentionMixer>> Create(const AttentionSpec& spec, const RopeSpec* rope, int32_t layer,
                                                        const sys::CpuCaps& caps, WeightBinder* binder);
  void Forward(const StepContext& step, MatView<const float> x, MatView<float> y) override;

 private:
  AttentionMixer(const AttentionSpec& spec, int32_t layer) : spec_(spec), layer_(layer) {}
  struct HeadRange {
    float* data;  // [count][key_dim]
    int32_t count;
  };
  // What turns the products of row m into queries, and keys and values in the cache, as independent tasks.
  int32_t FinishTasks() const;
  void Finish(const StepContext& step, int64_t m, int32_t task) const;
  // Norm and rotation.
  void FinishHeads(const StepContext& step, int64_t m, const HeadRange& heads, const NormSpec& norm,
                   const float* weights) const;
  void Append(const StepContext& step, int64_t m, int32_t first_head, int32_t count) const;
  void Attend(const StepContext& step) const;
  void RunUnit(const StepContext& step, const AttentionCut& cut, int64_t unit, int worker) const;

  AttentionSpec spec_;
  int32_t layer_;
  RopeKind rope_kind_ = RopeKind::kNone;
  int32_t rope_dims_ = 0;
  moe::Linear q_, k_, v_, output_;
  const float* q_norm_ = nullptr;
  const float* k_norm_ = nullptr;
  const float* sinks_ = nullptr;
  const kernels::AttentionKernel* kernel_ = nullptr;
};

}  // namespace bellhop::model
