// Attention of one row and one KV head over a paged cache. Decode class: bit-equal in every ISA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sys/cpu_features.h"

namespace bellhop::kernels {

enum class KvType : uint8_t { kF32, kF16, kBF16 };
constexpr int64_t KvTypeBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

inline constexpr int kKvPageTokens = 64;

// For each query head h of the group that shares this KV head:
//   q' = round(q[h]) to the KV type; score[j] = dot(q', k[j]) * scale for j in [begin, end)   (canonical lane order)
//   weight = softmax(score) in f32 (with sinks[h] in the denominator), then rounded to the KV type
//   out[h][d] = sum over j ascending: fma(weight[j], v[j][d], out[h][d])
// Page p holds positions [64p, 64p + 64); k_pages[p] points at position 64p of this KV head, rows k_row_bytes apart.
struct AttentionArgs {
  const float* q;  // [group][key_dim], q_stride elements apart
  int64_t q_stride;
  int32_t group;  // query heads sharing the KV head
  int32_t key_dim, value_dim;
  KvType type;
  const std::byte* const* k_pages;
  const std::byte* const* v_pages;
  int64_t k_row_bytes, v_row_bytes;
  int64_t begin, end;  // visible positions, begin < end
  float scale;
  const float* sinks;  // [group] or null
  float* scratch;      // [group * (end - begin) + group * key_dim], 64-byte aligned
  float* out;          // [group][value_dim], out_stride elements apart
  int64_t out_stride;
};
using AttentionFn = void (*)(const AttentionArgs& args) noexcept;
struct AttentionKernel {
  const char* name;
  sys::Isa isa;
  AttentionFn fn;
};
std::span<const AttentionKernel> AllAttentionKernels();
const AttentionKernel* SelectAttention(const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
