// Scalar decode and encode of whole rows: the reference that every kernel is tested against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/quant_view.h"

namespace bellhop::quant {

// Decodes `count` elements (whole blocks) to f32, bit for bit as docs/formats.md brackets it. Q8_1 and Q8_K decode as
// d * q; I8..I64 and F64 convert to f32. Source bytes need no alignment.
void DecodeRow(WeightFormat format, const std::byte* src, int64_t count, float* dst);

// Row `row` of a matrix of any format, planar ones included: their values are ((code - zero point) * scale) *
// global_scale.
void DecodeRow(const QuantView& view, int64_t row, float* dst);

// Encodes `count` elements (whole blocks). `importance` (one non-negative weight per element, or null) steers the
// search encoders. kUnsupported for formats whose traits say EncoderKind::kNone.
Status EncodeRow(WeightFormat format, const float* src, int64_t count, const float* importance, std::byte* dst);

// kCorrupt when a block's scale has all exponent bits set (NaN/Inf) or an MXFP4 exponent is 255; names the block.
Status ValidateRow(WeightFormat format, const std::byte* src, int64_t count);

}  // namespace bellhop::quant
