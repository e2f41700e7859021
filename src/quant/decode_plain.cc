#include "quant/block_codecs.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

template <typename T>
void DecodeNumbers(const uint8_t* src, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(Load<T>(src + i * static_cast<int64_t>(sizeof(T))));
}

void DecodeF32(const uint8_t* src, int64_t count, float* dst) {
  if (count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
}

void DecodeF16(const uint8_t* src, int64_t count, float* dst) {
  F16RowToF32(reinterpret_cast<const std::byte*>(src), count, dst);
}

void DecodeBf16(const uint8_t* src, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = Bf16ToF32(Load<uint16_t>(src + 2 * i));
}

}  // namespace

DecodeBlocksFn FindPlainDecoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return DecodeF32;
    case WeightFormat::kF16: return DecodeF16;
    case WeightFormat::kBF16: return DecodeBf16;
    case WeightFormat::kF64: return DecodeNumbers<double>;
    case WeightFormat::kI8: return DecodeNumbers<int8_t>;
    case WeightFormat::kI16: return DecodeNumbers<int16_t>;
    case WeightFormat::kI32: return DecodeNumbers<int32_t>;
    case WeightFormat::kI64: return DecodeNumbers<int64_t>;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
