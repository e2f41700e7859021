// The kernels of a decode step, but for attention (attention.h): rows 1 .. 32 of several sequences, f32 activations.
// Every result depends on its own row alone: the same bits whatever else is in the step. CUDA builds alone.
//
// RMS norms are not kernels of their own. Who completes a residual row also writes the terms of (x * norm weight) and,
// for each 16 columns, the sum of their squares; the next matrix multiplies the terms and scales its products by
// 1 / rms, which is one number a row.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/doorbell_protocol.h"
#include "cuda/launch_queue.h"
#include "kernels/block_decode.h"
#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {

// A residual row and what the next norm needs of it; all device memory, `rows` rows each.
struct ResidualRows {
  float* values = nullptr;      // [rows][hidden]
  const float* norm = nullptr;  // [hidden], weights of the norm that reads it next
  float* squares = nullptr;     // [rows][hidden / 16, rounded up]
  TermRows terms;               // of values * norm
  int32_t hidden = 0;
  float epsilon = 0;  // of the norm
  constexpr int32_t square_count() const { return (hidden + 15) / 16; }
};

// The step as the host describes it, in pinned memory that the first kernel reads.
struct StepInput {
  int32_t rows = 0;
  int32_t positions[kMaxStepRows] = {};
  const float* embeddings = nullptr;  // [rows][hidden]
  const int32_t* pages = nullptr;     // [rows][max_pages]
  int32_t max_pages = 0;
};

// Copies of these in device memory, for the kernels of the step.
struct StepState {
  int32_t* rows = nullptr;       // [1]
  int32_t* positions = nullptr;  // [32]
  int32_t* pages = nullptr;      // [32][max_pages]
};

struct BeginArgs {
  const StepInput* input = nullptr;
  StepState state;
  ResidualRows residual;                    // of the first layer's norm
  cuda::DoorbellState* doorbell = nullptr;  // null: a model without experts
};
cudaError_t LaunchBeginDecode(const BeginArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

// 1 / rms of rows from the squares that ResidualRows has; a null pointer: 1.
struct RowNorm {
  const float* squares = nullptr;
  int32_t count = 0, hidden = 0;
  float epsilon = 0;
};
constexpr RowNorm NormOf(const ResidualRows& x) { return {x.squares, x.square_count(), x.hidden, x.epsilon}; }

inline constexpr int kMaxMatVecs = 3;

// y_i = norm * (W_i x) * scale + bias for up to three matrices of one input.
struct MatVecArgs {
  DeviceMatrix matrices[kMaxMatVecs];
  int32_t count = 0;
  TermRows x;
  RowNorm norm;
  const int32_t* rows = nullptr;  // active ones
  Codebooks books;
  // Either: plain results, divided by `divisor` ...
  float* y[kMaxMatVecs] = {};
  int64_t y_stride = 0;
  float divisor = 1;
  // ... or, with one matrix, residual += port_scale * y.
  ResidualRows residual;
  float port_scale = 1;
  bool to_residual = false;
};
cudaError_t LaunchMatVec(const MatVecArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

enum class DeviceGating : uint8_t { kSoftmax, kSigmoid, kSoftmaxSelected };

// One expert's routes of a step.
struct ExpertGroup {
  int32_t slot = 0, expert = 0;
  int32_t first = 0, count = 0;  // of RouteTable::order
};

// What the router decides; device memory.
struct RouteTable {
  int32_t* ids = nullptr;         // [rows * used]
  float* weights = nullptr;       // [rows * used]
  int32_t* slots = nullptr;       // [rows * used]: slot, kMissRoute or kDroppedRoute
  int32_t* order = nullptr;       // routes that have a slot, by expert
  ExpertGroup* groups = nullptr;  // room for ExpertArgs::max_groups: blocks read theirs before they know the number
  int32_t* group_count = nullptr;
  float* shared_weights = nullptr;  // [rows], sigmoid of the shared expert's gate; null: 1
};

// Misses that the GPU computes itself (expert_fetch.h): the experts that a layer's routes miss, ascending; device
// memory. Entry i is computed in staging slot i.
struct StagedMisses {
  int32_t* experts = nullptr;  // [min(rows * used, experts)]
  int32_t* count = nullptr;
};

// Of one row; four scores lie in one sector.
constexpr int64_t ScoreWordStride(int32_t experts) { return (int64_t{experts} + 4) / 4 * 4; }
// Layers of a step may share them: enough for the most experts and the most routes.
constexpr int64_t RouterWords(int32_t experts, int32_t used) {
  return kMaxStepRows * (ScoreWordStride(experts) + used + 1);
}

struct RouterArgs {
  int32_t layer = 0, experts = 0, used = 0;
  const float* weights = nullptr;         // [experts (+ 1 with a shared gate)][hidden], times x.norm by column
  const float* bias = nullptr;            // [experts], null: none
  const float* selection_bias = nullptr;  // [experts], null: none
  bool shared_gate = false;
  DeviceGating gating = DeviceGating::kSoftmax;
  bool normalise = false;
  float weights_scale = 0;
  int32_t groups = 1, groups_used = 1;

  ResidualRows x;  // room for `bucket` rows: they are read before the kernel knows how many there are
  const int32_t* rows = nullptr;
  float* logits = nullptr;    // [rows][experts + 1]
  uint64_t* words = nullptr;  // [RouterWords()], from block to block; zeroed once, launches leave zeros
  RouteTable routes;
  const int32_t* const* expert_to_slot = nullptr;  // [layers]: the current tables, in device memory
  const uint64_t* placement = nullptr;             // their version
  uint32_t* route_counts = nullptr;                // [experts]
  uint64_t* distinct = nullptr;    // [2] of the layer: experts with a slot and without, each step counted once
  bool ring_misses = true;         // to the CPU
  StagedMisses staged;             // null: misses have no slot
  int32_t first_staging_slot = 0;  // their slots' numbers; StagingBank::first_slot
  cuda::DoorbellChannel channel;
  cuda::DoorbellState* doorbell = nullptr;
};
cudaError_t LaunchRouter(const RouterArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

enum class DeviceActivation : uint8_t { kSwiGlu, kGeGlu };

// Slots in device memory that hold the misses of one layer at a time. Kernels know them by numbers that no slot of a
// bank has.
struct StagingBank {
  uint8_t* base = nullptr;  // aligned to 16, as the offsets
  int64_t slot_bytes = 0;
  int64_t gate = 0, up = 0, down = 0;  // offsets in a slot
  int32_t first_slot = INT32_MAX;      // number of the first; none
};

// Columns of fc1's results: the GPU's part of a miss that it shares with the CPU. Both are multiples of InnerStep, or
// the end of the row.
struct InnerRange {
  int32_t begin = 0, end = INT32_MAX;
};
constexpr int32_t InnerStep(const DeviceMatrix& down) {
  return down.layout == MatrixLayout::kTiles ? Tiles(down.format).chunk_cols : 256;
}

// The matrices of all slots of a layer: `data` is slot 0's, the next slot's lies slot_bytes behind.
struct ExpertBank {
  int64_t slot_bytes = 0;
  DeviceMatrix gate, up, down;
  // By expert, [experts][inner] and [experts][hidden]; null: none.
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  // [experts] factors on the products; null: 1.
  const float *gate_scale = nullptr, *up_scale = nullptr, *down_scale = nullptr;
  StagingBank staging;
  InnerRange staged_inner;  // of misses in staging slots; the part that begins at 0 has the bias of `down`
};

struct ExpertArgs {
  ExpertBank bank;
  int32_t layer = 0, used = 0;
  // Groups of the router, or one group of all rows (a dense or shared feed-forward part: used = 1, slot 0).
  bool all_rows = false;
  RouteTable routes;
  const int32_t* rows = nullptr;
  int32_t max_groups = 1;
  Codebooks books;
  ResidualRows x;   // fc1 input; fc2 adds to its values
  TermRows hidden;  // [rows * used] activations
  DeviceActivation activation = DeviceActivation::kSwiGlu;
  float alpha = 1, beta = 0, limit = 0;  // limit 0: none
  // fc2.
  float* partial = nullptr;           // [rows * used][hidden]
  uint32_t* tile_arrivals = nullptr;  // [hidden / 16], zeroed once
  float port_scale = 1;
  bool use_shared_weights = false;  // all_rows: a row's result times routes.shared_weights
  bool completes = true;            // the residual row is complete: terms and squares for `next`
  ResidualRows next;                // the same values, next layer's norm
  bool waits = false;               // for the layer's misses
  cuda::DoorbellChannel channel;
  cuda::DoorbellState* doorbell = nullptr;
};
cudaError_t LaunchExpertFc1(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);
cudaError_t LaunchExpertFc2(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
