#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quant/codebooks.h"
#include "quant/codec.h"
#include "quant/golden_file.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }

std::string FormatName(const ::testing::TestParamInfo<WeightFormat>& info) {
  return std::string(Traits(info.param).name);
}

class DecodeGoldenTest : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(DecodeGoldenTest, EveryRowMatchesBitForBit) {
  const GoldenFile golden(GoldenFileName(GetParam()));
  const auto& packed = golden["packed"];
  const std::vector<float> want = golden["dequant"].Floats();
  ASSERT_EQ(packed.Row(0).size(), RowBytes(GetParam(), kGoldenCols).value());
  ASSERT_EQ(want.size(), static_cast<size_t>(packed.rows() * kGoldenCols));
  ASSERT_GE(packed.rows(), 36);
  std::vector<float> got(kGoldenCols);
  for (int64_t r = 0; r < packed.rows(); ++r) {
    DecodeRow(GetParam(), packed.Row(r).data(), kGoldenCols, got.data());
    for (int64_t i = 0; i < kGoldenCols; ++i) {
      const float w = want[static_cast<size_t>(r * kGoldenCols + i)];
      ASSERT_EQ(Bits(got[static_cast<size_t>(i)]), Bits(w))
          << "row " << r << " element " << i << ": " << got[static_cast<size_t>(i)] << " instead of " << w;
    }
  }
}

TEST_P(DecodeGoldenTest, SourceNeedsNoAlignmentAndNothingIsTouchedOutside) {
  const GoldenFile golden(GoldenFileName(GetParam()));
  const auto row = golden["packed"].Row(25);
  const std::vector<float> want = golden["dequant"].Floats();
  for (size_t shift : {1u, 2u, 3u, 5u, 7u}) {
    std::vector<std::byte> source(row.size() + shift);
    std::memcpy(source.data() + shift, row.data(), row.size());
    std::vector<float> got(kGoldenCols + 2, -777.0f);
    DecodeRow(GetParam(), source.data() + shift, kGoldenCols, got.data() + 1);
    EXPECT_EQ(std::memcmp(got.data() + 1, want.data() + 25 * kGoldenCols, kGoldenCols * sizeof(float)), 0) << shift;
    EXPECT_EQ(got.front(), -777.0f);
    EXPECT_EQ(got.back(), -777.0f);
  }
}

TEST_P(DecodeGoldenTest, OneBlockAloneDecodesAsInItsRow) {
  const FormatTraits& t = Traits(GetParam());
  const GoldenFile golden(GoldenFileName(GetParam()));
  const auto row = golden["packed"].Row(30);
  const std::vector<float> want = golden["dequant"].Floats();
  std::vector<float> got(t.block_elems);
  for (int64_t block = 0; block < kGoldenCols / t.block_elems; ++block) {
    DecodeRow(GetParam(), row.data() + block * t.block_bytes, t.block_elems, got.data());
    EXPECT_EQ(std::memcmp(got.data(), want.data() + 30 * kGoldenCols + block * t.block_elems, 4 * t.block_elems), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, DecodeGoldenTest, ::testing::ValuesIn(GoldenFormats()), FormatName);

TEST(DecodeTest, AllThirtyReferenceFormatsAreCovered) { EXPECT_EQ(GoldenFormats().size(), 30u); }

template <typename T>
std::vector<float> DecodeNumbers(WeightFormat format, const std::vector<T>& values) {
  std::vector<std::byte> packed(1 + values.size() * sizeof(T));  // odd address
  std::memcpy(packed.data() + 1, values.data(), values.size() * sizeof(T));
  std::vector<float> out(values.size());
  DecodeRow(format, packed.data() + 1, static_cast<int64_t>(values.size()), out.data());
  return out;
}

TEST(DecodeTest, IntegersAndDoublesConvert) {
  EXPECT_EQ(DecodeNumbers<int8_t>(WeightFormat::kI8, {-128, -1, 0, 127}), (std::vector<float>{-128, -1, 0, 127}));
  EXPECT_EQ(DecodeNumbers<int16_t>(WeightFormat::kI16, {-32768, 32767}), (std::vector<float>{-32768, 32767}));
  EXPECT_EQ(DecodeNumbers<int32_t>(WeightFormat::kI32, {-7, 16777217, 2147483647}),
            (std::vector<float>{-7, 16777216, 2147483648.0f}));
  EXPECT_EQ(DecodeNumbers<int64_t>(WeightFormat::kI64, {std::numeric_limits<int64_t>::min(), 3}),
            (std::vector<float>{-0x1p63f, 3}));
  EXPECT_EQ(DecodeNumbers<double>(WeightFormat::kF64, {0.1, -1e-300, 0.5}), (std::vector<float>{0.1f, -0.0f, 0.5f}));
}

TEST(DecodeTest, NothingIsReadOrWrittenForZeroElements) {
  for (const FormatTraits& t : AllFormats()) {
    if (!t.planar) DecodeRow(t.format, nullptr, 0, nullptr);
  }
}

TEST(DecodeTest, PlainFormatsPassNanAndInfThrough) {
  const auto f16 = DecodeNumbers<uint16_t>(WeightFormat::kF16, {0x7C00, 0xFC00, 0x7E00});
  EXPECT_EQ(f16[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(f16[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16[2]));
  const auto bf16 = DecodeNumbers<uint16_t>(WeightFormat::kBF16, {0x7F80, 0x7FC1});
  EXPECT_TRUE(std::isinf(bf16[0]));
  EXPECT_EQ(Bits(bf16[1]), 0x7FC10000u);
}

TEST(DecodeTest, MxfpExponents253To255FollowTheScaleTable) {
  std::byte block[17] = {};
  block[1] = std::byte{0x71};  // element 0: level 1, element 16: level 12
  float y[32];
  block[0] = std::byte{253};
  DecodeRow(WeightFormat::kMXFP4, block, 32, y);
  EXPECT_EQ(y[0], 0x1p125f);
  EXPECT_EQ(y[16], std::numeric_limits<float>::infinity());
  block[0] = std::byte{255};
  DecodeRow(WeightFormat::kMXFP4, block, 32, y);
  EXPECT_EQ(y[0], 0x1p127f);
}

TEST(CodebookTest, ScaleTablesFollowTheirFormulas) {
  for (int e = 0; e < 256; ++e) EXPECT_EQ(kE8m0Half[e], std::ldexp(1.0f, e - 128)) << e;
  for (int b = 0; b < 128; ++b) {
    const int exponent = b >> 3, mantissa = b & 7;
    const float want = exponent == 0 ? std::ldexp(mantissa, -10) : std::ldexp(1.0f + mantissa / 8.0f, exponent - 8);
    if (b != 0x7F) {
      EXPECT_EQ(kUe4m3Half[b], want) << b;
      EXPECT_EQ(kUe4m3Half[b | 0x80], want) << b;
    }
  }
  EXPECT_EQ(kUe4m3Half[0x7F], 0.0f);
  EXPECT_EQ(kUe4m3Half[0xFF], 240.0f);
}

TEST(CodebookTest, SignMasksHaveEvenParity) {
  for (unsigned c = 0; c < 128; ++c) {
    EXPECT_EQ(kSignMasks[c] & 127u, c);
    EXPECT_EQ(std::popcount(kSignMasks[c]) % 2, 0);
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ((kSignByteMasks[c] >> (8 * j)) & 255, (kSignMasks[c] >> j) & 1 ? 255u : 0u);
    }
  }
}

template <size_t kEntries, size_t kWidth>
void ExpectAscendingLevels(const uint8_t (&grid)[kEntries][kWidth], const std::vector<int>& levels) {
  uint64_t last = 0;
  for (size_t i = 0; i < kEntries; ++i) {
    uint64_t word = 0;
    for (size_t j = 0; j < kWidth; ++j) {
      EXPECT_NE(std::find(levels.begin(), levels.end(), grid[i][j]), levels.end());
      word |= static_cast<uint64_t>(grid[i][j]) << (8 * j);
    }
    EXPECT_GT(word, last) << i;
    last = word;
  }
}

TEST(CodebookTest, GridsHoldTheirLevelsInAscendingOrder) {
  ExpectAscendingLevels(kIq2xxsGrid, {8, 25, 43});
  ExpectAscendingLevels(kIq2xsGrid, {8, 25, 43});
  ExpectAscendingLevels(kIq2sGrid, {8, 25, 43});
  ExpectAscendingLevels(kIq3xxsGrid, {4, 12, 20, 28, 36, 44, 52, 62});
  ExpectAscendingLevels(kIq3sGrid, {1, 3, 5, 7, 9, 11, 13, 15});
}

TEST(CodebookTest, NibbleGridEqualsTheTernaryGrid) {
  for (int i = 0; i < 2048; ++i) {
    for (int k = 0; k < 4; ++k) {
      const int byte = static_cast<int>(kIq1sGridNibbles[i] >> (8 * k)) & 255;
      EXPECT_EQ((byte & 15) - 1, kIq1sGrid[i][k]);
      EXPECT_EQ((byte >> 4) - 1, kIq1sGrid[i][k + 4]);
    }
  }
}

}  // namespace
}  // namespace bellhop::quant
