// Makes planar matrices: for tests, benchmarks and layout conversion. `bellhop quantize` writes GGUF formats only.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "base/status.h"
#include "quant/planar.h"

namespace bellhop::quant {

// Writes codes [rows][cols], one per byte and below 2^bits, in the layout of `format`, rows without padding between
// them. `dst` has the size of the code plane; unused bits become zero.
void PackCodes(WeightFormat format, int64_t rows, int64_t cols, const uint8_t* codes, std::byte* dst);
// A zero-point plane from [rows][groups] values, one per byte.
void PackZeroPoints(WeightFormat format, int64_t rows, int64_t groups, const uint8_t* zero_points, std::byte* dst);
// One scale, rounded to the nearest value of its type; E8M0 takes the power of two at or below.
void StoreScale(ScaleType type, float value, std::byte* row, int64_t index);

// Rounds values [rows][cols] to the nearest codes, one scale per group chosen from its extremes, and writes the matrix
// into MatrixBytes(spec) bytes. kInvalidArgument when the spec is not valid, the memory too small or a value not
// finite.
Result<QuantView> EncodeMatrix(const MatrixSpec& spec, const float* values, HostSpan<std::byte> memory);

}  // namespace bellhop::quant
