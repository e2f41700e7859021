// Attention of a block of rows and one KV head over a paged cache. Every ISA gives the bits of the reference, and a
// row's result does not depend on the other rows of its block or on how its positions are split into calls.
//
// The visible positions of a row are cut into spans at multiples of kAttentionSpan. For each query head h, with q'
// rounded to the KV type, and each span with a visible position:
//   s = +0; for e ascending: s = fma(q'[e], k[j][e], s); score[j] = s * scale
//   m = max(score); w[j] = exp(score[j] - m)
//   l = sum(w)                        in sixteen lanes (lanes.h) that count from the span's first visible position
//   o[d] = +0; for j ascending: o[d] = fma(round(w[j]), v[j][d], o[d])   weights rounded to the KV type
// Spans are merged in ascending order into (M, L, O), which starts at (sinks[h], 1, 0), or (-Inf, 0, 0) without sinks:
//   M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = fma(L, a, l * b); O[d] = fma(O[d], a, o[d] * b)
//   out[h][d] = O[d] * (1 / L)
// A NaN or +Inf score, or a span with nothing above -Inf, makes every result of its head NaN: a numeric fault for the
// caller to report. A row without visible positions gets zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_type.h"
#include "sys/cpu_features.h"

namespace bellhop::kernels {

inline constexpr int64_t kAttentionSpan = 256;
static_assert(kAttentionSpan % kKvPageTokens == 0);

// Query vectors (rows x heads) that one call should have, if there are so many: enough to share a converted page of K
// and V, few enough for their scores to stay in the second-level cache.
inline constexpr int64_t kAttentionBlock = 128;

struct AttentionRow {
  const float* q;      // [group][key_dim], q_stride apart
  float* out;          // [group][value_dim], out_stride apart
  int64_t begin, end;  // visible positions
};

// K or V of one KV head: position p is at base + pages[p / 64] * page_bytes + p % 64 * row_bytes.
struct KvHead {
  const std::byte* base;
  int64_t page_bytes, row_bytes;
};

struct AttentionArgs {
  const AttentionRow* rows;  // of one sequence
  int64_t row_count;
  int32_t group;  // query heads sharing the KV head
  int32_t key_dim, value_dim;
  KvType type;
  int64_t q_stride, out_stride;
  KvHead keys, values;
  const int32_t* pages;  // block table of the sequence; only entries of visible positions are read
  float scale;
  const float* sinks;  // [group] or null
  float* scratch;      // AttentionScratchFloats, 64-byte aligned; anything
};

constexpr int64_t AttentionPad(int64_t n) { return (n + 15) / 16 * 16; }

// What one span of one query vector leaves: o[value_dim], m, l.
constexpr int64_t AttentionStateFloats(int64_t value_dim) { return AttentionPad(value_dim + 2); }

constexpr int64_t AttentionScratchFloats(int64_t row_count, int64_t group, int64_t key_dim, int64_t value_dim) {
  const int64_t vectors = row_count * group;
  const int64_t per_vector = AttentionPad(key_dim) + kAttentionSpan + 2 * AttentionStateFloats(value_dim) + 6;
  return AttentionPad(vectors * per_vector) + kKvPageTokens * (AttentionPad(key_dim) + AttentionPad(value_dim)) + 64;
}

// The work of a call, as one piece or as spans for several workers: the bits of `attend` are those of `span` for every
// span that a row of the block sees, then `merge`.
struct AttentionKernel {
  const char* name;
  sys::Isa isa;
  void (*attend)(const AttentionArgs& args) noexcept;
  // Span [256 * span, 256 * span + 256). The state of row r, head h goes to states + (r * group + h) *
  // AttentionStateFloats(value_dim); rows that see nothing of the span leave theirs alone.
  void (*span)(const AttentionArgs& args, int64_t span, float* states) noexcept;
  // `states`: one block of states, as span writes them, per span; the first is that of `first_span`.
  void (*merge)(const AttentionArgs& args, int64_t first_span, const float* states) noexcept;
};
std::span<const AttentionKernel> AllAttentionKernels();
const AttentionKernel* SelectAttention(const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
