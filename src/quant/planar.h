// Planar weight matrices: where a code lies, what it means, and cuts of a matrix along rows and columns. Layouts in
// words: docs/formats.md. The cuts and sizes take matrices of GGUF formats too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "quant/quant_view.h"

namespace bellhop::quant {

// Static facts of a planar format.
struct PlanarTraits {
  WeightFormat format;
  int bits;        // of a code
  int zero_point;  // the implicit one: value = (code - zero_point) * scale; 0 for FP4, whose codes are E2M1 numbers
  int row_unit;    // rows that only come together: row slices begin and end at multiples
  int col_unit;    // likewise for columns
  bool fp4;
  bool k_major;       // codes lie [cols][rows]
  int32_t fp4_group;  // the only scale group of an FP4 format; 0: any
};
// Of a format whose traits say `planar`.
const PlanarTraits& Planar(WeightFormat format);

int64_t ScaleBytes(ScaleType type);
// Value of scale `index` of a plane row. E4M3 codes carry a sign; E8M0 code 255 and E4M3 codes of magnitude 0x7F are
// NaN.
float ScaleValue(ScaleType type, const std::byte* row, int64_t index);

// 2^(b - 127), and signed E4M3 numbers.
extern const std::array<float, 256> kE8m0;
extern const std::array<float, 256> kE4m3;
// E2M1 numbers; code 8 is -0.
extern const float kE2m1[16];

// A matrix that is to be allocated: what QuantView says, without addresses. For GGUF formats only format, rows and
// cols count.
struct MatrixSpec {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  ScaleType scale_type = ScaleType::kNone;
  int32_t group = 0;
  bool zero_points = false;  // a plane of its own
  float global_scale = 1;
};
// kInvalidArgument names what does not fit and the remedy.
Status CheckSpec(const MatrixSpec& spec);
// Bytes of all planes one after the other, each plane padded to whole cache lines. The spec must be valid.
uint64_t MatrixBytes(const MatrixSpec& spec);
// The planes laid out in MatrixBytes(spec) bytes at `memory`; rows follow each other without padding.
QuantView PlaceMatrix(const MatrixSpec& spec, const std::byte* memory);

// Sizes, divisibility, planes and scale types of a view of any format. kInvalidArgument names what and the remedy.
Status CheckView(const QuantView& view);
// Bytes of all planes that the view's elements occupy.
uint64_t ViewBytes(const QuantView& view);

// Number of scales per row that the view uses.
int64_t GroupCount(const QuantView& view);

// Slices begin at multiples of these, and end there or at the end of the matrix.
int64_t RowGranularity(const QuantView& view);
int64_t ColumnGranularity(const QuantView& view);
// Pointer arithmetic only; the bounds are asserted.
QuantView RowSlice(const QuantView& view, int64_t begin, int64_t end);
QuantView ColumnSlice(const QuantView& view, int64_t begin, int64_t end);

// ---- Single elements of planar views: the definition of the layouts, slow ------------------------------------------

uint32_t PlanarCode(const QuantView& view, int64_t row, int64_t col);
// Of the group with index `group` in the view (column / view.group).
float PlanarScale(const QuantView& view, int64_t row, int64_t group);
int PlanarZeroPoint(const QuantView& view, int64_t row, int64_t group);
// The exact number that a scale multiplies when zero points are implicit: code - zero_point, or the E2M1 number.
float PlanarCodeValue(WeightFormat format, uint32_t code);

// Columns [begin, begin + count) of a row of a planar view, without its global scale:
// (code - zero point) * scale, or E2M1(code) * scale, in f32.
void DecodePlanarSlice(const QuantView& view, int64_t row, int64_t begin, int64_t count, float* dst);

}  // namespace bellhop::quant
