// The reference of the dot family: lanes.h word for word, for every weight format.
#include <cmath>
#include <cstring>

#include "kernels/cpu/ref/block_codes.h"
#include "kernels/dot.h"
#include "kernels/lanes.h"
#include "quant/codec.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

float Reduce(float* a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  }
  return a[0];
}

float PlainDot(WeightFormat format, const std::byte* row, int64_t k, const float* x) {
  const int64_t elem_bytes = quant::Traits(format).block_bytes;
  float acc[kLanes] = {};
  for (int64_t e = 0; e < k; e += kLanes) {
    const int64_t n = k - e < kLanes ? k - e : kLanes;
    float w[kLanes];
    quant::DecodeRow(format, row + e * elem_bytes, n, w);
    for (int64_t l = 0; l < n; ++l) acc[l] = std::fma(w[l], x[e + l], acc[l]);
  }
  return Reduce(acc);
}

void AddGroup(const float* code, float scale, const float* min, const float* x, int group, float* acc) {
  for (int e = 0; e < group; ++e) {
    const float w = min == nullptr ? code[e] * scale : std::fma(code[e], scale, -*min);
    acc[e % kLanes] = std::fma(w, x[e], acc[e % kLanes]);
  }
}

float BlockDot(WeightFormat format, const std::byte* row, int64_t k, const float* x) {
  const quant::FormatTraits& traits = quant::Traits(format);
  const int block_elems = static_cast<int>(traits.block_elems);
  const int group = static_cast<int>(traits.scale_group);
  float acc[kLanes] = {};
  for (int64_t e = 0; e < k; e += block_elems, row += traits.block_bytes) {
    BlockCodes block;
    DecodeBlockCodes(format, row, &block);
    for (int g = 0; g < block_elems / group; ++g) {
      AddGroup(block.code + g * group, block.scale[g], traits.has_min ? &block.min[g] : nullptr, x + e + g * group,
               group, acc);
    }
  }
  return Reduce(acc);
}

void DotReference(WeightFormat format, const DotArgs& args) {
  const auto dot = quant::Traits(format).block_elems == 1 ? PlainDot : BlockDot;
  for (int64_t r = args.range.begin; r < args.range.end; ++r) {
    for (int64_t m = 0; m < args.x.rows; ++m) {
      args.y.Row(m)[r] = dot(format, args.weights.Row(r), args.weights.cols, args.x.Row(m));
    }
  }
}

}  // namespace

#define BELLHOP_DEFINE_kReference(name, format) \
  void name(const DotArgs& args) noexcept { DotReference(WeightFormat::format, args); }
#define BELLHOP_DEFINE_kAvx2(name, format)
#define BELLHOP_DEFINE_kAvx512(name, format)
#define BELLHOP_DOT(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/dot.def"

}  // namespace bellhop::kernels
