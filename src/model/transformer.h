// A whole model on the CPU: binds a spec's weights, owns buffers and the KV pool, and runs steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/attention_workspace.h"
#include "model/kv_cache.h"
#include "model/step_model.h"
#include "model/weights.h"
#include "moe/moe_layer.h"
#include "plan/placement.h"
#include "store/expert_store.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

class Transformer final : public StepModel {
 public:
  // The manifest, store, placement and pool must outlive the model. Notes name slow paths.
  static Result<std::unique_ptr<Transformer>> Create(const manifest::Manifest& manifest, ModelSpec spec,
                                                     const store::ExpertStore& store, const plan::Placement& placement,
                                                     sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                     const TransformerOptions& options,
                                                     std::vector<std::string>* notes);

  // What Create will allocate; UINT64_MAX when that does not fit 64 bits.
  static uint64_t KvBytes(const ModelSpec& spec, const TransformerOptions& options);
  static uint64_t WorkspaceBytes(const ModelSpec& spec, const TransformerOptions& options, int threads);

  std::unique_ptr<SequenceState> NewSequence() override;
  Status Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits) override;
  const ModelSpec& spec() const override { return spec_; }
  const TransformerOptions& options() const override { return options_; }
  const moe::RouteCounts* counts() override { return moe_ != nullptr ? &moe_->counts() : nullptr; }
  void ResetCounts() override;
  Status SetObserver(moe::RouteObserver* observer) override;

 private:
  struct Layer {
    std::unique_ptr<ResidualPort> mixer_port, feed_forward_port;
    std::unique_ptr<Mixer> mixer;
    std::unique_ptr<FeedForward> feed_forward;
  };

  Transformer(const manifest::Manifest& manifest, ModelSpec spec, const TransformerOptions& options,
              const sys::CpuCaps& caps, std::vector<std::string>* notes)
      : spec_(std::move(spec)), options_(options), caps_(caps), binder_(manifest, caps_, notes) {}
  Status BindLayers();
  Status AllocateBuffers(sys::WorkerPool* pool);
  void FillRopeTables(HostSpan<const StepRow> rows);
  void Embed(HostSpan<const StepRow> rows);
  void Head(const StepContext& step, MatView<float> logits);
  void FinishLogits(MatView<float> logits, RowRange range);

  ModelSpec spec_;
  TransformerOptions options_;
  sys::CpuCaps caps_;
  WeightBinder binder_;
  moe::Linear embedding_, head_;
  const float* output_norm_ = nullptr;
  std::vector<Layer> layers_;
  std::unique_ptr<moe::CpuContext> cpu_;
  std::unique_ptr<moe::MoeExecutor> moe_;
  std::unique_ptr<KvPool> kv_;

  sys::AlignedBuffer workspace_;
  float *residual_ = nullptr, *x_ = nullptr, *y_ = nullptr;
  std::unique_ptr<AttentionWorkspace> attention_;
  std::vector<float*> rope_tables_;
  std::vector<uint8_t> bad_rows_;
  std::vector<int32_t> logits_rows_;  // the step's rows that want logits
  StepContext step_;                  // buffers filled in once
};

}  // namespace bellhop::model
