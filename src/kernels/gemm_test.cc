#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/dot.h"
#include "kernels/random_weights_for_test.h"
#include "quant/codec.h"
#include "quant/golden_file.h"

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

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }
bool SameResult(float a, float b) { return Bits(a) == Bits(b) || (std::isnan(a) && std::isnan(b)); }

constexpr float kPoison = -12345.5f;

#define SKIP_WITHOUT(kernel_isa)                                                                    \
  if ((kernel_isa) > sys::DetectCpu().isa) {                                                        \
    GTEST_SKIP() << "this CPU lacks " << sys::IsaName(kernel_isa) << "; the kernel was not tested"; \
  }

// ---- Products of f32 tiles -----------------------------------------------------------------------------------------

TEST(GemmSelection, EveryIsaHasAKernel) {
  for (Isa isa : kIsas) {
    const GemmKernel* kernel = SelectGemm(CapsOf(isa));
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ(kernel->isa, isa);
  }
  EXPECT_EQ(AllGemmKernels().size(), 3u);
}

// A matrix whose rows are `pad` elements apart; the last row ends with its buffer.
struct Matrix {
  int64_t rows, cols, stride;
  std::vector<float> data;

  Matrix(int64_t r, int64_t c, int64_t pad, float fill) : rows(r), cols(c), stride(c + pad) {
    data.assign(static_cast<size_t>(r == 0 ? 0 : stride * (r - 1) + c), fill);
    data.shrink_to_fit();
  }
  void Randomise(std::mt19937_64& random, bool specials) {
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        float& v = data[static_cast<size_t>(r * stride + c)];
        v = normal(random);
        if (!specials) continue;
        const uint64_t kind = random() % 40;
        if (kind == 0) v = -0.0f;
        if (kind == 1) v = 1e-42f;
        if (kind == 2 && random() % 8 == 0) v = std::numeric_limits<float>::infinity();
      }
    }
  }
  MatView<const float> View() const { return {data.data(), rows, cols, stride}; }
  float At(int64_t r, int64_t c) const { return data[static_cast<size_t>(r * stride + c)]; }
};

class GemmConformance : public ::testing::TestWithParam<GemmKernel> {};

TEST_P(GemmConformance, EqualsTheReferenceBitForBit) {
  const GemmKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const GemmFn reference = SelectGemm(CapsOf(Isa::kReference))->fn;
  std::mt19937_64 random(1);
  const int64_t ks[] = {1, 3, 15, 16, 17, 31, 33, 64, 100, 257, 512, 47};
  for (int round = 0; round < 36; ++round) {
    const int64_t k = ks[round % 12], n = 1 + static_cast<int64_t>(random() % 13);
    const int64_t m = 1 + static_cast<int64_t>(random() % 11);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Matrix w(n, k, round % 3, nan), x(m, k, round % 5, nan), want(m, n, 3, kPoison), got(m, n, 3, kPoison);
    w.Randomise(random, round % 2 == 1);
    x.Randomise(random, round % 2 == 1);
    reference({.w = w.View(), .x = x.View(), .y = {want.data.data(), m, n, want.stride}});
    kernel.fn({.w = w.View(), .x = x.View(), .y = {got.data.data(), m, n, got.stride}});
    for (size_t i = 0; i < got.data.size(); ++i) {
      const bool padding = static_cast<int64_t>(i) % got.stride >= n;
      ASSERT_EQ(Bits(got.data[i]) == Bits(kPoison), padding) << "n " << n << " m " << m << " k " << k;
      ASSERT_TRUE(SameResult(got.data[i], want.data[i]))
          << "n " << n << " m " << m << " k " << k << ": " << got.data[i] << " instead of " << want.data[i];
    }
  }
}

// The order of a plain format: the same bits as the F32 dot product.
TEST_P(GemmConformance, EqualsTheF32DotProduct) {
  const GemmKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(2);
  Matrix w(7, 91, 0, 0), x(5, 91, 4, 0), want(5, 7, 0, 0), got(5, 7, 0, 0);
  w.Randomise(random, false);
  x.Randomise(random, false);
  kernel.fn({.w = w.View(), .x = x.View(), .y = {got.data.data(), 5, 7, 7}});
  SelectDot(WeightFormat::kF32, CapsOf(Isa::kReference))
      ->fn({.weights = {.format = WeightFormat::kF32,
                        .rows = 7,
                        .cols = 91,
                        .planes = {{reinterpret_cast<const std::byte*>(w.data.data()), 91 * 4}}},
            .x = x.View(),
            .y = {want.data.data(), 5, 7, 7},
            .range = {0, 7}});
  for (size_t i = 0; i < got.data.size(); ++i) EXPECT_EQ(Bits(got.data[i]), Bits(want.data[i])) << i;
}

// Each term passes at most k/16 + 1 fused roundings of its lane and the four additions of the tree.
TEST_P(GemmConformance, MatchesTheExactSumWithinRounding) {
  const GemmKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  std::mt19937_64 random(3);
  const int64_t k = 777;
  Matrix w(9, k, 0, 0), x(6, k, 0, 0), got(6, 9, 0, 0);
  w.Randomise(random, false);
  x.Randomise(random, false);
  kernel.fn({.w = w.View(), .x = x.View(), .y = {got.data.data(), 6, 9, 9}});
  for (int64_t m = 0; m < 6; ++m) {
    for (int64_t r = 0; r < 9; ++r) {
      double exact = 0, terms = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(w.At(r, i)) * x.At(m, i);
        exact += product;
        terms += std::abs(product);
      }
      EXPECT_LE(std::abs(got.At(m, r) - exact), (static_cast<double>(k) / 16 + 5) * 0x1p-24 * terms);
    }
  }
}

TEST_P(GemmConformance, NoRowsOrNoWeightsWriteNothing) {
  const GemmKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const Matrix w(4, 32, 0, 1.0f), x(3, 32, 0, 1.0f);
  std::vector<float> y(12, kPoison);
  kernel.fn({.w = {w.data.data(), 0, 32, 32}, .x = x.View(), .y = {y.data(), 3, 0, 4}});
  kernel.fn({.w = w.View(), .x = {x.data.data(), 0, 32, 32}, .y = {y.data(), 0, 4, 4}});
  for (float v : y) EXPECT_EQ(Bits(v), Bits(kPoison));
}

INSTANTIATE_TEST_SUITE_P(AllKernels, GemmConformance,
                         ::testing::ValuesIn(AllGemmKernels().begin(), AllGemmKernels().end()),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Row decoders --------------------------------------------------------------------------------------------------

TEST(RowDecodeSelection, EveryWeightFormatHasEveryIsaAndOthersNone) {
  std::set<std::string> names;
  for (const RowDecodeKernel& kernel : AllRowDecodeKernels()) EXPECT_TRUE(names.insert(kernel.name).second);
  for (const FormatTraits& t : quant::AllFormats()) {
    if (t.planar) continue;  // planar_test.cc
    for (Isa isa : kIsas) {
      const RowDecodeKernel* kernel = SelectRowDecode(t.format, CapsOf(isa));
      if (!t.weights) {
        EXPECT_EQ(kernel, nullptr) << t.name;
        continue;
      }
      ASSERT_NE(kernel, nullptr) << t.name;
      EXPECT_EQ(kernel->format, t.format) << kernel->name;
      EXPECT_EQ(kernel->isa, isa) << kernel->name;
    }
  }
}

class RowDecodeConformance : public ::testing::TestWithParam<RowDecodeKernel> {};

// Equal as values (+0 equals -0); arbitrary bytes give infinities and NaN too.
bool SameValue(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST_P(RowDecodeConformance, EqualsTheScalarDecoder) {
  const RowDecodeKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const FormatTraits& t = quant::Traits(kernel.format);
  const int64_t block = t.block_elems;
  std::mt19937_64 random(4);
  const std::vector<int64_t> counts =
      block == 1 ? std::vector<int64_t>{0, 1, 7, 15, 16, 17, 31, 33, 100, 4097}
                 : std::vector<int64_t>{0,         block, 2 * block,    3 * block, 5 * block,
                                        7 * block, 2048,  2048 + block, 4096,      4096 + 3 * block};
  for (ScaleRange scales : {ScaleRange::kModerate, ScaleRange::kAnyBits}) {
    for (int64_t count : counts) {
      // At an odd address, ending with its buffer.
      std::vector<std::byte> src(1 + quant::RowBytes(kernel.format, static_cast<uint64_t>(count)).value());
      FillRandomWeights(kernel.format, count, scales, random, src.data() + 1);
      std::vector<float> want(static_cast<size_t>(count)), got(static_cast<size_t>(count) + 1, kPoison);
      quant::DecodeRow(kernel.format, src.data() + 1, count, want.data());
      kernel.fn(src.data() + 1, count, got.data());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(SameValue(got[i], want[i])) << i << " of " << count << ": " << got[i] << " instead of " << want[i];
      }
      EXPECT_EQ(Bits(got.back()), Bits(kPoison)) << count;
    }
  }
}

TEST_P(RowDecodeConformance, GoldenValues) {
  const RowDecodeKernel& kernel = GetParam();
  SKIP_WITHOUT(kernel.isa);
  const quant::GoldenFile golden(quant::GoldenFileName(kernel.format));
  const auto& packed = golden["packed"];
  const std::vector<float> want = golden["dequant"].Floats();
  std::vector<float> got(quant::kGoldenCols);
  for (int64_t r = 0; r < packed.rows(); ++r) {
    kernel.fn(packed.Row(r).data(), quant::kGoldenCols, got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      const float w = want[static_cast<size_t>(r * quant::kGoldenCols) + i];
      ASSERT_TRUE(SameValue(got[i], w)) << "row " << r << " element " << i << ": " << got[i] << " instead of " << w;
    }
  }
}

std::vector<RowDecodeKernel> BlockRowDecoders() {
  std::vector<RowDecodeKernel> kernels;
  for (const RowDecodeKernel& kernel : AllRowDecodeKernels()) {
    if (!quant::Traits(kernel.format).planar) kernels.push_back(kernel);
  }
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(AllKernels, RowDecodeConformance, ::testing::ValuesIn(BlockRowDecoders()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bellhop::kernels
