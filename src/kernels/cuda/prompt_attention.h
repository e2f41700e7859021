// Attention of a prompt's chunk: rows of ONE sequence at consecutive positions. First LaunchFinishQkv with StepTables
// of one sequence (attention.h), which appends the chunk; then each row sees what is at or below its position.
//
// For f16 and bf16, products are tensor core products with f32 sums, weights are rounded to the KV type before they
// multiply V and summed unrounded; f32 is exact but for the order of its sums. Positions are visited in one order, in
// tiles that begin at multiples of their size, so a row's result does not depend on the chunk's bounds: equal bits.
// What attention.h says of NaN and Inf holds, except that values which are no numbers may reach rows of the chunk that
// do not see them. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {

struct PromptAttendArgs {
  KvLayer kv;
  int32_t rows = 0;
  int32_t first_position = 0;            // of row 0; row m is m behind it
  const int32_t* block_table = nullptr;  // the sequence's pages
  int32_t heads = 0;                     // a multiple of kv_heads
  const float* q = nullptr;              // row m, head h at q + m * q_stride + h * key_dim
  int64_t q_stride = 0;                  // floats
  float scale = 1;
  const float* sinks = nullptr;  // [heads] or null
  int32_t window = 0;            // visible positions, the row's own included; 0: all
  // One term, element h * value_dim + d; sums are those of the rounded numbers, zeros behind the last head.
  TermRows out;
  PromptDevice device;
};
// Which kernel attends: of what a model and a device fix, never of the chunk, because two kernels' results differ in
// their last bits. On Hopper (prompt_attention_wgmma.h) heads of 64, 128 or 256 with keys as long as values; f32, other
// heads, and scales that are not positive, stay with mma.sync.
constexpr bool AttendsWithWgmma(const PromptAttendArgs& args) {
  const KvLayer& kv = args.kv;
  return args.device.math == PromptMath::kWgmma && kv.type != KvType::kF32 && kv.key_dim == kv.value_dim &&
         (kv.key_dim == 64 || kv.key_dim == 128 || kv.key_dim == 256) && args.scale > 0;
}

cudaError_t LaunchPromptAttention(const PromptAttendArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
