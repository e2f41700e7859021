// The launches of a prompt's chunk as data, made of those of a decode step (gpu_layers.h): the same weights and cache,
// kernels of the prompt class (kernels/cuda/prompt_step.h), memory of its own. Pointers are device memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "cuda/stream.h"
#include "kernels/cuda/prompt_attention.h"
#include "kernels/cuda/prompt_step.h"
#include "model/gpu/gpu_layers.h"

namespace bellhop::model {

// Rows of a chunk, at most; longer prompts are cut. 0: prompts run in the decode class.
int32_t PromptRows(const GpuModelOptions& options);

struct PromptBuffers {
  int32_t rows = 0;
  kernels::PromptDevice device;  // what multiplies them
  float* residual = nullptr;     // [rows][hidden]
  kernels::TermRows x;           // what a norm has made of it
  float* inverse_rms = nullptr;
  float* qkv = nullptr;  // [rows][qkv_stride]
  int32_t qkv_stride = 0;
  kernels::TermRows heads;         // attention's results
  kernels::TermRows inner, dense;  // activations of experts, by place; of dense and shared feed-forward parts
  int32_t* block_table = nullptr;  // of the chunk's sequence
  // Of models with experts.
  float* partial = nullptr;  // [rows * used][hidden]
  float* router_logits = nullptr;
  kernels::RouteTable routes;  // ids, weights, slots, order, shared_weights
  kernels::ExpertGroup* tiles = nullptr;
  int32_t* tile_count = nullptr;
  int32_t* route_offsets = nullptr;  // [experts + 1]
  int32_t* span_counts = nullptr;    // [kernels::PromptSortSpans(rows) + 1][experts]
  uint32_t* bad_row = nullptr;
  int32_t** expert_to_slot = nullptr;             // [layers]
  int32_t* slot_tables = nullptr;                 // [layers][experts]
  int32_t* cold = nullptr;                        // [layers][experts]: the experts without a slot
  int32_t* wave_counts = nullptr;                 // [layers][experts]
  kernels::FetchSource* fetch_sources = nullptr;  // [layers][experts]
};
PromptBuffers TakePromptBuffers(const ModelSpec& spec, const GpuModelOptions& options, DeviceArena* arena);

// Arguments lack what a chunk decides: rows and positions.
struct PromptLayer {
  kernels::PromptNormArgs mixer_norm, feed_forward_norm;
  kernels::PromptGemmArgs qkv[kernels::kMaxMatVecs];
  kernels::FinishQkvArgs finish;
  kernels::PromptAttendArgs attend;
  kernels::PromptGemmArgs output;
  std::optional<kernels::PromptRouterArgs> router;
  kernels::PromptSortArgs sort;
  std::optional<kernels::PromptExpertArgs> shared;
  kernels::PromptExpertArgs feed_forward;  // routed experts, or the dense part
};

struct PromptLayers {
  std::vector<PromptLayer> layers;
  kernels::PromptNormArgs output_norm;
  kernels::PromptGemmArgs head;
};
PromptLayers BuildPromptLayers(const ModelSpec& spec, const GpuLayers& step, const StepBuffers& step_buffers,
                               const PromptBuffers& buffers);

struct PromptChunk {
  int32_t rows = 0, first_position = 0;
};

// Parts of a chunk, for measuring them one by one; each norm goes with what reads it.
enum class PromptPart : uint8_t {
  kAll,
  kQkv,
  kFinishQkv,
  kAttention,
  kOutput,
  kRouter,
  kSort,
  kFc1,
  kFc2,
  kCombine,
  kHead
};
inline constexpr int kPromptParts = 11;

// In this order. Launches of `queue`; the first one of a chunk, and the first behind another stream's event, should not
// overlap what is before it (LaunchQueue::overlap).

// Up to the residual that the feed-forward part reads.
Status SubmitPromptMixer(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                         const cuda::LaunchQueue& queue);
// Norm, routes, and the dense or shared feed-forward part.
Status SubmitPromptRoutes(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                          const cuda::LaunchQueue& queue);
// Routed experts whose slots are in a range. staging: of slots from its first_slot on.
struct PromptSlotRange {
  int32_t first = 0, end = 0;
  kernels::StagingBank staging = {};
};
Status SubmitPromptExperts(const PromptLayer& layer, const PromptChunk& chunk, const PromptSlotRange& slots,
                           PromptPart only, cuda::Device* device, const cuda::LaunchQueue& queue);
Status SubmitPromptCombine(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                           const cuda::LaunchQueue& queue);
// logits: [rows][vocab], of rows from `first` on.
Status SubmitPromptHead(const PromptLayers& layers, int32_t first, int32_t rows, float* logits, cuda::Device* device,
                        const cuda::LaunchQueue& queue);

}  // namespace bellhop::model
