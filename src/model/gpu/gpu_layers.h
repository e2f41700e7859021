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
#include "model/gpu/device_arena.h"
#include "model/gpu/device_weights.h"
#include "model/gpu_model.h"
#include "plan/gpu_placement.h"
#include "store/expert_store.h"

namespace bellhop::model {

inline constexpr int32_t kMaxDecodeStepRows = kernels::kMaxStepRows;

// What all layers share.
struct StepBuffers {
  kernels::StepState state;
  kernels::ResidualRows residual;  // norm and epsilon: of whoever reads next
  float* qkv = nullptr;            // [rows][qkv_stride]
  int32_t qkv_stride = 0;
  kernels::TermRows heads;   // attention's results
  kernels::TermRows inner;   // activations of experts, by route
  kernels::TermRows dense;   // of dense and shared feed-forward parts
  float* partial = nullptr;  // [routes][hidden]
  float* router_logits = nullptr;
  uint64_t* row_scores = nullptr;  // [experts + 1], zeros between kernels
  float* x_norm = nullptr;         // [rows][hidden]
  kernels::RouteTable routes;
  float* attention_partials = nullptr;
  uint32_t* attention_counters = nullptr;
  uint32_t* tile_arrivals = nullptr;  // [hidden / 16]
  uint32_t* arrivals = nullptr;       // [2]: the router's, fc2's
  float* logits = nullptr;            // [rows][vocab]
  cuda::DoorbellState* doorbell = nullptr;
  int32_t** expert_to_slot = nullptr;  // [layers]
  int32_t* slot_tables = nullptr;      // [layers][experts]
  uint64_t* placement = nullptr;
  uint32_t* route_counts = nullptr;               // [layers][experts]
  uint32_t* last_steps = nullptr;                 // alike
  uint64_t* distinct = nullptr;                   // [layers][2]
  int32_t experts = 0;                            // of the widest layer
  kernels::FetchSource* fetch_sources = nullptr;  // [layers][experts]
  kernels::StagedMisses staged_misses;
};

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

// kUnsupported names what the GPU backend cannot do.
Status CheckGpuModel(const ModelSpec& spec, const store::ExpertStore& store);

// Takes from the arena what a step of up to 32 rows needs; zeroed memory is expected.
StepBuffers TakeStepBuffers(const ModelSpec& spec, const GpuModelOptions& options, DeviceArena* arena);

// The experts of one layer as kernels see a slot: offsets of the three matrices, and the slot's bytes.
struct SlotShape {
  uint64_t gate = 0, up = 0, down = 0, bytes = 0;
};
SlotShape ShapeOfSlot(const store::ExpertView& view);
// Of the largest expert of a layer.
SlotShape ShapeOfSlots(const store::ExpertStore& store, LayerId layer);

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

// Submits a step of `bucket` rows, or one part of every layer. `with_head`: logits of all rows.
Status SubmitStep(const GpuLayers& model, int32_t bucket, bool with_head, StepPart only, cuda::Device* device,
                  const cuda::LaunchQueue& queue);

}  // namespace bellhop::model
