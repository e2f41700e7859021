#include "quant/block_codecs.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

void EncodeF32(const float* src, int64_t count, const float* /*importance*/, uint8_t* dst) {
  if (count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
}

void EncodeF16(const float* src, int64_t count, const float* /*importance*/, uint8_t* dst) {
  F32RowToF16(src, count, reinterpret_cast<std::byte*>(dst));
}

void EncodeBf16(const float* src, int64_t count, const float* /*importance*/, uint8_t* dst) {
  for (int64_t i = 0; i < count; ++i) Store(dst + 2 * i, F32ToBf16(src[i]));
}

}  // namespace

EncodeBlocksFn FindPlainEncoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return EncodeF32;
    case WeightFormat::kF16: return EncodeF16;
    case WeightFormat::kBF16: return EncodeBf16;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
