// The launches of a decode step as data: every layer's arguments, made once. Pointers are device memory unless said
// otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/expert_fetch.h"
#include "model/gpu/device_weights.h"
#include "model/gpu/step_buffers.h"
#include "model/gpu_model.h"
#include "store/expert_store.h"

namespace bellhop::model {

struct GpuLayer {
  kernels::MatVecArgs qkv, output;
  kernels::FinishQkvArgs finish;
  kernels::AttendArgs attend;
  std::optional<kernels::RouterArgs> router;
  std::optional<kernels::FetchArgs> fetch;    // of misses that the GPU computes
  std::optional<kernels::ExpertArgs> shared;  // before the routed experts; adds to the residual
  kernels::ExpertArgs feed_forward;           // routed experts, or the dense part
};

// The part of a step that is one after the other; what the builder fills in.
struct GpuLayers {
  std::vector<GpuLayer> layers;
  kernels::BeginArgs begin;
  kernels::MatVecArgs head;
  std::vector<std::string> slow_tensors;  // without tiles
};

class PcieLanes;

struct LayerInputs {
  const manifest::Manifest& manifest;
  const ModelSpec& spec;
  const store::ExpertStore& store;
  const GpuModelOptions& options;
  const KvLayout& kv;
  uint8_t* kv_base = nullptr;
  std::vector<uint8_t*> banks;  // [layers], of slot 0
  cuda::DoorbellChannel channel;
  StepBuffers buffers;
  const PcieLanes* pcie = nullptr;  // null: misses are the CPU's
};
// Takes and uploads the dense weights on the way.
Result<GpuLayers> BuildGpuLayers(const LayerInputs& in, DenseWeights* weights);

// Parts of a step, for measuring them one by one.
enum class StepPart : uint8_t {
  kAll,
  kBegin,
  kQkv,
  kFinishQkv,
  kAttention,
  kOutput,
  kRouter,
  kFetch,
  kFc1,
  kFc2,
  kHead
};
inline constexpr int kStepParts = 11;

// Router and experts of one layer, or one part of them, from its residual rows on.
Status SubmitFeedForward(const GpuLayer& layer, int32_t bucket, StepPart only, cuda::Device* device,
                         const cuda::LaunchQueue& queue);

// Submits a step of `bucket` rows, or one part of every layer. `with_head`: logits of all rows.
Status SubmitStep(const GpuLayers& model, int32_t bucket, bool with_head, StepPart only, cuda::Device* device,
                  const cuda::LaunchQueue& queue);

}  // namespace bellhop::model
