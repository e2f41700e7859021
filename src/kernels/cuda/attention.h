// Attention of decode steps on a GPU: finish q and k, append to the paged cache, attend. Rows may be of several
// sequences, or consecutive positions of one: append is a kernel of its own, so each row sees the ones before it.
// A row's result does not depend on the other rows or on how many rows a launch covers: equal bits.
//
// The visible positions of a row are cut into splits of whole pages (their number depends on the row's position and the
// launch's shape, not on its rows), a split into slices of 16 positions, dealt to the warps of a block. For f16 and
// bf16 the products are tensor core products with f32 sums, weights are rounded to the KV type before they multiply V
// and summed unrounded, as in kernels/attention.h; f32 is exact but for the order of its sums. Warps and splits are
// merged in ascending order. A NaN or +Inf score makes every result of its head NaN, and so does a head without a
// finite score unless it has a sink; a row without visible positions (position -1) gets zeros.
//
// Shared by host and device code. Launchers refuse what they cannot do with cudaErrorInvalidValue.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/launch_queue.h"
#include "kernels/cuda/device_matrix.h"
#include "kernels/kv_type.h"

namespace bellhop::kernels {

inline constexpr int kAttentionMaxDim = 256;      // key_dim and value_dim: multiples of 8 up to this
inline constexpr int kAttentionMaxGroup = 16;     // query heads of a KV head
inline constexpr int kAttentionMaxSplits = 64;    // what the merging block must read
inline constexpr int kAttentionMaxConsumers = 4;  // blocks of a row and KV head that wait for the others

// The rows of a step. Pointers are device memory, read when the kernel runs. Without `positions` they are the chunk of
// a prompt, for LaunchFinishQkv alone: up to kMaxPromptRows rows of one sequence, row m at first_position + m; all are
// active and share one block table.
inline constexpr int32_t kMaxPromptRows = 65535;
struct StepTables {
  int32_t rows = 0;                       // that a launch covers, <= kMaxStepRows
  const int32_t* active_rows = nullptr;   // [1]; rows beyond it do nothing
  const int32_t* positions = nullptr;     // [rows]
  const int32_t* block_tables = nullptr;  // [rows][max_pages]
  int32_t max_pages = 0;                  // of a sequence: the context's capacity
  int32_t first_position = 0;             // without positions
};

// One layer of the cache, model/kv_cache.h. Row p of head h is at keys + page * page_bytes + (h * 64 + p % 64) * row
// bytes. keys, values and page_bytes are multiples of 16.
struct KvLayer {
  uint8_t* keys = nullptr;  // of page 0
  uint8_t* values = nullptr;
  int64_t page_bytes = 0;
  KvType type = KvType::kF16;
  int32_t kv_heads = 0, key_dim = 0, value_dim = 0;
};

enum class HeadNorm : uint8_t { kNone, kPerHead, kFullWidth };
enum class RopeOrder : uint8_t { kNone, kNorm, kNeox };  // pairs (2j, 2j + 1), (j, j + dims / 2)

// q, k and v of row m are at qkv[m * stride + q_offset] and so on; biases are added already.
struct FinishQkvArgs {
  StepTables step;
  KvLayer kv;
  int32_t heads = 0;  // of queries
  float* qkv = nullptr;
  int32_t stride = 0;  // floats
  int32_t q_offset = 0, k_offset = 0, v_offset = 0;
  HeadNorm norm = HeadNorm::kNone;
  const float* q_norm = nullptr;  // [key_dim], or [heads * key_dim] for kFullWidth
  const float* k_norm = nullptr;  // [key_dim], or [kv_heads * key_dim]
  float q_epsilon = 0, k_epsilon = 0;
  RopeOrder rope = RopeOrder::kNone;
  const float* rope_table = nullptr;  // [context][rope_dims]: cos, sin of each pair, magnitude applied
  int32_t rope_dims = 0;              // even, <= key_dim
  // Of LaunchFinishAndAttend: the step's tables and what the cache has below the row's position were complete before
  // the kernel before this one began, and that one lets the next start no sooner than it knows (mat_vec_row.cuh). Then
  // they are read before that kernel has ended; q, k and v are not.
  bool reads_ahead = false;
};

// q is written back, rounded to the KV type; k and v go to the cache, and their floats are left alone. Rows at position
// -1 append nothing.
cudaError_t LaunchFinishQkv(const FinishQkvArgs& args, const cuda::LaunchQueue& queue);

struct AttendArgs {
  StepTables step;
  KvLayer kv;
  int32_t heads = 0;         // a multiple of kv_heads
  const float* q = nullptr;  // row m, head h at q + m * q_stride + h * key_dim
  int32_t q_stride = 0;      // floats
  float scale = 1;
  const float* sinks = nullptr;  // [heads] or null
  int32_t window = 0;            // visible positions, the row's own included; 0: all
  // Element h * value_dim + d. Columns up to `out.stride` are written, zeros behind the last head. Groups of 16 sums
  // must not cross KV heads: heads / kv_heads * value_dim is a multiple of 16.
  TermRows out;
  float* partials = nullptr;  // AttentionPartialBytes, 16-byte aligned; anything
  // AttentionPartialBytes of one row, alike, but zero before the first launch; launches leave zeros. With it the splits
  // of one row meet without `partials` and `counters`, to the same results. Null: always with them.
  float* words = nullptr;
  uint32_t* counters = nullptr;  // [kMaxStepRows * kv_heads], zero before the first launch; launches leave zeros
  int64_t expected_visible = 0;  // positions that the rows see, all together: for the declared bytes alone
};

// Splits of a row and KV head, at most. `window` and `max_pages` as in the arguments.
int32_t AttentionSplits(int32_t kv_heads, int32_t max_pages, int32_t window);
// Launches that follow each other may share partials, words and counters.
uint64_t AttentionPartialBytes(int32_t rows, int32_t heads, int32_t value_dim, int32_t splits);

cudaError_t LaunchAttention(const AttendArgs& args, const cuda::LaunchQueue& queue);

// Of one row whose norms, if any, are those of single heads.
bool CanFinishInAttention(const FinishQkvArgs& finish);
// Both in one launch, with the same results: every block finishes the queries that it needs, and one of each KV head
// the new key and value. q, k and v are left as they are. `finish` and `args` are of the same row, q is at its
// beginning.
cudaError_t LaunchFinishAndAttend(const FinishQkvArgs& finish, const AttendArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
