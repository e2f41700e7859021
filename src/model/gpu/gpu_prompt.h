// Prompts on the GPU: chunks of one sequence through the kernels of the prompt class. Without misses, and where misses
// are read where they lie, a chunk is submitted as a whole and the host waits for its end alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "model/gpu/prompt_fetch.h"
#include "model/gpu/prompt_layers.h"
#include "model/gpu/token_embedding.h"
#include "model/step_model.h"

namespace bellhop::model {

class GpuPrompt {
 public:
  // What Create allocates. wave_bytes: with misses alone. host_bytes: of pinned memory, at most.
  struct Needs {
    uint64_t workspace_bytes = 0, wave_bytes = 0, host_bytes = 0;
  };
  static Needs PlanFor(const ModelSpec& spec, const store::ExpertStore& store, const GpuModelOptions& options);

  struct Inputs {
    const ModelSpec& spec;
    const store::ExpertStore& store;
    const plan::Placement& placement;
    const GpuModelOptions& options;
    const StepBuffers& step;
    const cuda::Stream& stream;
    sys::WorkerPool* pool;
    bool registered;       // the misses' host memory is
    float* pinned_logits;  // [kMaxDecodeStepRows][vocab], shared with decode steps
  };
  // Null: prompts run in the decode class.
  static Result<std::unique_ptr<GpuPrompt>> Create(const Inputs& in, std::vector<std::string>* notes);
  // Before the first chunk; runs one of one row, so that kernels are loaded. The embedding must outlive this.
  Status Bind(const GpuLayers& layers, const TokenEmbedding* embedding);

  // As StepModel::Forward. written: rows of logits so far.
  Status Forward(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written);

  // How long the parts of a full chunk take, for a line of --timers. Every expert has a slot.
  Result<std::string> TimeParts();

 private:
  explicit GpuPrompt(const Inputs& in)
      : spec_(in.spec), step_(in.step), stream_(in.stream), pool_(in.pool), pinned_logits_(in.pinned_logits) {}

  struct Pinned {
    float* embeddings = nullptr;  // [rows][hidden]
    int32_t* pages = nullptr;     // [max_pages]
    uint32_t* bad_row = nullptr;

    uint64_t Place(std::byte* base, const ModelSpec& spec, const GpuModelOptions& options);
  };

  Status RunChunk(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written);
  Status BeginChunk(HostSpan<const StepRow> rows);
  Status CopyInput(int32_t rows, size_t pages);
  Status SubmitLayers(const PromptChunk& chunk, PromptPart only);
  Status SubmitHead(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written);
  Status TakeLogits(int32_t count, MatView<float> logits, int64_t* written);
  Status CheckChunk(HostSpan<const StepRow> rows, MatView<const float> logits);

  const ModelSpec& spec_;
  const StepBuffers& step_;
  const cuda::Stream& stream_;
  sys::WorkerPool* pool_;
  float* pinned_logits_;
  cuda::DeviceBuffer memory_;
  cuda::PinnedBuffer pinned_memory_;
  Pinned pinned_;
  PromptBuffers buffers_;
  PromptLayers layers_;
  PromptFetch fetch_;
  const TokenEmbedding* embedding_ = nullptr;
  std::vector<uint8_t> bad_rows_;
};

}  // namespace bellhop::model
