#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "quant/codec.h"
#include "quant/golden_file.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

std::vector<WeightFormat> FormatsWith(EncoderKind kind) {
  std::vector<WeightFormat> formats;
  for (const FormatTraits& t : AllFormats()) {
    if (t.encoder == kind) formats.push_back(t.format);
  }
  return formats;
}

std::string FormatName(const ::testing::TestParamInfo<WeightFormat>& info) {
  return std::string(Traits(info.param).name);
}

std::vector<std::byte> Encode(WeightFormat format, std::span<const float> x, const float* importance = nullptr) {
  std::vector<std::byte> packed(RowBytes(format, x.size()).value());
  const Status status = EncodeRow(format, x.data(), static_cast<int64_t>(x.size()), importance, packed.data());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return packed;
}

std::vector<float> Decode(WeightFormat format, std::span<const std::byte> packed, size_t count) {
  std::vector<float> y(count);
  DecodeRow(format, packed.data(), static_cast<int64_t>(count), y.data());
  return y;
}

// Root of the weighted squared error over the weighted squared values; `importance` may be null.
double RelativeError(std::span<const float> x, std::span<const float> y, const float* importance = nullptr) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double w = importance == nullptr ? 1.0 : importance[i];
    const double e = static_cast<double>(y[i]) - x[i];
    error += w * e * e;
    norm += w * static_cast<double>(x[i]) * x[i];
  }
  return norm > 0.0 ? std::sqrt(error / norm) : std::sqrt(error);
}

std::vector<float> Gaussian(size_t n, unsigned seed, float width) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0.0f, width);
  std::vector<float> x(n);
  for (float& v : x) v = dist(rng);
  return x;
}

class ExactEncoderTest : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(ExactEncoderTest, EveryByteMatches) {
  ASSERT_TRUE(GoldenManifest()["types"][std::string(Traits(GetParam()).name)]["encoder"]["bit_exact_rule_in_spec"]);
  const GoldenFile golden(GoldenFileName(GetParam()));
  const std::vector<float> weights = GoldenFile("inputs.bin")["weights"].Floats();
  for (int64_t r = 0; r < kGoldenEncodedRows; ++r) {
    const std::span<const float> x(weights.data() + r * kGoldenCols, kGoldenCols);
    const auto want = golden["packed"].Row(r);
    std::vector<std::byte> got = Encode(GetParam(), x);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "row " << r << " byte " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, ExactEncoderTest, ::testing::ValuesIn(FormatsWith(EncoderKind::kExact)),
                         FormatName);

TEST(EncodeTest, ActivationRowsMatch) {
  const GoldenFile inputs("inputs.bin");
  const std::vector<float> activations = inputs["activations"].Floats();
  const std::pair<const char*, WeightFormat> kCases[] = {{"act_f16", WeightFormat::kF16},
                                                         {"act_bf16", WeightFormat::kBF16},
                                                         {"act_q8_0", WeightFormat::kQ8_0},
                                                         {"act_q8_1", WeightFormat::kQ8_1},
                                                         {"act_q8_k", WeightFormat::kQ8K}};
  for (const auto& [section, format] : kCases) {
    for (int64_t r = 0; r < 4; ++r) {
      const auto got = Encode(format, {activations.data() + r * kGoldenCols, kGoldenCols});
      const auto want = inputs[section].Row(r);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << section << " row " << r;
    }
  }
}

class SearchEncoderTest : public ::testing::TestWithParam<WeightFormat> {
 protected:
  const nlohmann::json& Reference() const {
    return GoldenManifest()["types"][std::string(Traits(GetParam()).name)]["relative_rms_error"];
  }
  std::vector<float> weights_ = GoldenFile("inputs.bin")["weights"].Floats();
  std::vector<float> importance_ = GoldenFile("inputs.bin")["importance"].Floats();

  std::span<const float> Row(int64_t r) const { return {weights_.data() + r * kGoldenCols, kGoldenCols}; }
};

TEST_P(SearchEncoderTest, ErrorOfEveryRowIsWithinTwoPercentOfTheReference) {
  double sum = 0.0;
  for (int64_t r = 0; r < kGoldenEncodedRows; ++r) {
    const std::span<const float> x = Row(r);
    const double error = RelativeError(x, Decode(GetParam(), Encode(GetParam(), x), x.size()));
    if (r < 8) sum += error / 8;
    const nlohmann::json& want = Reference()["per_row"][static_cast<size_t>(r)];
    if (want.is_null()) {
      EXPECT_EQ(error, 0.0) << "row " << r;
    } else {
      // Rows that a block can hold exactly: both errors are rounding of the f16 scale, at most 2^-11.
      EXPECT_LE(error, std::max(want.get<double>() * 1.02, 0x1p-11)) << "row " << r;
    }
    printf("%s row %d %.6g ref %s\n", std::string(Traits(GetParam()).name).c_str(), (int)r, error, want.dump().c_str());
  }
  printf("%s MEAN %.6g ref %g\n", std::string(Traits(GetParam()).name).c_str(), sum,
         Reference()["mean_rows_0_7"].get<double>());
  EXPECT_LE(sum, Reference()["mean_rows_0_7"].get<double>());
}

TEST_P(SearchEncoderTest, ImportanceLowersTheWeightedError) {
  // The reference rates rows 0..7 as one, each column weighted by its importance.
  const std::span<const float> x(weights_.data(), 8 * kGoldenCols);
  std::vector<float> importance;
  for (int r = 0; r < 8; ++r) importance.insert(importance.end(), importance_.begin(), importance_.end());
  const auto rate = [&](std::span<const std::byte> packed) {
    return RelativeError(x, Decode(GetParam(), packed, x.size()), importance.data());
  };

  const nlohmann::json& reference = Reference()["importance_weighted_rows_0_7"];
  const GoldenFile golden(GoldenFileName(GetParam()));
  ASSERT_NEAR(rate(golden["packed"].bytes), reference["packed"].get<double>(), 1e-5);

  const double plain = rate(Encode(GetParam(), x));
  const double weighted = rate(Encode(GetParam(), x, importance.data()));
  EXPECT_LT(weighted, plain);
  EXPECT_LE(weighted, reference["packed_importance"].get<double>() * 1.02);
}

TEST_P(SearchEncoderTest, BlocksDoNotInfluenceEachOther) {
  const FormatTraits& t = Traits(GetParam());
  const auto whole = Encode(GetParam(), Row(1), importance_.data());
  for (size_t e = 0, b = 0; e < kGoldenCols; e += t.block_elems, b += t.block_bytes) {
    const auto part = Encode(GetParam(), Row(1).subspan(e, t.block_elems), importance_.data() + e);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + b, part.size()), 0) << "element " << e;
  }
}

TEST_P(SearchEncoderTest, ImportanceScaleIsIrrelevant) {
  std::vector<float> scaled = importance_;
  for (float& w : scaled) w *= 0x1p90f;
  EXPECT_EQ(Encode(GetParam(), Row(3), scaled.data()), Encode(GetParam(), Row(3), importance_.data()));
}

TEST_P(SearchEncoderTest, ZeroImportanceCountsAsNone) {
  const std::vector<float> zeros(kGoldenCols, 0.0f);
  EXPECT_EQ(Encode(GetParam(), Row(2), zeros.data()), Encode(GetParam(), Row(2)));
}

TEST_P(SearchEncoderTest, ExtremeMagnitudesStayValid) {
  for (float width : {1e-38f, 1e-30f, 1e-12f, 1e-7f, 1e-5f, 1e4f}) {
    const std::vector<float> x = Gaussian(256, 7, width);
    const auto packed = Encode(GetParam(), x);
    EXPECT_TRUE(ValidateRow(GetParam(), packed.data(), 256).ok()) << width;
    EXPECT_LE(RelativeError(x, Decode(GetParam(), packed, 256)), 1.0 + 1e-6) << width;
  }
}

TEST_P(SearchEncoderTest, ValuesBeyondTheHalfScaleAreRefused) {
  for (float width : {1e13f, 1e30f, 1e37f}) {
    const std::vector<float> x = Gaussian(256, 11, width);
    std::vector<std::byte> packed(RowBytes(GetParam(), 256).value());
    const Status status = EncodeRow(GetParam(), x.data(), 256, nullptr, packed.data());
    ASSERT_FALSE(status.ok()) << width;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  // Within the range that is searched, but above what the largest half scale reaches.
  std::vector<float> x = Gaussian(256, 13, 1.0f);
  for (float& v : x) v = v < 0.0f ? -5e8f : 4e8f;
  std::vector<std::byte> packed(RowBytes(GetParam(), 256).value());
  EXPECT_EQ(EncodeRow(GetParam(), x.data(), 256, nullptr, packed.data()).code(), StatusCode::kInvalidArgument);
}

TEST_P(SearchEncoderTest, BadImportanceIsRefused) {
  std::vector<std::byte> packed(RowBytes(GetParam(), kGoldenCols).value());
  for (float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> importance = importance_;
    importance[300] = bad;
    const Status status = EncodeRow(GetParam(), weights_.data(), kGoldenCols, importance.data(), packed.data());
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("300"), std::string_view::npos) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, SearchEncoderTest, ::testing::ValuesIn(FormatsWith(EncoderKind::kSearch)),
                         FormatName);

class EveryEncoderTest : public ::testing::TestWithParam<WeightFormat> {};

std::vector<WeightFormat> PackedFormatsWithEncoder() {
  std::vector<WeightFormat> formats;
  for (const FormatTraits& t : AllFormats()) {
    if (t.encoder != EncoderKind::kNone && t.block_elems > 1) formats.push_back(t.format);
  }
  return formats;
}

TEST_P(EveryEncoderTest, NonFiniteValuesAreRefusedByPlace) {
  std::vector<std::byte> packed(RowBytes(GetParam(), 256).value());
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = Gaussian(256, 3, 1.0f);
    x[77] = bad;
    const Status status = EncodeRow(GetParam(), x.data(), 256, nullptr, packed.data());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("element 77"), std::string_view::npos) << status.message();
  }
}

TEST_P(EveryEncoderTest, PartialBlocksAreRefused) {
  std::vector<float> x(256, 1.0f);
  std::vector<std::byte> packed(RowBytes(GetParam(), 256).value());
  EXPECT_EQ(EncodeRow(GetParam(), x.data(), Traits(GetParam()).block_elems - 1, nullptr, packed.data()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeRow(GetParam(), x.data(), -256, nullptr, packed.data()).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(EncodeRow(GetParam(), x.data(), 0, nullptr, packed.data()).ok());
}

TEST_P(EveryEncoderTest, ZeroAndSubnormalRowsDecodeToAlmostNothing) {
  for (float v : {0.0f, -0.0f, 1e-45f, -3e-39f, 1e-38f}) {
    const std::vector<float> x(256, v);
    const auto packed = Encode(GetParam(), x);
    for (float y : Decode(GetParam(), packed, 256)) ASSERT_LE(std::fabs(y - v), 1e-37f) << v;
  }
}

TEST_P(EveryEncoderTest, DestinationNeedsNoAlignmentAndKeepsItsSurroundings) {
  const std::vector<float> x = Gaussian(512, 5, 0.3f);
  const auto want = Encode(GetParam(), x);
  std::vector<std::byte> got(want.size() + 4, std::byte{0xA5});
  ASSERT_TRUE(EncodeRow(GetParam(), x.data(), 512, nullptr, got.data() + 3).ok());
  EXPECT_EQ(std::memcmp(got.data() + 3, want.data(), want.size()), 0);
  for (size_t i : {size_t{0}, size_t{1}, size_t{2}, got.size() - 1}) EXPECT_EQ(got[i], std::byte{0xA5});
}

INSTANTIATE_TEST_SUITE_P(AllFormats, EveryEncoderTest, ::testing::ValuesIn(PackedFormatsWithEncoder()), FormatName);

TEST(EncodeTest, FormatsWithoutEncoderAreRefused) {
  float x[256] = {};
  std::byte packed[4096];
  int refused = 0;
  for (const FormatTraits& t : AllFormats()) {
    const Status status = EncodeRow(t.format, x, 256, nullptr, packed);
    EXPECT_EQ(status.ok(), t.encoder != EncoderKind::kNone) << t.name;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << t.name;
      ++refused;
    }
  }
  EXPECT_EQ(refused, 21);  // F64, four integer types, seven IQ types, nine planar ones
}

TEST(EncodeTest, ExactEncodersRefuseValuesBeyondTheHalfScale) {
  const std::vector<float> x = Gaussian(256, 1, 1e30f);
  std::byte packed[4096];
  for (WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_1, WeightFormat::kQ8_0,
                              WeightFormat::kQ1_0, WeightFormat::kTQ2_0}) {
    EXPECT_EQ(EncodeRow(format, x.data(), 256, nullptr, packed).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(EncodeRow(WeightFormat::kMXFP4, x.data(), 256, nullptr, packed).ok());  // its scale reaches 2^126
}

TEST(EncodeTest, PlainFormatsPassNanThrough) {
  const float x[2] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()};
  std::byte packed[8];
  ASSERT_TRUE(EncodeRow(WeightFormat::kF16, x, 2, nullptr, packed).ok());
  EXPECT_EQ(Load<uint16_t>(packed), 0x7E00);
  EXPECT_EQ(Load<uint16_t>(packed + 2), 0xFC00);
  ASSERT_TRUE(EncodeRow(WeightFormat::kF32, x, 2, nullptr, packed).ok());
  EXPECT_EQ(std::memcmp(packed, x, 8), 0);
}

TEST(EncodeTest, NvfpScalesSaturateAndUnderflowByRule) {
  std::byte packed[36];
  const auto scale_for = [&](float amax) {
    std::vector<float> x(64, 0.0f);
    x[0] = amax;
    EXPECT_TRUE(EncodeRow(WeightFormat::kNVFP4, x.data(), 64, nullptr, packed).ok());
    return std::to_integer<int>(packed[0]);
  };
  EXPECT_EQ(scale_for(6.0f * 248.0f), 0x7E);
  EXPECT_EQ(scale_for(6.0f * 247.0f), 0x77);
  EXPECT_EQ(scale_for(1e30f), 0x7E);
  EXPECT_EQ(scale_for(6.0f), 0x38);            // 1.0
  EXPECT_EQ(scale_for(6.0f * 0x1p-9f), 0x01);  // smallest subnormal
  EXPECT_EQ(scale_for(6.0f * 0x1p-11f), 0x00);
  EXPECT_EQ(scale_for(6.0f * 7.6f * 0x1p-9f), 0x07);  // capped below the normals
}

}  // namespace
}  // namespace bellhop::quant
