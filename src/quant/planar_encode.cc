#include "quant/planar_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "quant/packed.h"
#include "quant/planar_layout.h"

namespace bellhop::quant {
namespace {

// The planes of a view that is being written.
std::byte* Writable(const QuantView& view, int plane) { return const_cast<std::byte*>(view.planes[plane].data); }

uint8_t NearestE4m3(float value) {
  const float magnitude = std::fabs(value);
  int best = 0;
  for (int b = 1; b < 0x7F; ++b) {
    if (std::fabs(kE4m3[static_cast<size_t>(b)] - magnitude) <
        std::fabs(kE4m3[static_cast<size_t>(best)] - magnitude)) {
      best = b;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

uint8_t NearestE2m1(float value) {
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    if (std::fabs(kE2m1[code] - value) < std::fabs(kE2m1[best] - value)) best = code;
  }
  return static_cast<uint8_t>(best);
}

struct Extremes {
  float min = 0, max = 0;  // zero is always inside
};
Extremes Find(const float* values, int64_t n) {
  Extremes e;
  for (int64_t i = 0; i < n; ++i) {
    e.min = std::min(e.min, values[i]);
    e.max = std::max(e.max, values[i]);
  }
  return e;
}

// Scale before rounding to its type, and the zero point.
struct GroupScale {
  float scale;
  int zero_point;
};

GroupScale ChooseScale(const PlanarTraits& p, bool zero_points, Extremes e) {
  const int top = (1 << p.bits) - 1;
  const float amax = std::max(-e.min, e.max);
  if (p.fp4) return {p.fp4_group == 32 ? std::ldexp(1.0f, amax > 0 ? std::ilogb(amax) - 2 : -127) : amax / 6, 0};
  if (!zero_points) {
    return {std::max(-e.min / static_cast<float>(p.zero_point), e.max / static_cast<float>(top - p.zero_point)),
            p.zero_point};
  }
  const float scale = (e.max - e.min) / static_cast<float>(top);
  if (!(scale > 0)) return {0, p.zero_point};
  return {scale, std::clamp(static_cast<int>(std::nearbyint(-e.min / scale)), 0, top)};
}

uint8_t NearestCode(const PlanarTraits& p, float value, float scale, int zero_point) {
  if (p.fp4) return scale > 0 ? NearestE2m1(value / scale) : uint8_t{0};
  if (scale == 0) return static_cast<uint8_t>(zero_point);
  const float q = std::nearbyint(value / scale) + static_cast<float>(zero_point);
  return static_cast<uint8_t>(std::clamp(q, 0.0f, static_cast<float>((1 << p.bits) - 1)));
}

}  // namespace

void PackCodes(WeightFormat format, int64_t rows, int64_t cols, const uint8_t* codes, std::byte* dst) {
  const PlanarTraits& p = Planar(format);
  const int64_t row_bytes = p.k_major ? rows / 2 : PackedRowBytes(p.bits, cols);
  std::memset(dst, 0, static_cast<size_t>(row_bytes * (p.k_major ? cols : rows)));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) AddCode(dst, p.bits, LocateCode(format, row_bytes, r, c), codes[r * cols + c]);
  }
}

void PackZeroPoints(WeightFormat format, int64_t rows, int64_t groups, const uint8_t* zero_points, std::byte* dst) {
  const int bits = Planar(format).bits;
  const int64_t row_bytes = PackedRowBytes(bits, groups);
  std::memset(dst, 0, static_cast<size_t>(row_bytes * rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      AddCode(dst + r * row_bytes, bits, PackedPlace(bits, g), zero_points[r * groups + g]);
    }
  }
}

void StoreScale(ScaleType type, float value, std::byte* row, int64_t index) {
  std::byte* p = row + index * ScaleBytes(type);
  switch (type) {
    case ScaleType::kNone: break;
    case ScaleType::kF16: StoreHalf(p, value); break;
    case ScaleType::kBF16: Store(p, F32ToBf16(value)); break;
    case ScaleType::kF32: Store(p, value); break;
    case ScaleType::kE8M0:
      *p = static_cast<std::byte>(value > 0 ? std::clamp(std::ilogb(value) + 127, 0, 254) : 0);
      break;
    case ScaleType::kE4M3: *p = static_cast<std::byte>(NearestE4m3(value)); break;
  }
}

Result<QuantView> EncodeMatrix(const MatrixSpec& spec, const float* values, HostSpan<std::byte> memory) {
  const FormatTraits& traits = Traits(spec.format);
  if (!traits.planar) return InvalidArgument("{} is no planar format; use EncodeRow", traits.name);
  BELLHOP_TRY(CheckSpec(spec));
  if (memory.size() < MatrixBytes(spec)) {
    return InvalidArgument("{} matrix of {} bytes does not fit in {}; pass more memory", traits.name, MatrixBytes(spec),
                           memory.size());
  }
  for (int64_t i = 0; i < spec.rows * spec.cols; ++i) {
    if (std::isfinite(values[i])) continue;
    return InvalidArgument("row {} column {} is {}; {} holds finite numbers only: repair the source", i / spec.cols,
                           i % spec.cols, values[i], traits.name);
  }
  const PlanarTraits& p = Planar(spec.format);
  const QuantView view = PlaceMatrix(spec, memory.data());
  const int64_t groups = GroupCount(view);
  std::vector<uint8_t> codes(static_cast<size_t>(spec.rows * spec.cols));
  std::vector<uint8_t> zero_points(static_cast<size_t>(spec.rows * groups));
  std::vector<float> scaled(static_cast<size_t>(spec.group < spec.cols ? spec.group : spec.cols));
  for (int64_t r = 0; r < spec.rows; ++r) {
    std::byte* scales = Writable(view, kScalesPlane) + r * view.planes[kScalesPlane].row_bytes;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * spec.group, n = std::min<int64_t>(spec.group, spec.cols - begin);
      for (int64_t i = 0; i < n; ++i)
        scaled[static_cast<size_t>(i)] = values[r * spec.cols + begin + i] / spec.global_scale;
      const GroupScale chosen = ChooseScale(p, spec.zero_points, Find(scaled.data(), n));
      StoreScale(spec.scale_type, chosen.scale, scales, g);
      const float scale = ScaleValue(spec.scale_type, scales, g);
      zero_points[static_cast<size_t>(r * groups + g)] = static_cast<uint8_t>(chosen.zero_point);
      for (int64_t i = 0; i < n; ++i) {
        codes[static_cast<size_t>(r * spec.cols + begin + i)] =
            NearestCode(p, scaled[static_cast<size_t>(i)], scale, chosen.zero_point);
      }
    }
  }
  PackCodes(spec.format, spec.rows, spec.cols, codes.data(), Writable(view, kCodesPlane));
  if (spec.zero_points) {
    PackZeroPoints(spec.format, spec.rows, groups, zero_points.data(), Writable(view, kZeroPointsPlane));
  }
  return view;
}

}  // namespace bellhop::quant
