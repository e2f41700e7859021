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
#include "model/sequence_state.h"
#include "model/spec.h"
#include "model/stages.h"
#include "model/weights.h"
#include "moe/moe_layer.h"
#include "plan/placement.h"
#include "store/expert_store.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

// Bounds TransformerOptions::max_rows; sizes of buffers then fit 64 bits for every spec that a file can hold.
inline constexpr int32_t kMaxStepRows = 65536;

struct TransformerOptions {
  int32_t max_rows = 512;      // rows of one step, 1 to kMaxStepRows
  int32_t context_tokens = 0;  // of one sequence
  int32_t sequences = 1;       // that can be full at the same time
  kernels::KvType kv_type = kernels::KvType::kF16;
  int numa_nodes = 1;  // that the pool's workers run on
};

class Transformer {
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

  std::unique_ptr<SequenceState> NewSequence();

  // Runs one step of at most max_rows rows. Every row's sequence must have room (SequenceState::Reserve); the caller
  // accepts rows afterwards. logits [rows that want them, vocab], in row order. kInvalidArgument for a token outside
  // the vocabulary; kInternal "numeric fault" naming the first row whose result is not a number.
  Status Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits);

  const ModelSpec& spec() const { return spec_; }
  const TransformerOptions& options() const { return options_; }
  KvPool& kv() { return *kv_; }
  moe::MoeExecutor* moe() { return moe_.get(); }

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
  Status Embed(HostSpan<const StepRow> rows);
  void Head(const StepContext& step, MatView<float> logits);
  void FinishLogits(MatView<float> logits, RowRange range);
  Status CheckNumerics(HostSpan<const StepRow> rows) const;

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
