// Kernels of the planar formats against the reference and against arithmetic in double precision.
#include "quant/planar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/amx/planar_fill.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/random_weights.h"

namespace bellhop::kernels {
namespace {

using quant::MatrixSpec;
using quant::PlanarTraits;
using quant::QuantView;
using quant::RandomScales;
using quant::ScaleType;
using quant::WeightFormat;
using sys::Isa;

constexpr float kPoison = -12345.5f;
constexpr int kShapes = 48;

sys::CpuCaps CapsOf(Isa isa) {
  sys::CpuCaps caps;
  caps.isa = isa;
  return caps;
}

std::vector<DotKernel> PlanarDots() {
  std::vector<DotKernel> kernels;
  for (const DotKernel& kernel : AllDotKernels()) {
    if (quant::Traits(kernel.format).planar) kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<RowDecodeKernel> PlanarDecoders() {
  std::vector<RowDecodeKernel> kernels;
  for (const RowDecodeKernel& kernel : AllRowDecodeKernels()) {
    if (quant::Traits(kernel.format).planar) kernels.push_back(kernel);
  }
  return kernels;
}

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }
bool SameResult(float a, float b) { return Bits(a) == Bits(b) || (std::isnan(a) && std::isnan(b)); }

#define SKIP_WITHOUT(kernel_isa)                                                                    \
  if ((kernel_isa) > sys::DetectCpu().isa) {                                                        \
    GTEST_SKIP() << "this CPU lacks " << sys::IsaName(kernel_isa) << "; the kernel was not tested"; \
  }

// ---- Selection -----------------------------------------------------------------------------------------------------

TEST(PlanarSelection, EveryFormatHasBothKernelsOnEveryIsa) {
  size_t formats = 0;
  for (const quant::FormatTraits& t : quant::AllFormats()) {
    if (!t.planar) continue;
    ++formats;
    for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512}) {
      const DotKernel* dot = SelectDot(t.format, CapsOf(isa));
      ASSERT_NE(dot, nullptr) << t.name;
      EXPECT_EQ(dot->format, t.format) << dot->name;
      EXPECT_EQ(dot->isa, isa) << dot->name;
      const RowDecodeKernel* decode = SelectRowDecode(t.format, CapsOf(isa));
      ASSERT_NE(decode, nullptr) << t.name;
      EXPECT_EQ(decode->isa, isa) << decode->name;
      EXPECT_EQ(decode->fn, nullptr) << decode->name;
      EXPECT_NE(decode->slice, nullptr) << decode->name;
    }
  }
  EXPECT_EQ(PlanarDots().size(), 3 * formats);
  EXPECT_EQ(PlanarDecoders().size(), 3 * formats);
}

TEST(PlanarSelection, NamesAreUniqueAndCarryTheIsa) {
  std::set<std::string> names;
  for (const DotKernel& kernel : PlanarDots()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    const std::string suffix = kernel.isa == Isa::kReference ? "_ref" : "_" + std::string(sys::IsaName(kernel.isa));
    EXPECT_TRUE(std::string(kernel.name).ends_with(suffix)) << kernel.name;
  }
  for (const RowDecodeKernel& kernel : PlanarDecoders()) EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
}

// ---- Problems: every plane in a buffer of its own that ends with the last row, at an odd address -------------------

struct Shape {
  MatrixSpec spec;
  int64_t x_rows;
  RowRange range;
  int64_t padding;  // bytes between rows of each plane
  std::string Name() const {
    return fmt::format("{} rows, {} columns, group {}, scale type {}, zero points {}, {} x rows, range [{}, {})",
                       spec.rows, spec.cols, spec.group, static_cast<int>(spec.scale_type), spec.zero_points, x_rows,
                       range.begin, range.end);
  }
};

class Matrix {
 public:
  Matrix(const MatrixSpec& spec, RandomScales scales, uint64_t seed, int64_t padding) {
    const quant::OwnedMatrix made = quant::RandomMatrix(spec, seed, scales);
    view_ = made.view;
    const PlanarTraits& p = quant::Planar(spec.format);
    for (const int plane : {quant::kCodesPlane, quant::kScalesPlane, quant::kZeroPointsPlane}) {
      const quant::QuantPlane& from = made.view.planes[plane];
      if (from.data == nullptr) continue;
      // SM80 tiles stay together: their padding is a multiple of a tile's rows.
      const int64_t unit = plane == quant::kCodesPlane && !p.k_major ? p.row_unit : 1;
      const int64_t rows = plane == quant::kCodesPlane && p.k_major ? spec.cols : spec.rows;
      const int64_t tile = from.row_bytes * unit, stride = tile + padding * unit;
      std::vector<std::byte>& bytes = planes_[plane];
      bytes.assign(static_cast<size_t>(kShift + stride * (rows / unit - 1) + tile), std::byte{0xFF});
      bytes.shrink_to_fit();
      for (int64_t r = 0; r < rows / unit; ++r) {
        std::memcpy(bytes.data() + kShift + r * stride, from.data + r * tile, static_cast<size_t>(tile));
      }
      view_.planes[plane] = {bytes.data() + kShift, stride / unit};
    }
  }
  Matrix(const Matrix&) = delete;
  const QuantView& view() const { return view_; }

 private:
  static constexpr int64_t kShift = 1;
  std::vector<std::byte> planes_[quant::kMaxPlanes];
  QuantView view_;
};

class Activations {
 public:
  Activations(int64_t rows, int64_t cols, std::mt19937_64& random) : rows_(rows), cols_(cols), stride_(cols + 3) {
    data_.assign(static_cast<size_t>(stride_ * (rows - 1) + cols), std::numeric_limits<float>::quiet_NaN());
    data_.shrink_to_fit();
    std::normal_distribution<float> normal;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < cols; ++i) {
        const uint64_t kind = random() % 64;
        data_[static_cast<size_t>(m * stride_ + i)] = kind == 0 ? -0.0f : kind == 1 ? 0.0f : normal(random);
      }
    }
  }
  MatView<const float> View(int64_t first_col, int64_t cols) const {
    return {data_.data() + first_col, rows_, cols, stride_};
  }
  MatView<const float> View() const { return View(0, cols_); }

 private:
  int64_t rows_, cols_, stride_;
  std::vector<float> data_;
};

std::vector<float> RunDot(DotFn fn, const QuantView& weights, MatView<const float> x, RowRange range) {
  const int64_t stride = weights.rows + 2;
  std::vector<float> y(static_cast<size_t>(stride * x.rows), kPoison);
  fn({.weights = weights, .x = x, .y = {y.data(), x.rows, weights.rows, stride}, .range = range});
  return y;
}

int64_t Pick(std::mt19937_64& random, const std::vector<int64_t>& from) { return from[random() % from.size()]; }

MatrixSpec RandomSpec(WeightFormat format, int64_t i, std::mt19937_64& random) {
  const PlanarTraits& p = quant::Planar(format);
  const bool sm80 = p.row_unit > 1 && !p.k_major;
  MatrixSpec spec = {.format = format, .rows = 1 + static_cast<int64_t>(random() % 13)};
  spec.rows = (spec.rows + p.row_unit - 1) / p.row_unit * p.row_unit;
  if (p.k_major && i % 3 == 0) spec.rows += 32;  // more than one transposed block
  // Below one vector; whole loads; tails of every kind; more than one piece of 2048 columns.
  spec.cols = sm80 ? 64 * Pick(random, {1, 2, 3, 5, 8, 33, 40})
                   : Pick(random, {1,  3,   15,  16,  17,  31,  32,  33,   48,   63,   64,   80,
                                   96, 100, 129, 200, 256, 333, 640, 1000, 2048, 2049, 2880, 4100});
  if (p.fp4) {
    spec.group = p.fp4_group;
    spec.scale_type = p.fp4_group == 32 ? ScaleType::kE8M0 : ScaleType::kE4M3;
  } else {
    // The last one: one scale per row.
    spec.group = static_cast<int32_t>(Pick(random, {16, 32, 64, 128, 192, 2560, spec.cols}));
    spec.scale_type = std::vector{ScaleType::kF16, ScaleType::kBF16, ScaleType::kF32}[static_cast<size_t>(i % 3)];
    spec.zero_points = i % 2 == 1;
  }
  spec.global_scale = i % 4 == 0 ? 0.3f : 1.0f;
  return spec;
}

std::vector<Shape> RandomShapes(WeightFormat format, std::mt19937_64& random) {
  const int64_t x_rows[] = {1, 2, 3, 4, 5, 6, 7, 32, 9, 8, 33, 1, 1, 2, 4, 16};
  std::vector<Shape> shapes;
  for (int i = 0; i < kShapes; ++i) {
    Shape s;
    s.spec = RandomSpec(format, i, random);
    s.x_rows = s.spec.cols > 1000 ? 1 + i % 5 : x_rows[i % 16];
    s.range.begin = static_cast<int64_t>(random() % static_cast<uint64_t>(s.spec.rows));
    s.range.end =
        s.range.begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(s.spec.rows - s.range.begin));
    if (i % 3 == 0) s.range = {0, s.spec.rows};
    s.padding = i % 4 == 3 ? 5 : 0;
    shapes.push_back(s);
  }
  return shapes;
}

void ExpectSameAndOnlyTheRange(const std::vector<float>& got, const std::vector<float>& want, const Shape& shape) {
  ASSERT_EQ(got.size(), want.size());
  const int64_t stride = shape.spec.rows + 2;
  for (int64_t m = 0; m < shape.x_rows; ++m) {
    for (int64_t r = 0; r < stride; ++r) {
      const auto i = static_cast<size_t>(m * stride + r);
      ASSERT_TRUE(SameResult(got[i], want[i]))
          << shape.Name() << ", x row " << m << " weight row " << r << ": " << got[i] << " instead of " << want[i];
      const bool inside = r >= shape.range.begin && r < shape.range.end;
      ASSERT_EQ(Bits(got[i]) == Bits(kPoison), !inside) << shape.Name() << ", x row " << m << " weight row " << r;
    }
  }
}

class PlanarDotConformance : public ::testing::TestWithParam<DotKernel> {};

TEST_P(PlanarDotConformance, EqualsTheReferenceBitForBit) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const DotFn reference = SelectDot(kernel.format, CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 1);
  size_t i = 0, non_zero = 0;
  for (const Shape& shape : RandomShapes(kernel.format, random)) {
    // Arbitrary scale bytes too: infinite, NaN, subnormal and negative ones.
    const RandomScales scales = i++ % 3 == 2 ? RandomScales::kAnyBits : RandomScales::kModerate;
    const Matrix matrix(shape.spec, scales, random(), shape.padding);
    ASSERT_TRUE(quant::CheckView(matrix.view()).ok()) << quant::CheckView(matrix.view()).ToString();
    const Activations x(shape.x_rows, shape.spec.cols, random);
    const std::vector<float> want = RunDot(reference, matrix.view(), x.View(), shape.range);
    const std::vector<float> got = RunDot(kernel.fn, matrix.view(), x.View(), shape.range);
    ExpectSameAndOnlyTheRange(got, want, shape);
    for (const float y : got) non_zero += y != 0 && Bits(y) != Bits(kPoison);
  }
  EXPECT_GT(non_zero, 1000u);
}

TEST_P(PlanarDotConformance, ColumnAndRowSlicesEqualTheReference) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const DotFn reference = SelectDot(kernel.format, CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 100);
  size_t slices = 0;
  for (int i = 0; i < kShapes; ++i) {
    const MatrixSpec spec = RandomSpec(kernel.format, i, random);
    const Matrix matrix(spec, RandomScales::kModerate, random(), i % 2 == 0 ? 0 : 3);
    const Activations x(1 + i % 6, spec.cols, random);
    const int64_t col_step = quant::ColumnGranularity(matrix.view()), row_step = quant::RowGranularity(matrix.view());
    const int64_t cuts = (spec.cols + col_step - 1) / col_step;
    for (const int64_t cut : {int64_t{0}, cuts / 2, cuts - 1}) {
      const int64_t begin = cut * col_step, end = i % 2 == 0 ? spec.cols : std::min(spec.cols, begin + 3 * col_step);
      const int64_t row = static_cast<int64_t>(random() % static_cast<uint64_t>(spec.rows)) / row_step * row_step;
      const QuantView slice = quant::RowSlice(quant::ColumnSlice(matrix.view(), begin, end), row, spec.rows);
      const Shape shape = {
          {.rows = slice.rows, .cols = slice.cols, .group = slice.group}, 1 + i % 6, {0, slice.rows}, 0};
      const MatView<const float> part = x.View(begin, end - begin);
      ExpectSameAndOnlyTheRange(RunDot(kernel.fn, slice, part, shape.range),
                                RunDot(reference, slice, part, shape.range), shape);
      ++slices;
    }
  }
  EXPECT_GE(slices, 120u);
}

TEST_P(PlanarDotConformance, ARowsResultDependsOnThatRowAlone) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(77);
  const PlanarTraits& p = quant::Planar(kernel.format);
  for (int i = 0; i < 2; ++i) {
    MatrixSpec spec = RandomSpec(kernel.format, i, random);
    spec.rows = 8;
    spec.cols = 192;
    spec.group = p.fp4 ? p.fp4_group : 64;
    const Matrix matrix(spec, RandomScales::kModerate, 5, 0);
    const Activations x(13, spec.cols, random);
    const std::vector<float> all = RunDot(kernel.fn, matrix.view(), x.View(), {0, 8});
    for (int64_t m = 0; m < 13; ++m) {
      MatView<const float> one_row = x.View();
      one_row.data = one_row.Row(m);
      one_row.rows = 1;
      for (int64_t r = 0; r < 8; ++r) {
        const std::vector<float> one = RunDot(kernel.fn, matrix.view(), one_row, {r, r + 1});
        EXPECT_EQ(Bits(one[static_cast<size_t>(r)]), Bits(all[static_cast<size_t>(m * 10 + r)])) << m << " " << r;
      }
    }
  }
}

TEST_P(PlanarDotConformance, EmptyRangeAndNoRowsWriteNothing) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(5);
  MatrixSpec spec = RandomSpec(kernel.format, 0, random);
  spec.rows = 4;
  spec.cols = 64;
  spec.group = quant::Planar(kernel.format).fp4 ? spec.group : 32;
  const Matrix matrix(spec, RandomScales::kModerate, 5, 0);
  const Activations x(2, spec.cols, random);
  for (const float y : RunDot(kernel.fn, matrix.view(), x.View(), {1, 1})) EXPECT_EQ(Bits(y), Bits(kPoison));
  MatView<const float> none = x.View();
  none.rows = 0;
  EXPECT_TRUE(RunDot(kernel.fn, matrix.view(), none, {0, 4}).empty());
}

// Every term passes at most n roundings: those of its lane's products, three of its weight and bias, four of the final
// tree, one of the global scale, and three in DecodeRow's value. The bound is n * 2^-24 * sum of |term|; with zero
// points a term is a product and a bias.
TEST_P(PlanarDotConformance, IsCloseToTheExactSumOfDecodedValues) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 200);
  for (const Shape& shape : RandomShapes(kernel.format, random)) {
    const Matrix matrix(shape.spec, RandomScales::kModerate, random(), 0);
    const QuantView& w = matrix.view();
    const Activations x(2, shape.spec.cols, random);
    const std::vector<float> y = RunDot(kernel.fn, w, x.View(), {0, w.rows});
    const double roundings = static_cast<double>(w.cols) / 16 + 1 + 11;
    std::vector<float> row(static_cast<size_t>(w.cols));
    double largest = 0;
    for (int64_t r = 0; r < w.rows; ++r) {
      quant::DecodeRow(w, r, row.data());
      for (int64_t m = 0; m < 2; ++m) {
        double exact = 0, terms = 0;
        for (int64_t e = 0; e < w.cols; ++e) {
          const double xe = x.View().Row(m)[e];
          exact += static_cast<double>(row[static_cast<size_t>(e)]) * xe;
          const double scale = static_cast<double>(quant::PlanarScale(w, r, e / w.group)) * w.global_scale;
          const double code = quant::PlanarCodeValue(w.format, quant::PlanarCode(w, r, e));
          terms += std::abs(code * scale * xe);
          if (shape.spec.zero_points) {
            const int shift = quant::Planar(w.format).zero_point - quant::PlanarZeroPoint(w, r, e / w.group);
            terms += std::abs(shift * scale * xe);
          }
        }
        const double got = y[static_cast<size_t>(m * (w.rows + 2) + r)];
        ASSERT_LE(std::abs(got - exact), roundings * 0x1p-24 * terms) << shape.Name() << " row " << r;
        largest = std::max(largest, std::abs(got));
      }
    }
    // Scales of the wrong type would give numbers of 1e-16 or none at all.
    if (w.cols >= 15) {
      EXPECT_GT(largest, 1e-3) << shape.Name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, PlanarDotConformance, ::testing::ValuesIn(PlanarDots()),
                         [](const auto& test) { return std::string(test.param.name); });

// K-major bytes hold the same matrix as row-major ones: the same bits must come out.
TEST(PlanarDot, KMajorEqualsRowMajor) {
  std::mt19937_64 random(3);
  for (const auto& [row_major, k_major] : {std::pair(WeightFormat::kMxfp4Planar, WeightFormat::kMxfp4KMajor),
                                           std::pair(WeightFormat::kNvfp4Planar, WeightFormat::kNvfp4KMajor)}) {
    for (const int64_t cols : {1, 33, 100, 1024, 2080}) {
      MatrixSpec spec = RandomSpec(row_major, 0, random);
      spec.rows = 70;
      spec.cols = cols;
      const quant::OwnedMatrix a = quant::RandomMatrix(spec, 1);
      std::vector<std::byte> transposed(static_cast<size_t>(35 * cols));
      for (int64_t r = 0; r < 70; ++r) {
        for (int64_t k = 0; k < cols; ++k) {
          transposed[static_cast<size_t>(k * 35 + r / 2)] |=
              static_cast<std::byte>(quant::PlanarCode(a.view, r, k) << (4 * (r % 2)));
        }
      }
      QuantView b = a.view;
      b.format = k_major;
      b.planes[quant::kCodesPlane] = {transposed.data(), 35};
      const Activations x(3, cols, random);
      for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512}) {
        if (isa > sys::DetectCpu().isa) continue;
        EXPECT_EQ(RunDot(SelectDot(row_major, CapsOf(isa))->fn, a.view, x.View(), {3, 69}),
                  RunDot(SelectDot(k_major, CapsOf(isa))->fn, b, x.View(), {3, 69}))
            << sys::IsaName(isa) << " " << cols;
      }
    }
  }
}

// ---- Row decoders --------------------------------------------------------------------------------------------------

class PlanarDecodeConformance : public ::testing::TestWithParam<RowDecodeKernel> {};

TEST_P(PlanarDecodeConformance, EqualsTheScalarDecoderOnAnySlice) {
  const RowDecodeKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 300);
  size_t non_zero = 0;
  for (int i = 0; i < kShapes; ++i) {
    const MatrixSpec spec = RandomSpec(kernel.format, i, random);
    const RandomScales scales = i % 3 == 2 ? RandomScales::kAnyBits : RandomScales::kModerate;
    const Matrix matrix(spec, scales, random(), i % 2 == 0 ? 0 : 3);
    QuantView w = matrix.view();
    if (i % 4 == 1) {  // a column slice as well
      const int64_t step = quant::ColumnGranularity(w);
      w = quant::ColumnSlice(w, (w.cols - 1) / step / 2 * step, w.cols);
    }
    const int64_t row = static_cast<int64_t>(random() % static_cast<uint64_t>(w.rows));
    for (const int64_t begin : {int64_t{0}, (w.cols - 1) / 256 * 128, (w.cols - 1) / 128 * 128}) {
      for (const int64_t count : {w.cols - begin, std::min(w.cols - begin, int64_t{128})}) {
        std::vector<float> want(static_cast<size_t>(count)), got(static_cast<size_t>(count) + 16, kPoison);
        quant::DecodePlanarSlice(w, row, begin, count, want.data());
        kernel.slice(w, row, begin, count, got.data());
        for (size_t e = 0; e < want.size(); ++e) {
          ASSERT_TRUE(SameResult(got[e], want[e]))
              << i << ": column " << begin << " + " << e << " of " << w.cols << ", group " << w.group << ": " << got[e]
              << " instead of " << want[e];
          non_zero += got[e] != 0;
        }
        for (size_t e = want.size(); e < got.size(); ++e) ASSERT_EQ(Bits(got[e]), Bits(kPoison)) << i;
      }
    }
  }
  EXPECT_GT(non_zero, 1000u);
}

// ---- Tiles of the AMX product ---------------------------------------------------------------------------------------

// Rounding of gemm.h: to nearest even, binary32 denormals to zeros of their sign.
uint16_t RoundedBf16(float value) {
  const uint32_t bits = Bits(value);
  if ((bits & 0x7F800000u) == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000u);
  return quant::F32ToBf16(value);
}
bool SameBf16(uint16_t a, uint16_t b) {
  const auto is_nan = [](uint16_t v) { return (v & 0x7FFF) > 0x7F80; };
  return a == b || (is_nan(a) && is_nan(b));
}

TEST(PlanarFill, AmxTilesHoldTheRoundedValuesAndNothingElseIsWritten) {
  SKIP_WITHOUT(Isa::kAmx);
  constexpr uint16_t kUntouched = 0xEEEE;
  size_t values = 0, non_zero = 0;
  for (const RowDecodeKernel& kernel : PlanarDecoders()) {
    if (kernel.isa != Isa::kReference) continue;  // once per format
    std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 400);
    for (int i = 0; i < kShapes; ++i) {
      MatrixSpec spec = RandomSpec(kernel.format, i, random);
      spec.rows = 40;
      const RandomScales scales = i % 3 == 2 ? RandomScales::kAnyBits : RandomScales::kModerate;
      const Matrix matrix(spec, scales, random(), i % 2 == 0 ? 0 : 3);
      const auto begin = static_cast<int64_t>(random() % 9);
      const auto count = 1 + static_cast<int64_t>(random() % 32);
      const int64_t first = count < 20 ? static_cast<int64_t>(random() % 12) : 0;
      const int64_t groups = (spec.cols + 31) / 32;
      // [row block of 16][group of 32 columns][16 rows][32]
      struct alignas(64) Line {
        uint16_t values[32];
      };
      std::vector<Line> tile(static_cast<size_t>(2 * groups * 16));
      std::memset(static_cast<void*>(tile.data()), 0xEE, tile.size() * sizeof(Line));
      amx::FillPlanarTile({.weights = &matrix.view(),
                           .rows = {begin, begin + count},
                           .first_row = first,
                           .tile = reinterpret_cast<std::byte*>(tile.data())});
      std::vector<float> row(static_cast<size_t>(groups * 32));
      for (int64_t t = 0; t < 32; ++t) {
        const bool filled = t >= first && t < first + count;
        std::fill(row.begin(), row.end(), 0.0f);
        if (filled) quant::DecodePlanarSlice(matrix.view(), begin + t - first, 0, spec.cols, row.data());
        for (int64_t c = 0; c < groups * 32; ++c) {
          const uint16_t got = tile[static_cast<size_t>((t / 16 * groups + c / 32) * 16 + t % 16)].values[c % 32];
          const uint16_t want = filled ? RoundedBf16(row[static_cast<size_t>(c)]) : kUntouched;
          ASSERT_TRUE(SameBf16(got, want)) << quant::Traits(spec.format).name << " " << spec.cols << " columns, group "
                                           << spec.group << ", tile row " << t << " column " << c;
          ++values;
          non_zero += filled && (got & 0x7FFF) != 0;
        }
      }
    }
  }
  EXPECT_GT(values, 1000000u);
  EXPECT_GT(non_zero, values / 4);
}

INSTANTIATE_TEST_SUITE_P(AllKernels, PlanarDecodeConformance, ::testing::ValuesIn(PlanarDecoders()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bellhop::kernels
