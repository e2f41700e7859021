#include "quant/format.h"

#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <set>
#include <string>

namespace bellhop::quant {
namespace {

struct Expected {
  const char* name;
  uint32_t id, elems, bytes;
};

// Written out a second time, from the format description and not from the table under test.
constexpr Expected kExpected[] = {
    {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},      {"Q4_1", 3, 32, 20},
    {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},      {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},
    {"Q2_K", 10, 256, 84},    {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74},
    {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},   {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},
    {"IQ2_S", 22, 256, 82},   {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
    {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},        {"IQ1_M", 29, 256, 56},
    {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},   {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},
    {"NVFP4", 40, 64, 36},    {"Q1_0", 41, 128, 18},    {"Q2_0", 42, 64, 18},
};

constexpr const char* kPlanar[] = {"INT4",         "INT4_SM80",    "INT3",         "INT8",        "INT8_SM80",
                                   "MXFP4_PLANAR", "NVFP4_PLANAR", "MXFP4_KMAJOR", "NVFP4_KMAJOR"};

TEST(FormatTest, TableMatchesTheFormatDescription) {
  ASSERT_EQ(std::size(kExpected) + std::size(kPlanar), static_cast<size_t>(kWeightFormatCount));
  ASSERT_EQ(AllFormats().size(), static_cast<size_t>(kWeightFormatCount));
  for (const Expected& e : kExpected) {
    const auto format = FormatFromGgufId(e.id);
    ASSERT_TRUE(format.has_value()) << e.name;
    const FormatTraits& t = Traits(*format);
    EXPECT_EQ(t.name, e.name);
    EXPECT_EQ(t.gguf_id, e.id);
    EXPECT_EQ(t.block_elems, e.elems) << e.name;
    EXPECT_EQ(t.block_bytes, e.bytes) << e.name;
  }
}

TEST(FormatTest, EveryFormatRoundTripsThroughIdAndName) {
  std::set<uint32_t> ids;
  std::set<std::string_view> names;
  for (int i = 0; i < kWeightFormatCount; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    const FormatTraits& t = Traits(format);
    EXPECT_EQ(t.format, format);
    if (!t.planar) {
      EXPECT_EQ(FormatFromGgufId(t.gguf_id), format);
      ids.insert(t.gguf_id);
    }
    EXPECT_EQ(FormatFromName(t.name), format);
    std::string lower(t.name);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(FormatFromName(lower), format) << lower;
    names.insert(t.name);
  }
  EXPECT_EQ(ids.size(), std::size(kExpected));
  EXPECT_EQ(names.size(), static_cast<size_t>(kWeightFormatCount));
}

TEST(FormatTest, PlanarFormatsHoldWeightsButAreNotOfGguf) {
  for (const char* name : kPlanar) {
    const auto format = FormatFromName(name);
    ASSERT_TRUE(format.has_value()) << name;
    const FormatTraits& t = Traits(*format);
    EXPECT_TRUE(t.planar && t.weights) << name;
    EXPECT_EQ(t.gguf_id, kNoGgufId) << name;
    EXPECT_EQ(t.encoder, EncoderKind::kNone) << name;  // not offered by `quantize`
    EXPECT_FALSE(RowBytes(*format, 64).ok()) << name;
  }
  EXPECT_FALSE(FormatFromGgufId(kNoGgufId).has_value());
  for (const Expected& e : kExpected) EXPECT_FALSE(Traits(*FormatFromName(e.name)).planar) << e.name;
}

TEST(FormatTest, WithdrawnAndUnknownIdsAreRefused) {
  for (uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 44u, 200u, 0x80000000u, 0xFFFFFFFFu}) {
    EXPECT_FALSE(FormatFromGgufId(id).has_value()) << id;
  }
}

TEST(FormatTest, UnknownNamesAreRefused) {
  for (const char* name : {"", "Q4", "Q4_K_M", "Q4_2", " Q4_K", "Q4_K ", "F8", "Q4-K"}) {
    EXPECT_FALSE(FormatFromName(name).has_value()) << name;
  }
}

TEST(FormatTest, ScaleGroupsAreWhatTheKernelsRelyOn) {
  const auto group = [](const char* name) { return Traits(*FormatFromName(name)).scale_group; };
  for (const char* name : {"Q2_K", "Q3_K", "Q6_K", "IQ2_XS", "IQ2_S", "IQ1_M", "NVFP4"}) EXPECT_EQ(group(name), 16u);
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q4_K", "Q5_K", "IQ2_XXS", "IQ3_XXS",
                           "IQ3_S", "IQ1_S", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
    EXPECT_EQ(group(name), 32u) << name;
  }
  EXPECT_EQ(group("Q2_0"), 64u);
  EXPECT_EQ(group("Q1_0"), 128u);
  for (const char* name : {"TQ1_0", "TQ2_0", "Q8_K"}) EXPECT_EQ(group(name), 256u);
  for (const FormatTraits& t : AllFormats()) {
    if (t.planar) continue;
    if (t.block_elems == 1) {
      EXPECT_EQ(t.scale_group, 1u) << t.name;
    }
    const bool with_min =
        t.name == "Q4_1" || t.name == "Q5_1" || t.name == "Q2_K" || t.name == "Q4_K" || t.name == "Q5_K";
    EXPECT_EQ(t.has_min, with_min) << t.name;
    const bool not_weights = t.name[0] == 'I' && t.name[1] != 'Q';
    EXPECT_EQ(t.weights, !(not_weights || t.name == "F64" || t.name == "Q8_1" || t.name == "Q8_K")) << t.name;
  }
}

TEST(FormatTest, RowBytesCountsWholeBlocks) {
  EXPECT_EQ(RowBytes(WeightFormat::kQ4K, 512).value(), 288u);
  EXPECT_EQ(RowBytes(WeightFormat::kF16, 7).value(), 14u);
  EXPECT_EQ(RowBytes(WeightFormat::kQ6K, 0).value(), 0u);
  EXPECT_EQ(RowBytes(WeightFormat::kMXFP4, 2880).value(), 1530u);
}

TEST(FormatTest, RowBytesRefusesPartialBlocksAndOverflow) {
  const auto partial = RowBytes(WeightFormat::kQ4K, 300);
  ASSERT_FALSE(partial.ok());
  EXPECT_EQ(partial.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(partial.status().message().find("multiple of 256"), std::string_view::npos);

  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const auto overflow = RowBytes(WeightFormat::kF32, kMax / 4 + 1);
  ASSERT_FALSE(overflow.ok());
  EXPECT_EQ(overflow.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RowBytes(WeightFormat::kF32, kMax / 4).value(), kMax - 3);
  // Q8_K is the one packed format with more than one byte per element.
  EXPECT_FALSE(RowBytes(WeightFormat::kQ8K, kMax - kMax % 256).ok());
  EXPECT_TRUE(RowBytes(WeightFormat::kQ6K, kMax - kMax % 256).ok());
}

}  // namespace
}  // namespace bellhop::quant
