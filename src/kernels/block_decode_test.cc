#include "kernels/block_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/random_weights_for_test.h"
#include "quant/codebooks.h"
#include "quant/codec.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }

template <WeightFormat F>
void DecodeBlocks(const uint8_t* row, int64_t blocks, float* y) {
  const Codebooks books = HostCodebooks();
  for (int64_t b = 0; b < blocks; ++b, row += BlockDecoder<F>::kBytes) {
    for (int part = 0; part < BlockDecoder<F>::kElems / 16; ++part, y += 16) {
      BlockDecoder<F>::Decode16(row, part, books, y);
    }
  }
}

struct Decoder {
  WeightFormat format;
  int elems;
  int bytes;
  void (*decode)(const uint8_t* row, int64_t blocks, float* y);
};

constexpr Decoder kDecoders[] = {
#define BELLHOP_BLOCK_FORMAT(f)                                                                   \
  {WeightFormat::f, BlockDecoder<WeightFormat::f>::kElems, BlockDecoder<WeightFormat::f>::kBytes, \
   DecodeBlocks<WeightFormat::f>},
#include "kernels/block_decode.def"
#undef BELLHOP_BLOCK_FORMAT
};

TEST(BlockDecode, FormatsAreThoseOfGgufFilesThatHoldWeights) {
  std::vector<WeightFormat> want, got;
  for (const quant::FormatTraits& t : quant::AllFormats()) {
    if (t.weights && t.gguf_id != quant::kNoGgufId) want.push_back(t.format);
  }
  for (const Decoder& d : kDecoders) got.push_back(d.format);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, want);
}

class BlockDecodeFormat : public ::testing::TestWithParam<Decoder> {};

TEST_P(BlockDecodeFormat, SizesAreThoseOfTheTraits) {
  const quant::FormatTraits& t = quant::Traits(GetParam().format);
  const int scale = t.block_elems == 1 ? 16 : 1;
  EXPECT_EQ(static_cast<uint32_t>(GetParam().elems), scale * t.block_elems);
  EXPECT_EQ(static_cast<uint32_t>(GetParam().bytes), scale * t.block_bytes);
}

// Rows end with their buffers, at every alignment, so that ASan sees a byte too many.
TEST_P(BlockDecodeFormat, EveryPartHasTheBitsOfTheScalarDecoder) {
  constexpr int64_t kBlocks = 16;
  const Decoder& decoder = GetParam();
  const int64_t cols = kBlocks * decoder.elems;
  std::mt19937_64 random(11);
  for (int round = 0; round < 64; ++round) {
    const size_t shift = static_cast<size_t>(round % 8);
    std::vector<std::byte> buffer(shift + static_cast<size_t>(kBlocks * decoder.bytes));
    std::byte* row = buffer.data() + shift;
    FillRandomWeights(decoder.format, cols, ScaleRange::kModerate, random, row);
    std::vector<float> want(static_cast<size_t>(cols)), got(static_cast<size_t>(cols));
    quant::DecodeRow(decoder.format, row, cols, want.data());
    decoder.decode(reinterpret_cast<const uint8_t*>(row), kBlocks, got.data());
    ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << "round " << round;
  }
}

TEST_P(BlockDecodeFormat, ArbitraryBytesDecodeAlikeToo) {
  constexpr int64_t kBlocks = 256;
  const Decoder& decoder = GetParam();
  const int64_t cols = kBlocks * decoder.elems;
  std::vector<std::byte> row(static_cast<size_t>(kBlocks * decoder.bytes));
  std::mt19937_64 random(12);
  FillRandomWeights(decoder.format, cols, ScaleRange::kAnyBits, random, row.data());
  std::vector<float> want(static_cast<size_t>(cols)), got(static_cast<size_t>(cols));
  quant::DecodeRow(decoder.format, row.data(), cols, want.data());
  decoder.decode(reinterpret_cast<const uint8_t*>(row.data()), kBlocks, got.data());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(Bits(got[i]) == Bits(want[i]) || (std::isnan(got[i]) && std::isnan(want[i]))) << "element " << i;
  }
}

std::string FormatName(const ::testing::TestParamInfo<Decoder>& info) {
  return std::string(quant::Traits(info.param.format).name);
}
INSTANTIATE_TEST_SUITE_P(AllFormats, BlockDecodeFormat, ::testing::ValuesIn(kDecoders), FormatName);

template <WeightFormat F>
void ExpectTailDecodes() {
  constexpr int64_t kCols = 37, kWhole = 32;
  const size_t element_bytes = quant::Traits(F).block_bytes;
  std::vector<std::byte> row(kCols * element_bytes);
  std::mt19937_64 random(13);
  FillRandomWeights(F, kCols, ScaleRange::kModerate, random, row.data());
  float want[kCols];
  quant::DecodeRow(F, row.data(), kCols, want);
  const auto* tail = reinterpret_cast<const uint8_t*>(row.data()) + kWhole * element_bytes;
  for (int e = 0; e < kCols - kWhole; ++e) {
    EXPECT_EQ(Bits(BlockDecoder<F>::Decode1(tail, e, HostCodebooks())), Bits(want[kWhole + e])) << e;
  }
}

TEST(BlockDecode, TailsOfPlainNumbersDecodeOneByOne) {
  ExpectTailDecodes<WeightFormat::kF32>();
  ExpectTailDecodes<WeightFormat::kF16>();
  ExpectTailDecodes<WeightFormat::kBF16>();
}

TEST(BlockDecode, ComputedScalesLevelsAndSignsAreThoseOfTheTables) {
  for (int b = 0; b < 256; ++b) {
    EXPECT_EQ(Bits(block_fields::E8m0Half(static_cast<uint8_t>(b))), Bits(quant::kE8m0Half[b])) << b;
    EXPECT_EQ(Bits(block_fields::Ue4m3Half(static_cast<uint8_t>(b))), Bits(quant::kUe4m3Half[b])) << b;
  }
  for (uint32_t c = 0; c < 128; ++c) EXPECT_EQ(block_fields::SignMask(c), quant::kSignMasks[c]) << c;
  const Codebooks books = HostCodebooks();
  for (int c = 0; c < 16; ++c) {
    EXPECT_EQ(block_fields::Level(books.iq4_levels, c), quant::kIq4Values[c]) << c;
    EXPECT_EQ(block_fields::Level(books.fp4_levels, c), quant::kFp4Values[c]) << c;
  }
}

}  // namespace
}  // namespace bellhop::kernels
