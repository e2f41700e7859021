#include "quant/planar.h"

#include <array>
#include <bit>
#include <cassert>
#include <limits>
#include <numeric>

#include "base/units.h"
#include "quant/codec.h"
#include "quant/packed.h"
#include "quant/planar_layout.h"

namespace bellhop::quant {
namespace {

// In the order of the enumerators.
constexpr std::array<PlanarTraits, 9> kPlanar = {{
    {WeightFormat::kInt4, 4, 8, 1, 2, false, false, 0},
    {WeightFormat::kInt4Sm80, 4, 8, 4, 64, false, false, 0},
    {WeightFormat::kInt3, 3, 4, 1, 8, false, false, 0},
    {WeightFormat::kInt8, 8, 128, 1, 1, false, false, 0},
    {WeightFormat::kInt8Sm80, 8, 128, 2, 64, false, false, 0},
    {WeightFormat::kMxfp4Planar, 4, 0, 1, 2, true, false, 32},
    {WeightFormat::kNvfp4Planar, 4, 0, 1, 2, true, false, 16},
    {WeightFormat::kMxfp4KMajor, 4, 0, 2, 1, true, true, 32},
    {WeightFormat::kNvfp4KMajor, 4, 0, 2, 1, true, true, 16},
}};

// Far above any model, far below an overflow of sizes in bytes.
constexpr int64_t kMaxExtent = int64_t{1} << 30;
constexpr int64_t kPlaneAlignment = 64;

int64_t CodeRowBytes(const PlanarTraits& p, int64_t rows, int64_t cols) {
  return p.k_major ? rows / 2 : PackedRowBytes(p.bits, cols);
}
int64_t CodeBytes(const PlanarTraits& p, int64_t rows, int64_t cols) {
  return CodeRowBytes(p, rows, cols) * (p.k_major ? cols : rows);
}

std::string_view ScaleName(ScaleType type) {
  switch (type) {
    case ScaleType::kNone: return "none";
    case ScaleType::kF16: return "F16";
    case ScaleType::kBF16: return "BF16";
    case ScaleType::kF32: return "F32";
    case ScaleType::kE8M0: return "E8M0";
    case ScaleType::kE4M3: return "E4M3";
  }
  return "unknown";
}

Status CheckExtents(std::string_view name, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1 || rows > kMaxExtent || cols > kMaxExtent) {
    return InvalidArgument(
        "{} matrix of {} rows and {} columns: both must be between 1 and {}; check the model's shape", name, rows, cols,
        kMaxExtent);
  }
  return Status();
}

Status CheckScaleType(const PlanarTraits& p, std::string_view name, ScaleType type) {
  const ScaleType fp4_type = p.fp4_group == 32 ? ScaleType::kE8M0 : ScaleType::kE4M3;
  const bool fits =
      p.fp4 ? type == fp4_type : type == ScaleType::kF16 || type == ScaleType::kBF16 || type == ScaleType::kF32;
  if (fits) return Status();
  return InvalidArgument("{} matrix with {} scales: the format takes {}; convert the scale tensor", name,
                         ScaleName(type), p.fp4 ? ScaleName(fp4_type) : "F16, BF16 or F32");
}

Status CheckGroup(const PlanarTraits& p, std::string_view name, int64_t group, int64_t cols) {
  if (p.fp4) {
    if (group == p.fp4_group) return Status();
    return InvalidArgument("{} matrix with scale groups of {}: the format has {}; set the block size to that", name,
                           group, p.fp4_group);
  }
  // Kernels take 64 columns of the SM80 layouts at once, 32 of the others.
  const int64_t unit = p.row_unit > 1 ? kSm80TileCols : 32;
  if (group == 16 || group == 32 || (group > 0 && (group % unit == 0 || group >= cols))) return Status();
  return InvalidArgument(
      "{} matrix with scale groups of {} columns: 16, 32, a multiple of {}, or at least all {} columns is needed; "
      "quantize the model with such a block size",
      name, group, unit, cols);
}

Status CheckPlanar(const MatrixSpec& spec) {
  const PlanarTraits& p = Planar(spec.format);
  const std::string_view name = Traits(spec.format).name;
  BELLHOP_TRY(CheckScaleType(p, name, spec.scale_type));
  BELLHOP_TRY(CheckGroup(p, name, spec.group, spec.cols));
  if (p.fp4 && spec.zero_points) {
    return InvalidArgument("{} matrix with zero points: FP4 codes have none; drop the zero-point tensor", name);
  }
  // Raw rows are padded to whole bytes; the other layouts are whole tiles.
  const bool tiled = p.row_unit > 1;
  if (tiled && (spec.rows % p.row_unit != 0 || spec.cols % p.col_unit != 0)) {
    return InvalidArgument(
        "{} matrix of {} rows and {} columns: the layout needs multiples of {} rows and {} columns; use the raw layout",
        name, spec.rows, spec.cols, p.row_unit, p.col_unit);
  }
  return Status();
}

Status CheckPlane(std::string_view name, std::string_view what, const QuantPlane& plane, int64_t min_row_bytes) {
  if (plane.data == nullptr) {
    return InvalidArgument("{} matrix without {}: the plane has no address; supply the tensor", name, what);
  }
  if (plane.row_bytes < min_row_bytes || plane.row_bytes > kMaxExtent * 8) {
    return InvalidArgument("{} matrix with {} bytes per row of {}: a row takes {}; check the tensor's shape", name,
                           plane.row_bytes, what, min_row_bytes);
  }
  return Status();
}

MatrixSpec SpecOf(const QuantView& view) {
  return {view.format,      view.rows,  view.cols,
          view.scale_type,  view.group, view.planes[kZeroPointsPlane].data != nullptr,
          view.global_scale};
}

struct PlaneSizes {
  int64_t codes_row = 0, codes = 0, scales_row = 0, zeros_row = 0;
};

PlaneSizes SizesOf(const MatrixSpec& spec) {
  PlaneSizes s;
  const FormatTraits& t = Traits(spec.format);
  if (!t.planar) {
    s.codes_row = spec.cols / t.block_elems * t.block_bytes;
    s.codes = s.codes_row * spec.rows;
    return s;
  }
  const PlanarTraits& p = Planar(spec.format);
  const int64_t groups = CeilDiv(spec.cols, spec.group);
  s.codes_row = CodeRowBytes(p, spec.rows, spec.cols);
  s.codes = CodeBytes(p, spec.rows, spec.cols);
  s.scales_row = groups * ScaleBytes(spec.scale_type);
  if (spec.zero_points) s.zeros_row = PackedRowBytes(p.bits, groups);
  return s;
}

uint64_t Padded(int64_t bytes) { return RoundUp(static_cast<uint64_t>(bytes), kPlaneAlignment); }

// ---- Scale tables --------------------------------------------------------------------------------------------------

constexpr std::array<float, 256> MakeE8m0() {
  std::array<float, 256> table{};
  for (uint32_t b = 0; b < 255; ++b) table[b] = std::bit_cast<float>(b == 0 ? 0x00400000u : b << 23);
  table[255] = std::numeric_limits<float>::quiet_NaN();
  return table;
}

constexpr std::array<float, 256> MakeE4m3() {
  std::array<float, 256> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    const uint32_t exponent = b >> 3 & 15, mantissa = b & 7;
    float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                    : std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
    if ((b & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
    table[b] = (b & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}

}  // namespace

constexpr std::array<float, 256> kE8m0 = MakeE8m0();
constexpr std::array<float, 256> kE4m3 = MakeE4m3();
constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

const PlanarTraits& Planar(WeightFormat format) {
  assert(Traits(format).planar);
  return kPlanar[static_cast<size_t>(format) - static_cast<size_t>(WeightFormat::kInt4)];
}

int64_t ScaleBytes(ScaleType type) {
  switch (type) {
    case ScaleType::kNone: return 0;
    case ScaleType::kF16:
    case ScaleType::kBF16: return 2;
    case ScaleType::kF32: return 4;
    case ScaleType::kE8M0:
    case ScaleType::kE4M3: return 1;
  }
  return 0;
}

float ScaleValue(ScaleType type, const std::byte* row, int64_t index) {
  const std::byte* p = row + index * ScaleBytes(type);
  switch (type) {
    case ScaleType::kNone: return 1;
    case ScaleType::kF16: return LoadHalf(p);
    case ScaleType::kBF16: return Bf16ToF32(Load<uint16_t>(p));
    case ScaleType::kF32: return Load<float>(p);
    case ScaleType::kE8M0: return kE8m0[static_cast<uint8_t>(*p)];
    case ScaleType::kE4M3: return kE4m3[static_cast<uint8_t>(*p)];
  }
  return 1;
}

Status CheckSpec(const MatrixSpec& spec) {
  const FormatTraits& t = Traits(spec.format);
  if (!t.weights) {
    return InvalidArgument("format {} holds no weights of a matrix product; convert the tensor", t.name);
  }
  BELLHOP_TRY(CheckExtents(t.name, spec.rows, spec.cols));
  if (t.planar) return CheckPlanar(spec);
  return RowBytes(spec.format, static_cast<uint64_t>(spec.cols)).status();
}

uint64_t MatrixBytes(const MatrixSpec& spec) {
  const PlaneSizes s = SizesOf(spec);
  if (!Traits(spec.format).planar) return static_cast<uint64_t>(s.codes);
  return Padded(s.codes) + Padded(s.scales_row * spec.rows) + Padded(s.zeros_row * spec.rows);
}

QuantView PlaceMatrix(const MatrixSpec& spec, const std::byte* memory) {
  const PlaneSizes s = SizesOf(spec);
  QuantView view;
  view.format = spec.format;
  view.rows = spec.rows;
  view.cols = spec.cols;
  view.planes[kCodesPlane] = {memory, s.codes_row};
  if (!Traits(spec.format).planar) return view;
  view.scale_type = spec.scale_type;
  view.group = spec.group;
  view.global_scale = spec.global_scale;
  const std::byte* scales = memory + Padded(s.codes);
  view.planes[kScalesPlane] = {scales, s.scales_row};
  if (spec.zero_points) view.planes[kZeroPointsPlane] = {scales + Padded(s.scales_row * spec.rows), s.zeros_row};
  return view;
}

Status CheckView(const QuantView& view) {
  const MatrixSpec spec = SpecOf(view);
  BELLHOP_TRY(CheckSpec(spec));
  const std::string_view name = Traits(view.format).name;
  const PlaneSizes s = SizesOf(spec);
  BELLHOP_TRY(CheckPlane(name, "codes", view.planes[kCodesPlane], s.codes_row));
  if (!Traits(view.format).planar) return Status();
  if (view.first_group < 0 || view.first_group > kMaxExtent) {
    return InvalidArgument("{} matrix whose first scale has index {}; a slice begins within its matrix", name,
                           view.first_group);
  }
  const int64_t groups = view.first_group + GroupCount(view);
  BELLHOP_TRY(CheckPlane(name, "scales", view.planes[kScalesPlane], groups * ScaleBytes(view.scale_type)));
  if (!spec.zero_points) return Status();
  return CheckPlane(name, "zero points", view.planes[kZeroPointsPlane],
                    PackedRowBytes(Planar(view.format).bits, groups));
}

uint64_t ViewBytes(const QuantView& view) {
  const PlaneSizes s = SizesOf(SpecOf(view));
  return static_cast<uint64_t>(s.codes + (s.scales_row + s.zeros_row) * view.rows);
}

int64_t GroupCount(const QuantView& view) { return CeilDiv(view.cols, view.group); }

int64_t RowGranularity(const QuantView& view) { return Traits(view.format).planar ? Planar(view.format).row_unit : 1; }

int64_t ColumnGranularity(const QuantView& view) {
  const FormatTraits& t = Traits(view.format);
  if (!t.planar) return t.block_elems;
  const int64_t unit = Planar(view.format).col_unit;
  // Columns of one scale group may be cut anywhere that is addressable; 64 columns are whole vectors of any kernel.
  return view.group >= view.cols ? 64 : std::lcm(unit, static_cast<int64_t>(view.group));
}

QuantView RowSlice(const QuantView& view, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end && end <= view.rows && begin % RowGranularity(view) == 0);
  assert(end == view.rows || end % RowGranularity(view) == 0);
  QuantView slice = view;
  slice.rows = end - begin;
  if (!Traits(view.format).planar) {
    slice.planes[kCodesPlane].data += begin * view.planes[kCodesPlane].row_bytes;
    return slice;
  }
  const int64_t code_bytes = Planar(view.format).k_major ? begin / 2 : begin * view.planes[kCodesPlane].row_bytes;
  slice.planes[kCodesPlane].data += code_bytes;
  for (const int plane : {kScalesPlane, kZeroPointsPlane}) {
    if (view.planes[plane].data != nullptr) slice.planes[plane].data += begin * view.planes[plane].row_bytes;
  }
  return slice;
}

QuantView ColumnSlice(const QuantView& view, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end && end <= view.cols && begin % ColumnGranularity(view) == 0);
  assert(end == view.cols || end % ColumnGranularity(view) == 0);
  QuantView slice = view;
  slice.cols = end - begin;
  const FormatTraits& t = Traits(view.format);
  QuantPlane& codes = slice.planes[kCodesPlane];
  if (!t.planar) {
    codes.data += begin / t.block_elems * t.block_bytes;
    return slice;
  }
  const PlanarTraits& p = Planar(view.format);
  if (p.k_major) {
    codes.data += begin * codes.row_bytes;
  } else if (p.row_unit > 1) {
    codes.data += begin / kSm80TileCols * kSm80TileBytes;
  } else {
    codes.data += begin * p.bits / 8;
  }
  slice.first_group += begin / view.group;
  return slice;
}

uint32_t PlanarCode(const QuantView& view, int64_t row, int64_t col) {
  const QuantPlane& codes = view.planes[kCodesPlane];
  return LoadCode(codes.data, Planar(view.format).bits, LocateCode(view.format, codes.row_bytes, row, col));
}

float PlanarScale(const QuantView& view, int64_t row, int64_t group) {
  const QuantPlane& scales = view.planes[kScalesPlane];
  return ScaleValue(view.scale_type, scales.data + row * scales.row_bytes, view.first_group + group);
}

int PlanarZeroPoint(const QuantView& view, int64_t row, int64_t group) {
  const PlanarTraits& p = Planar(view.format);
  const QuantPlane& zeros = view.planes[kZeroPointsPlane];
  if (zeros.data == nullptr) return p.zero_point;
  return static_cast<int>(
      LoadCode(zeros.data + row * zeros.row_bytes, p.bits, PackedPlace(p.bits, view.first_group + group)));
}

float PlanarCodeValue(WeightFormat format, uint32_t code) {
  const PlanarTraits& p = Planar(format);
  return p.fp4 ? kE2m1[code] : static_cast<float>(static_cast<int>(code) - p.zero_point);
}

void DecodePlanarSlice(const QuantView& view, int64_t row, int64_t begin, int64_t count, float* dst) {
  const PlanarTraits& p = Planar(view.format);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = (begin + i) / view.group;
    const uint32_t code = PlanarCode(view, row, begin + i);
    const float value =
        p.fp4 ? kE2m1[code] : static_cast<float>(static_cast<int>(code) - PlanarZeroPoint(view, row, group));
    dst[i] = value * PlanarScale(view, row, group);
  }
}

void DecodeRow(const QuantView& view, int64_t row, float* dst) {
  if (!Traits(view.format).planar) {
    DecodeRow(view.format, view.Row(row), view.cols, dst);
    return;
  }
  DecodePlanarSlice(view, row, 0, view.cols, dst);
  for (int64_t i = 0; i < view.cols; ++i) dst[i] *= view.global_scale;
}

}  // namespace bellhop::quant
