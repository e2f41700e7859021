// What the GPU backend can run, and the device memory of a decode step.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/expert_fetch.h"
#include "model/gpu/device_arena.h"
#include "model/gpu_model.h"
#include "model/spec.h"
#include "store/expert_store.h"

namespace bellhop::model {

inline constexpr int32_t kMaxDecodeStepRows = kernels::kMaxStepRows;

// What a layer counts beside its routes. Experts with a slot and without that were run, each step or chunk counted
// once; of the prompts' misses, those that were fetched.
inline constexpr int kDecodeDistinct = 0, kPromptDistinct = 2, kFetchedTotal = 4, kLayerTotals = 5;

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
  uint64_t* router_words = nullptr;  // [kernels::RouterWords()], zeros between kernels
  kernels::RouteTable routes;
  float* attention_partials = nullptr;
  float* attention_words = nullptr;  // of one row, zeros between kernels
  uint32_t* attention_counters = nullptr;
  uint32_t* tile_arrivals = nullptr;  // [hidden / 16]
  float* logits = nullptr;            // [rows][vocab]
  cuda::DoorbellState* doorbell = nullptr;
  int32_t** expert_to_slot = nullptr;  // [layers]
  int32_t* slot_tables = nullptr;      // [layers][experts]
  uint64_t* placement = nullptr;
  uint32_t* route_counts = nullptr;               // [layers][experts]
  uint64_t* totals = nullptr;                     // [layers][kLayerTotals]
  int32_t experts = 0;                            // of the widest layer
  kernels::FetchSource* fetch_sources = nullptr;  // [layers][experts]
  kernels::StagedMisses staged_misses;
};

// kUnsupported names what the GPU backend cannot do.
Status CheckGpuModel(const ModelSpec& spec, const store::ExpertStore& store);

// The widest parts of a model, over all layers.
struct StepSizes {
  int64_t qkv = 0, heads = 0, dense = 0, inner = 0;
  int32_t experts = 0, used = 0, kv_heads = 1;
  uint64_t attention_partials = 0, attention_words = 0;
};
StepSizes MeasureStep(const ModelSpec& spec, const TransformerOptions& options);
// KV pages of a full sequence.
int32_t MaxPages(const TransformerOptions& options);
kernels::TermRows TakeTerms(DeviceArena* arena, int64_t rows, int64_t cols, int32_t terms);

// Takes from the arena what a step of up to 32 rows needs; zeroed memory is expected.
StepBuffers TakeStepBuffers(const ModelSpec& spec, const GpuModelOptions& options, DeviceArena* arena);

// The experts of one layer as kernels see a slot: offsets of the three matrices, and the slot's bytes.
struct SlotShape {
  uint64_t gate = 0, up = 0, down = 0, bytes = 0;
};
SlotShape ShapeOfSlot(const store::ExpertView& view);
// Of the largest expert of a layer.
SlotShape ShapeOfSlots(const store::ExpertStore& store, LayerId layer);

}  // namespace bellhop::model
