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

constexpr float kPoison = -12345.5f;

#define SKIP_WITHOUT(kernel_isa)                                                                    \
  if ((kernel_isa) > sys::DetectCpu().isa) {                                                        \
    GTEST_SKIP() << "this CPU lacks " << sys::IsaName(kernel_isa) << "; the kernel was not tested"; \
  }

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
