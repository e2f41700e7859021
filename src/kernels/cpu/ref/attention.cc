// The reference: one query vector at a time, one position at a time, as attention.h states it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

const std::byte* RowAt(const AttentionArgs& args, const KvHead& head, int64_t position) {
  return head.base + args.pages[position / kKvPageTokens] * head.page_bytes + position % kKvPageTokens * head.row_bytes;
}

float ReduceLanes(float (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

float Dot(const float* q, KvType type, const std::byte* k, int32_t n) {
  float sum = 0;
  for (int32_t e = 0; e < n; ++e) sum = std::fma(q[e], Element(type, k, e), sum);
  return sum;
}

float Exp(float x) {
  kVecOps.exp(&x, 1, &x);
  return x;
}

bool Sees(const AttentionRow& row, int64_t span) {
  return std::max(row.begin, span * kAttentionSpan) < std::min(row.end, (span + 1) * kAttentionSpan);
}

void SpanOf(const AttentionArgs& args, const AttentionRow& row, int64_t head, int64_t span, float* state) {
  const int64_t first = std::max(row.begin, span * kAttentionSpan);
  const int64_t n = std::min(row.end, (span + 1) * kAttentionSpan) - first;
  float* const q = args.scratch;
  float* const weights = q + AttentionPad(args.key_dim);
  RoundToType(args.type, row.q + head * args.q_stride, args.key_dim, q);
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < n; ++j) {
    weights[j] = Dot(q, args.type, RowAt(args, args.keys, first + j), args.key_dim) * args.scale;
    max = weights[j] > max ? weights[j] : max;
  }
  float lanes[kLanes] = {};
  for (int64_t j = 0; j < n; ++j) {
    weights[j] = Exp(weights[j] - max);
    lanes[j % kLanes] += weights[j];
  }
  RoundToType(args.type, weights, n, weights);
  std::fill(state, state + args.value_dim, 0.0f);
  for (int64_t j = 0; j < n; ++j) {
    const std::byte* const v = RowAt(args, args.values, first + j);
    for (int32_t d = 0; d < args.value_dim; ++d) state[d] = std::fma(weights[j], Element(args.type, v, d), state[d]);
  }
  state[args.value_dim] = max;
  state[args.value_dim + 1] = ReduceLanes(lanes);
}

void Span(const AttentionArgs& args, int64_t span, float* states) noexcept {
  for (int64_t i = 0; i < args.row_count * args.group; ++i) {
    const AttentionRow& row = args.rows[i / args.group];
    if (Sees(row, span)) {
      SpanOf(args, row, i % args.group, span, states + i * AttentionStateFloats(args.value_dim));
    }
  }
}

// One query vector: state_of(span) gives the state of each span in turn.
template <typename StateOf>
void MergeVector(const AttentionArgs& args, const AttentionRow& row, int64_t head, StateOf state_of) {
  float* const out = row.out + head * args.out_stride;
  std::fill(out, out + args.value_dim, 0.0f);
  if (row.begin >= row.end) return;
  float max = args.sinks != nullptr ? args.sinks[head] : -std::numeric_limits<float>::infinity();
  float sum = args.sinks != nullptr ? 1.0f : 0.0f;
  for (int64_t span = row.begin / kAttentionSpan; span * kAttentionSpan < row.end; ++span) {
    const float* const state = state_of(span);
    const float m = state[args.value_dim], l = state[args.value_dim + 1];
    const float new_max = m > max ? m : max;
    const float a = Exp(max - new_max), b = Exp(m - new_max);
    max = new_max;
    sum = std::fma(sum, a, l * b);
    for (int32_t d = 0; d < args.value_dim; ++d) out[d] = std::fma(out[d], a, state[d] * b);
  }
  const float inverse = 1.0f / sum;
  for (int32_t d = 0; d < args.value_dim; ++d) out[d] *= inverse;
}

void Merge(const AttentionArgs& args, int64_t first_span, const float* states) noexcept {
  const int64_t vectors = args.row_count * args.group, floats = AttentionStateFloats(args.value_dim);
  for (int64_t i = 0; i < vectors; ++i) {
    MergeVector(args, args.rows[i / args.group], i % args.group,
                [&](int64_t span) { return states + ((span - first_span) * vectors + i) * floats; });
  }
}

void Attend(const AttentionArgs& args) noexcept {
  float* const state = args.scratch + AttentionPad(args.key_dim) + kAttentionSpan;
  for (int64_t i = 0; i < args.row_count * args.group; ++i) {
    const AttentionRow& row = args.rows[i / args.group];
    MergeVector(args, row, i % args.group, [&](int64_t span) {
      SpanOf(args, row, i % args.group, span, state);
      return state;
    });
  }
}

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_reference", sys::Isa::kReference, Attend, Span, Merge};

}  // namespace bellhop::kernels::ref
