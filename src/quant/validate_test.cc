#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "quant/codec.h"
#include "quant/golden_file.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

struct Field {
  const char* format;
  int offset;  // of the f16 scale within the block
};

// From the layouts in docs/formats.md.
constexpr Field kHalfFields[] = {
    {"Q4_0", 0},  {"Q4_1", 0},   {"Q4_1", 2},    {"Q5_0", 0},   {"Q5_1", 0},   {"Q5_1", 2},    {"Q8_0", 0},
    {"Q8_1", 0},  {"Q2_K", 80},  {"Q2_K", 82},   {"Q3_K", 108}, {"Q4_K", 0},   {"Q4_K", 2},    {"Q5_K", 0},
    {"Q5_K", 2},  {"Q6_K", 208}, {"IQ2_XXS", 0}, {"IQ2_XS", 0}, {"IQ2_S", 0},  {"IQ3_XXS", 0}, {"IQ3_S", 0},
    {"IQ1_S", 0}, {"IQ4_NL", 0}, {"IQ4_XS", 0},  {"TQ1_0", 52}, {"TQ2_0", 64}, {"Q1_0", 0},    {"Q2_0", 0},
};

TEST(ValidateTest, NonFiniteHalfScalesAreFoundInAnyBlock) {
  for (const Field& field : kHalfFields) {
    const FormatTraits& t = Traits(*FormatFromName(field.format));
    for (uint16_t bad : {0x7C00, 0xFC00, 0x7C01, 0x7FFF, 0xFE00}) {
      std::vector<std::byte> row(3 * t.block_bytes);
      ASSERT_TRUE(ValidateRow(t.format, row.data(), 3 * t.block_elems).ok());
      Store(row.data() + 2 * t.block_bytes + field.offset, bad);
      const Status status = ValidateRow(t.format, row.data(), 3 * t.block_elems);
      ASSERT_EQ(status.code(), StatusCode::kCorrupt) << field.format << " at " << field.offset;
      EXPECT_NE(status.message().find("block 2"), std::string_view::npos) << status.message();
      EXPECT_NE(status.message().find(field.format), std::string_view::npos) << status.message();
      EXPECT_TRUE(ValidateRow(t.format, row.data(), 2 * t.block_elems).ok());
    }
    std::vector<std::byte> row(t.block_bytes);
    for (uint16_t good : {0x7BFF, 0xFBFF, 0x0001, 0x8000}) {
      Store(row.data() + field.offset, good);
      EXPECT_TRUE(ValidateRow(t.format, row.data(), t.block_elems).ok()) << field.format << " " << good;
    }
  }
}

TEST(ValidateTest, OtherBytesMayHoldAnything) {
  for (const FormatTraits& t : AllFormats()) {
    std::vector<std::byte> row(t.block_bytes, std::byte{0xFF});
    for (const Field& field : kHalfFields) {
      if (t.name == field.format) Store(row.data() + field.offset, uint16_t{0x3C00});
    }
    if (t.name == "Q8_1") Store(row.data() + 2, uint16_t{0x3C00});
    if (t.name == "Q8_K") Store(row.data(), 1.0f);
    if (t.name == "MXFP4") row[0] = std::byte{254};
    if (t.name == "IQ1_M") row[55] = std::byte{0x3F};
    EXPECT_TRUE(ValidateRow(t.format, row.data(), t.block_elems).ok()) << t.name;
  }
}

TEST(ValidateTest, MxfpExponent255IsCorrupt) {
  std::byte row[34] = {};
  EXPECT_TRUE(ValidateRow(WeightFormat::kMXFP4, row, 64).ok());
  row[17] = std::byte{254};
  EXPECT_TRUE(ValidateRow(WeightFormat::kMXFP4, row, 64).ok());
  row[17] = std::byte{255};
  EXPECT_EQ(ValidateRow(WeightFormat::kMXFP4, row, 64).code(), StatusCode::kCorrupt);
}

TEST(ValidateTest, ScatteredScaleOfIq1MIsChecked) {
  std::byte block[56] = {};
  block[55] = std::byte{0x70};  // top nibble of the last word: bits 12..15 of the scale
  EXPECT_TRUE(ValidateRow(WeightFormat::kIQ1M, block, 256).ok());
  block[53] = std::byte{0xB0};  // bits 8..11: 0x7B00 is finite
  EXPECT_TRUE(ValidateRow(WeightFormat::kIQ1M, block, 256).ok());
  block[53] = std::byte{0xC0};  // 0x7C00 is Inf
  EXPECT_EQ(ValidateRow(WeightFormat::kIQ1M, block, 256).code(), StatusCode::kCorrupt);
}

TEST(ValidateTest, Q8KAndQ8_1ScalesAreChecked) {
  std::byte block[292] = {};
  for (uint32_t bad : {0x7F800000u, 0xFF800000u, 0x7FC00001u}) {
    Store(block, bad);
    EXPECT_EQ(ValidateRow(WeightFormat::kQ8K, block, 256).code(), StatusCode::kCorrupt);
  }
  Store(block, 0x7F7FFFFFu);
  EXPECT_TRUE(ValidateRow(WeightFormat::kQ8K, block, 256).ok());
  std::byte activation[36] = {};
  Store(activation + 2, uint16_t{0x7C00});
  EXPECT_EQ(ValidateRow(WeightFormat::kQ8_1, activation, 32).code(), StatusCode::kCorrupt);
}

TEST(ValidateTest, PartialBlocksAreRefused) {
  std::byte block[144] = {};
  EXPECT_EQ(ValidateRow(WeightFormat::kQ4K, block, 255).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateRow(WeightFormat::kQ4K, block, -256).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ValidateRow(WeightFormat::kQ4K, nullptr, 0).ok());
}

TEST(ValidateTest, EveryReferenceRowIsValid) {
  for (WeightFormat format : GoldenFormats()) {
    const GoldenFile golden(GoldenFileName(format));
    for (int64_t r = 0; r < golden["packed"].rows(); ++r) {
      EXPECT_TRUE(ValidateRow(format, golden["packed"].Row(r).data(), kGoldenCols).ok()) << Traits(format).name << r;
    }
  }
}

}  // namespace
}  // namespace bellhop::quant
