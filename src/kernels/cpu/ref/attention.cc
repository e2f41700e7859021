// The reference: one query head at a time, one position at a time, as attention.h states it.
#include <cmath>
#include <cstring>

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/vec_ops_isa.h"
#include "kernels/lanes.h"
#include "quant/half.h"

namespace bellhop::kernels::ref {
namespace {

float Element(KvType type, const std::byte* row, int64_t i) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, row + 2 * i, sizeof(half));
  return type == KvType::kF16 ? quant::F16ToF32(half) : quant::Bf16ToF32(half);
}

void RoundToType(KvType type, const float* x, int64_t n, float* y) {
  switch (type) {
    case KvType::kF32:
      for (int64_t i = 0; i < n; ++i) y[i] = x[i];
      break;
    case KvType::kF16: kVecOps.round_f16(x, n, y); break;
    case KvType::kBF16: kVecOps.round_bf16(x, n, y); break;
  }
}

const std::byte* RowAt(const std::byte* const* pages, int64_t row_bytes, int64_t position) {
  return pages[position / kKvPageTokens] + (position % kKvPageTokens) * row_bytes;
}

float Dot(const float* q, KvType type, const std::byte* k, int32_t n) {
  float lanes[kLanes] = {};
  for (int32_t e = 0; e < n; ++e) lanes[e % kLanes] = std::fma(Element(type, k, e), q[e], lanes[e % kLanes]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

void Attention(const AttentionArgs& args) noexcept {
  const int64_t n = args.end > args.begin ? args.end - args.begin : 0;
  float* const rounded_q = args.scratch + args.group * n;
  for (int32_t h = 0; h < args.group; ++h) {
    float* const weights = args.scratch + h * n;
    float* const q = rounded_q + static_cast<int64_t>(h) * args.key_dim;
    RoundToType(args.type, args.q + h * args.q_stride, args.key_dim, q);
    for (int64_t j = 0; j < n; ++j) {
      const std::byte* const k = RowAt(args.k_pages, args.k_row_bytes, args.begin + j);
      weights[j] = Dot(q, args.type, k, args.key_dim) * args.scale;
    }
    kVecOps.softmax(weights, n, args.sinks != nullptr ? &args.sinks[h] : nullptr);
    RoundToType(args.type, weights, n, weights);

    float* const out = args.out + h * args.out_stride;
    for (int32_t d = 0; d < args.value_dim; ++d) out[d] = 0.0f;
    for (int64_t j = 0; j < n; ++j) {
      const std::byte* const v = RowAt(args.v_pages, args.v_row_bytes, args.begin + j);
      for (int32_t d = 0; d < args.value_dim; ++d) out[d] = std::fma(weights[j], Element(args.type, v, d), out[d]);
    }
  }
}

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_reference", sys::Isa::kReference, Attention};

}  // namespace bellhop::kernels::ref
