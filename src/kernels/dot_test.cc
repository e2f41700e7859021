#include "kernels/dot.h"

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

#include "kernels/cpu/ref/block_codes.h"
#include "kernels/random_weights_for_test.h"
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/golden_file.h"
#include "quant/planar.h"

namespace bellhop::kernels {
namespace {

using quant::FormatTraits;
using quant::WeightFormat;
using sys::Isa;

constexpr Isa kIsas[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512};

sys::CpuCaps CapsOf(Isa isa) {
  sys::CpuCaps caps;
  caps.isa = isa;
  return caps;
}

// Planar formats have tests of their own (planar_test.cc).
std::vector<WeightFormat> WeightFormats() {
  std::vector<WeightFormat> formats;
  for (const FormatTraits& t : quant::AllFormats()) {
    if (t.weights && !t.planar) formats.push_back(t.format);
  }
  return formats;
}

std::vector<DotKernel> BlockKernels() {
  std::vector<DotKernel> kernels;
  for (const DotKernel& kernel : AllDotKernels()) {
    if (!quant::Traits(kernel.format).planar) kernels.push_back(kernel);
  }
  return kernels;
}

std::string FormatName(const ::testing::TestParamInfo<WeightFormat>& info) {
  return std::string(quant::Traits(info.param).name);
}

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }
// Equal bits; any NaN equals any NaN, as which operand's payload survives is not part of the contract.
bool SameResult(float a, float b) { return Bits(a) == Bits(b) || (std::isnan(a) && std::isnan(b)); }

// ---- Selection -----------------------------------------------------------------------------------------------------

TEST(DotSelection, EveryWeightFormatHasEveryIsa) {
  for (WeightFormat format : WeightFormats()) {
    for (Isa isa : kIsas) {
      const DotKernel* kernel = SelectDot(format, CapsOf(isa));
      ASSERT_NE(kernel, nullptr) << quant::Traits(format).name;
      EXPECT_EQ(kernel->format, format) << kernel->name;
      EXPECT_EQ(kernel->isa, isa) << kernel->name;
      EXPECT_FALSE(kernel->needs_bytes) << kernel->name;
    }
  }
}

TEST(DotSelection, FeaturesBeyondTheBundleSelectTheKernelsThatNeedThem) {
  sys::CpuCaps bytes = CapsOf(Isa::kAvx512), gathers = bytes, both = bytes;
  bytes.avx512_bytes = gathers.fast_gathers = both.avx512_bytes = both.fast_gathers = true;
  int64_t with_bytes = 0, with_gathers = 0;
  for (const DotKernel& kernel : BlockKernels()) {
    if (!kernel.needs_bytes) continue;
    ++with_bytes;
    with_gathers += kernel.needs_fast_gathers ? 1 : 0;
    EXPECT_STREQ(SelectDot(kernel.format, both)->name, kernel.name);
    EXPECT_EQ(CanRun(kernel, bytes), !kernel.needs_fast_gathers) << kernel.name;
    EXPECT_FALSE(SelectDot(kernel.format, gathers)->needs_bytes) << kernel.name;
    EXPECT_FALSE(CanRun(kernel, CapsOf(Isa::kAvx512))) << kernel.name;
  }
  EXPECT_EQ(with_bytes, 7);
  EXPECT_EQ(with_gathers, 2);
}

TEST(DotSelection, FormatsWithoutWeightsHaveNone) {
  for (const FormatTraits& t : quant::AllFormats()) {
    if (t.weights) continue;
    EXPECT_EQ(SelectDot(t.format, CapsOf(Isa::kAvx512)), nullptr) << t.name;
  }
}

TEST(DotSelection, NamesAreUniqueAndCarryTheIsa) {
  std::set<std::string> names;
  size_t plain = 0;
  for (const DotKernel& kernel : BlockKernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    std::string suffix = kernel.isa == Isa::kReference ? "_ref" : "_" + std::string(sys::IsaName(kernel.isa));
    if (kernel.needs_bytes) suffix += "_bytes";
    EXPECT_TRUE(std::string(kernel.name).ends_with(suffix)) << kernel.name;
    plain += kernel.needs_bytes ? 0 : 1;
  }
  EXPECT_EQ(plain, 3 * WeightFormats().size());
}

// ---- One problem: weights at an odd address that end with their buffer, padded x rows, poisoned y ----------------

constexpr float kPoison = -12345.5f;

struct Shape {
  int64_t rows, cols, x_rows;
  RowRange range;
  bool padded;  // bytes between weight rows
};

class Problem {
 public:
  Problem(WeightFormat format, const Shape& shape, ScaleRange scales, std::mt19937_64& random)
      : shape_(shape), row_bytes_(static_cast<int64_t>(quant::RowBytes(format, shape.cols).value())) {
    const int64_t stride = row_bytes_ + (shape.padded ? 7 : 0);
    weights_.assign(static_cast<size_t>(kShift + stride * (shape.rows - 1) + row_bytes_), std::byte{0xFF});
    weights_.shrink_to_fit();
    for (int64_t r = 0; r < shape.rows; ++r) {
      FillRandomWeights(format, shape.cols, scales, random, weights_.data() + kShift + r * stride);
    }
    view_ = {.format = format, .rows = shape.rows, .cols = shape.cols, .planes = {{weights_.data() + kShift, stride}}};
    x_stride_ = shape.cols + 3;
    x_.assign(static_cast<size_t>(x_stride_ * (shape.x_rows - 1) + shape.cols),
              std::numeric_limits<float>::quiet_NaN());
    x_.shrink_to_fit();
    std::normal_distribution<float> normal;
    for (int64_t m = 0; m < shape.x_rows; ++m) {
      for (int64_t i = 0; i < shape.cols; ++i) {
        const uint64_t kind = random() % 64;
        x_[static_cast<size_t>(m * x_stride_ + i)] = kind == 0 ? -0.0f : kind == 1 ? 0.0f : normal(random);
      }
    }
  }

  const quant::QuantView& weights() const { return view_; }
  std::byte* Row(int64_t r) { return weights_.data() + kShift + r * view_.planes[0].row_bytes; }
  MatView<const float> x() const { return {x_.data(), shape_.x_rows, shape_.cols, x_stride_}; }

  // y [x_rows, rows], with poison wherever the kernel has nothing to write.
  std::vector<float> Run(DotFn fn, RowRange range, int64_t first_x = 0, int64_t x_rows = -1,
                         const float* packed_x = nullptr) const {
    if (x_rows < 0) x_rows = shape_.x_rows;
    const int64_t stride = shape_.rows + 2;
    std::vector<float> y(static_cast<size_t>(stride * x_rows), kPoison);
    fn({.weights = view_,
        .x = {x_.data() + first_x * x_stride_, x_rows, shape_.cols, x_stride_},
        .y = {y.data(), x_rows, shape_.rows, stride},
        .range = range,
        .next = x_rows % 2 == 0 ? nullptr : weights_.data(),
        .packed_x = packed_x});
    return y;
  }

 private:
  static constexpr int64_t kShift = 1;
  Shape shape_;
  int64_t row_bytes_;
  int64_t x_stride_ = 0;
  std::vector<std::byte> weights_;
  std::vector<float> x_;
  quant::QuantView view_;
};

RowRange RandomRange(int64_t rows, std::mt19937_64& random) {
  const int64_t begin = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
  return {begin, begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(rows - begin))};
}

// Chosen lengths with few weight rows.
std::vector<Shape> ChosenShapes(WeightFormat format, std::mt19937_64& random) {
  const int64_t block = quant::Traits(format).block_elems;
  // Row lengths: tails below and above 16 for plain formats; one block, odd counts, and more than one piece of 2048
  // elements for block formats.
  const std::vector<int64_t> cols =
      block == 1 ? std::vector<int64_t>{1, 5, 15, 16, 17, 31, 48, 100, 129, 333, 512, 1001}
                 : std::vector<int64_t>{1, 2, 3, 5, 7, 2048 / block, 2048 / block + 1, 1, 2, 4, 1, 4096 / block};
  const int64_t x_rows[] = {1, 2, 3, 4, 5, 6, 7, 32, 9, 8, 33, 1};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < cols.size(); ++i) {
    Shape s;
    s.cols = block == 1 ? cols[i] : cols[i] * block;
    s.x_rows = x_rows[i];
    s.rows = 1 + static_cast<int64_t>(random() % 9);
    s.range = i % 3 == 0 ? RowRange{0, s.rows} : RandomRange(s.rows, random);
    s.padded = i % 2 == 1;
    shapes.push_back(s);
  }
  return shapes;
}

// Forty more: 1 to 32 x rows, weight rows that are no multiple of any tile, up to more than a band of 32.
std::vector<Shape> RandomShapes(WeightFormat format, std::mt19937_64& random) {
  constexpr int64_t kMostProducts = 150000;  // the reference takes a millisecond for these
  const int64_t block = quant::Traits(format).block_elems;
  std::vector<Shape> shapes;
  for (int64_t i = 0; i < 40; ++i) {
    Shape s;
    const int64_t longest = i % 4 == 0 ? 2600 : 600;
    s.cols =
        (1 + static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(longest / block, 1)))) * block;
    s.x_rows = 1 + i % 32;
    const int64_t most_rows = std::min<int64_t>(75, std::max<int64_t>(1, kMostProducts / (s.cols * s.x_rows)));
    s.rows = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most_rows));
    s.range = i % 2 == 0 ? RowRange{0, s.rows} : RandomRange(s.rows, random);
    s.padded = i % 3 == 1;
    shapes.push_back(s);
  }
  return shapes;
}

class DotConformance : public ::testing::TestWithParam<DotKernel> {};

std::string KernelName(const ::testing::TestParamInfo<DotKernel>& info) { return info.param.name; }

#define SKIP_WITHOUT_CPU_FOR(kernel)                                                                \
  if (!CanRun(kernel, sys::DetectCpu())) {                                                          \
    GTEST_SKIP() << "this CPU lacks what " << (kernel).name << " needs; the kernel was not tested"; \
  }

// Runs kernel and reference; outputs outside the range must keep their poison. Returns how many outputs are zero.
int64_t CountZeros(const DotKernel& kernel, const Shape& shape, ScaleRange scales, std::mt19937_64& random,
                   int64_t* outputs) {
  SCOPED_TRACE("rows " + std::to_string(shape.rows) + " cols " + std::to_string(shape.cols) + " x rows " +
               std::to_string(shape.x_rows) + " range " + std::to_string(shape.range.begin) + " " +
               std::to_string(shape.range.end));
  const DotFn reference = SelectDot(kernel.format, CapsOf(Isa::kReference))->fn;
  const Problem problem(kernel.format, shape, scales, random);
  const std::vector<float> want = problem.Run(reference, shape.range);
  const std::vector<float> got = problem.Run(kernel.fn, shape.range);
  EXPECT_EQ(want.size(), got.size());
  int64_t zeros = 0;
  for (int64_t m = 0; m < shape.x_rows; ++m) {
    for (int64_t r = 0; r < shape.rows + 2; ++r) {
      const size_t i = static_cast<size_t>(m * (shape.rows + 2) + r);
      const bool inside = r >= shape.range.begin && r < shape.range.end;
      EXPECT_TRUE(SameResult(got[i], want[i]))
          << "x row " << m << " weight row " << r << ": " << got[i] << " instead of " << want[i];
      EXPECT_EQ(Bits(got[i]) == Bits(kPoison), !inside) << "x row " << m << " weight row " << r;
      if (!inside) continue;
      ++*outputs;
      zeros += got[i] == 0 ? 1 : 0;
    }
  }
  return zeros;
}

TEST_P(DotConformance, EqualsTheReferenceBitForBit) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  std::mt19937_64 random(static_cast<uint64_t>(kernel.format) + 1);
  std::vector<Shape> shapes = ChosenShapes(kernel.format, random);
  // Arbitrary bytes: infinite, NaN, subnormal and negative scales.
  int64_t outputs = 0;
  for (const Shape& shape : shapes) {
    CountZeros(kernel, shape, ScaleRange::kAnyBits, random, &outputs);
    ASSERT_FALSE(HasFailure());
  }
  if (kernel.isa != Isa::kReference) {
    for (const Shape& shape : RandomShapes(kernel.format, random)) shapes.push_back(shape);
  }
  outputs = 0;
  int64_t zeros = 0;
  for (const Shape& shape : shapes) {
    zeros += CountZeros(kernel, shape, ScaleRange::kModerate, random, &outputs);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_LT(zeros * 20, outputs) << "the products compared are mostly zero";
}

// Sixteen rows of a step of columns have a scale of each value, in places of all kinds.
TEST(DotNvfp4, EveryScaleByte) {
  using Block = quant::Nvfp4Block;
  constexpr int64_t kScales = 4, kRows = 16;
  const DotFn reference = SelectDot(WeightFormat::kNVFP4, CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(1);
  for (const int64_t x_rows : {1, 2, 3, 4, 8, 9}) {
    Problem problem(WeightFormat::kNVFP4, {kRows, 256, x_rows, {0, kRows}, false}, ScaleRange::kModerate, random);
    for (int64_t i = 0; i < 256; ++i) {
      std::byte* block = problem.Row(i % kRows) + i / kRows / kScales * Block::kBytes;
      block[Block::kScales + i / kRows % kScales] = static_cast<std::byte>(i);
    }
    const std::vector<float> want = problem.Run(reference, {0, kRows});
    for (const DotKernel& kernel : BlockKernels()) {
      if (kernel.format != WeightFormat::kNVFP4 || !CanRun(kernel, sys::DetectCpu())) continue;
      const std::vector<float> got = problem.Run(kernel.fn, {0, kRows});
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(SameResult(got[i], want[i])) << kernel.name << " " << i;
    }
  }
}

// Kernels that take x packed give the same, whatever part of the weights a call is for; others ignore it.
TEST_P(DotConformance, PackedRowsChangeNothing) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  std::mt19937_64 random(53);
  const int64_t block = quant::Traits(kernel.format).block_elems;
  for (const int64_t cols : {block == 1 ? 75 : block, 3 * block + (block == 1 ? 570 : 0)}) {
    for (const int64_t x_rows : {int64_t{1}, kPackedXRows - 1, kPackedXRows, int64_t{8}, int64_t{16}, int64_t{37}}) {
      const Shape shape = {.rows = 70, .cols = cols, .x_rows = x_rows, .range = {0, 70}, .padded = true};
      const Problem problem(kernel.format, shape, ScaleRange::kModerate, random);
      const RowRange range = RandomRange(shape.rows, random);
      struct alignas(64) Sixteen {
        float x[16];
      };
      std::vector<Sixteen> packed(static_cast<size_t>((cols + 15) / 16 * x_rows));
      for (int64_t m = 0; m < x_rows; ++m) PackRow(problem.x().Row(m), cols, m, x_rows, packed[0].x);
      const std::vector<float> want = problem.Run(kernel.fn, range);
      const std::vector<float> got = problem.Run(kernel.fn, range, 0, -1, packed[0].x);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(SameResult(got[i], want[i])) << cols << " columns, " << x_rows << " x rows, index " << i;
      }
    }
  }
}

// A slice of the columns is the product of a matrix that holds those columns alone.
TEST_P(DotConformance, ColumnSlices) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  const DotFn reference = SelectDot(kernel.format, CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(31);
  const FormatTraits& t = quant::Traits(kernel.format);
  const int64_t block = t.block_elems, blocks = block == 1 ? 90 : 9;
  for (int64_t x_rows : {1, 2, 3, 7, 8, 12, 32}) {
    const Shape shape = {.rows = 37, .cols = blocks * block, .x_rows = x_rows, .range = {0, 37}, .padded = true};
    const Problem problem(kernel.format, shape, ScaleRange::kModerate, random);
    ASSERT_EQ(quant::ColumnGranularity(problem.weights()), block);
    const RowRange slice = RandomRange(blocks, random);
    const int64_t cols = (slice.end - slice.begin) * block;
    const quant::QuantView view = quant::ColumnSlice(problem.weights(), slice.begin * block, slice.end * block);
    ASSERT_EQ(view.cols, cols);
    const int64_t row_bytes = (slice.end - slice.begin) * t.block_bytes;
    std::vector<std::byte> copy(static_cast<size_t>(row_bytes * shape.rows));
    for (int64_t r = 0; r < shape.rows; ++r) {
      std::memcpy(copy.data() + r * row_bytes, problem.weights().Row(r) + slice.begin * t.block_bytes,
                  static_cast<size_t>(row_bytes));
    }
    const MatView<const float> x = {problem.x().data + slice.begin * block, x_rows, cols, problem.x().stride};
    std::vector<float> want(static_cast<size_t>(x_rows * shape.rows)), got(want.size());
    reference(
        {.weights = {.format = kernel.format, .rows = shape.rows, .cols = cols, .planes = {{copy.data(), row_bytes}}},
         .x = x,
         .y = {want.data(), x_rows, shape.rows, shape.rows},
         .range = shape.range});
    kernel.fn({.weights = view, .x = x, .y = {got.data(), x_rows, shape.rows, shape.rows}, .range = shape.range});
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(SameResult(got[i], want[i])) << "blocks " << slice.begin << " to " << slice.end << " index " << i;
    }
  }
}

TEST_P(DotConformance, ARowsResultDependsOnThatRowAlone) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  std::mt19937_64 random(77);
  const int64_t block = quant::Traits(kernel.format).block_elems;
  const Shape shape = {.rows = 7, .cols = block == 1 ? 75 : 3 * block, .x_rows = 13, .range = {0, 7}, .padded = false};
  const Problem problem(kernel.format, shape, ScaleRange::kModerate, random);
  const std::vector<float> all = problem.Run(kernel.fn, shape.range);
  for (int64_t m = 0; m < shape.x_rows; ++m) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      const std::vector<float> one = problem.Run(kernel.fn, {r, r + 1}, m, 1);
      EXPECT_EQ(Bits(one[static_cast<size_t>(r)]), Bits(all[static_cast<size_t>(m * (shape.rows + 2) + r)]))
          << "x row " << m << " weight row " << r;
    }
  }
}

TEST_P(DotConformance, EmptyRangeAndNoRowsWriteNothing) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  std::mt19937_64 random(5);
  const Shape shape = {.rows = 2, .cols = 256, .x_rows = 2, .range = {1, 1}, .padded = false};
  const Problem problem(kernel.format, shape, ScaleRange::kModerate, random);
  for (float y : problem.Run(kernel.fn, {1, 1})) EXPECT_EQ(Bits(y), Bits(kPoison));
  EXPECT_TRUE(problem.Run(kernel.fn, {0, 2}, 0, 0).empty());
}

// |result - exact| <= 1e-6 * sum of |weight * x|: the bound of the reference data for binary32 accumulation of any
// order.
TEST_P(DotConformance, GoldenProducts) {
  const DotKernel& kernel = GetParam();
  SKIP_WITHOUT_CPU_FOR(kernel);
  const quant::GoldenFile golden(quant::GoldenFileName(kernel.format));
  const quant::GoldenFile inputs("inputs.bin");
  const std::vector<float> x = inputs["activations"].Floats();
  const int64_t x_rows = inputs["activations"].rows();
  const auto& packed = golden["packed"];
  const auto& exact = golden["dot_f32act"];
  const auto& yardstick = golden["dot_abs"];
  const int64_t rows = exact.rows();
  ASSERT_GE(rows, 36);
  std::vector<float> y(static_cast<size_t>(rows * x_rows));
  kernel.fn({.weights = {.format = kernel.format,
                         .rows = rows,
                         .cols = quant::kGoldenCols,
                         .planes = {{packed.bytes.data(), static_cast<int64_t>(packed.Row(0).size())}}},
             .x = {x.data(), x_rows, quant::kGoldenCols, quant::kGoldenCols},
             .y = {y.data(), x_rows, rows, rows},
             .range = {0, rows}});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t m = 0; m < x_rows; ++m) {
      double want, scale;
      std::memcpy(&want, exact.Row(r).data() + 8 * m, 8);
      std::memcpy(&scale, yardstick.Row(r).data() + 8 * m, 8);
      EXPECT_LE(std::abs(y[static_cast<size_t>(m * rows + r)] - want), 1e-6 * scale) << "row " << r << " x row " << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, DotConformance, ::testing::ValuesIn(BlockKernels()), KernelName);

// ---- The reference against arithmetic that knows nothing of lanes and groups ---------------------------------------

class DotReference : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(DotReference, CodesScalesAndMinimaGiveTheDecodedValues) {
  const FormatTraits& t = quant::Traits(GetParam());
  if (t.block_elems == 1) return;  // plain formats have none
  std::mt19937_64 random(11);
  std::vector<std::byte> block(t.block_bytes);
  std::vector<float> want(t.block_elems);
  for (int round = 0; round < 50; ++round) {
    FillRandomWeights(t.format, t.block_elems, ScaleRange::kModerate, random, block.data());
    quant::DecodeRow(t.format, block.data(), t.block_elems, want.data());
    BlockCodes codes;
    DecodeBlockCodes(t.format, block.data(), &codes);
    for (uint32_t e = 0; e < t.block_elems; ++e) {
      const uint32_t g = e / t.scale_group;
      const float product = codes.scale[g] * codes.code[e];
      const float value = t.has_min ? product - codes.min[g] : product;
      ASSERT_EQ(value, want[e]) << "element " << e;
    }
  }
}

// Every term passes at most n roundings on its way: its group's products, one per group after it for the scale and one
// for the minimum, four additions of the final tree, and one in DecodeRow's value. The bound is n * 2^-24 * sum of
// |term|, a minimum being a term of its own.
TEST_P(DotReference, MatchesTheExactSumWithinRounding) {
  const FormatTraits& t = quant::Traits(GetParam());
  const DotFn reference = SelectDot(t.format, CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(12);
  for (int64_t cols : {t.block_elems == 1 ? int64_t{101} : int64_t{256}, int64_t{1024}}) {
    const Shape shape = {.rows = 6, .cols = cols, .x_rows = 3, .range = {0, 6}, .padded = true};
    const Problem problem(t.format, shape, ScaleRange::kModerate, random);
    const std::vector<float> y = problem.Run(reference, shape.range);
    const double groups = static_cast<double>(cols) / std::max(t.scale_group, 16u);
    const double roundings = std::max(t.scale_group, 16u) / 16.0 + 2 * groups + 5;
    std::vector<float> w(static_cast<size_t>(cols));
    for (int64_t r = 0; r < shape.rows; ++r) {
      quant::DecodeRow(t.format, problem.weights().Row(r), cols, w.data());
      for (int64_t m = 0; m < shape.x_rows; ++m) {
        double exact = 0, terms = 0;
        for (int64_t e = 0; e < cols; ++e) {
          const double product = static_cast<double>(w[static_cast<size_t>(e)]) * problem.x().Row(m)[e];
          exact += product;
          terms += std::abs(product);
        }
        if (t.has_min) {
          for (int64_t e = 0; e < cols; e += t.block_elems) {
            BlockCodes codes;
            DecodeBlockCodes(t.format, problem.weights().Row(r) + e / t.block_elems * t.block_bytes, &codes);
            for (uint32_t i = 0; i < t.block_elems; ++i) {
              terms += 2 * std::abs(codes.min[i / t.scale_group] * static_cast<double>(problem.x().Row(m)[e + i]));
            }
          }
        }
        const double error = std::abs(y[static_cast<size_t>(m * (shape.rows + 2) + r)] - exact);
        EXPECT_LE(error, roundings * 0x1p-24 * terms) << "row " << r << " x row " << m << " cols " << cols;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, DotReference, ::testing::ValuesIn(WeightFormats()), FormatName);

}  // namespace
}  // namespace bellhop::kernels
