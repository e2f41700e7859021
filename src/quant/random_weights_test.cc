#include "quant/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "quant/codec.h"

namespace bellhop::quant {
namespace {

std::vector<MatrixSpec> SpecsOfEveryFormat(int64_t rows, int64_t cols) {
  std::vector<MatrixSpec> specs;
  for (const FormatTraits& t : AllFormats()) {
    if (!t.weights) continue;
    MatrixSpec spec = {.format = t.format, .rows = rows, .cols = cols};
    if (!t.planar) {
      specs.push_back(spec);
      continue;
    }
    const PlanarTraits& p = Planar(t.format);
    if (p.fp4) {
      spec.group = p.fp4_group;
      spec.scale_type = p.fp4_group == 32 ? ScaleType::kE8M0 : ScaleType::kE4M3;
      specs.push_back(spec);
      continue;
    }
    for (const ScaleType type : {ScaleType::kF16, ScaleType::kBF16, ScaleType::kF32}) {
      spec.scale_type = type;
      spec.group = 32;
      spec.zero_points = type == ScaleType::kF16;
      specs.push_back(spec);
    }
  }
  return specs;
}

TEST(RandomWeightsTest, EveryFormatIsValidFiniteAndNotTrivial) {
  for (const MatrixSpec& spec : SpecsOfEveryFormat(12, 512)) {
    const std::string name(Traits(spec.format).name);
    const OwnedMatrix m = RandomMatrix(spec, 3);
    const Status status = CheckView(m.view);
    ASSERT_TRUE(status.ok()) << status.ToString();
    std::vector<float> row(512);
    std::set<float> distinct;
    double sum = 0;
    for (int64_t r = 0; r < spec.rows; ++r) {
      DecodeRow(m.view, r, row.data());
      for (const float v : row) {
        ASSERT_TRUE(std::isfinite(v)) << name;
        ASSERT_LT(std::fabs(v), 2000.0f) << name;
        distinct.insert(v);
        sum += std::fabs(v);
      }
    }
    EXPECT_GT(distinct.size(), 15u) << name;
    EXPECT_GT(sum / (512 * 12), 1e-4) << name;
  }
}

TEST(RandomWeightsTest, DependsOnTheSeedAlone) {
  for (const MatrixSpec& spec : SpecsOfEveryFormat(8, 256)) {
    EXPECT_EQ(RandomMatrix(spec, 1).bytes, RandomMatrix(spec, 1).bytes) << Traits(spec.format).name;
    EXPECT_NE(RandomMatrix(spec, 1).bytes, RandomMatrix(spec, 2).bytes) << Traits(spec.format).name;
  }
}

TEST(RandomWeightsTest, LargeMatricesRepeatRowsInShiftingOrder) {
  // More than the few megabytes of distinct rows.
  const MatrixSpec spec = {.format = WeightFormat::kQ4_0, .rows = 12000, .cols = 2048};
  const OwnedMatrix m = RandomMatrix(spec, 5);
  const int64_t row_bytes = m.view.planes[0].row_bytes;
  const auto row = [&](int64_t r) { return std::string(reinterpret_cast<const char*>(m.view.Row(r)), row_bytes); };
  EXPECT_NE(row(11999), row(0));
  EXPECT_NE(row(11999), row(11998));
  std::vector<float> decoded(2048);
  DecodeRow(m.view, 11999, decoded.data());
  for (const float v : decoded) ASSERT_TRUE(std::isfinite(v));
}

TEST(RandomWeightsTest, WritesExactlyItsBytes) {
  for (const MatrixSpec& spec : SpecsOfEveryFormat(4, 256)) {
    const uint64_t bytes = MatrixBytes(spec);
    std::vector<std::byte> memory(bytes + 16, std::byte{0xA5});
    FillRandomMatrix(spec, {memory.data(), bytes}, 9);
    for (size_t i = bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xA5}) << Traits(spec.format).name;
  }
}

}  // namespace
}  // namespace bellhop::quant
