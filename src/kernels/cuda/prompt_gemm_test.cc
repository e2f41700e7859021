// Matrix products of prompts against exact ones, and what makes their input.
#include <cmath>
#include <iostream>

#include "kernels/cuda/prompt_rig_for_test.h"
#include "quant/format.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct ProductCase {
  WeightFormat format;
  MatrixLayout layout;
};

std::vector<ProductCase> AllCases() {
  std::vector<ProductCase> cases;
#define BELLHOP_BLOCK_FORMAT(F)                            \
  cases.push_back({WeightFormat::F, MatrixLayout::kFile}); \
  if (UsualLayout(WeightFormat::F) == MatrixLayout::kTiles) cases.push_back({WeightFormat::F, MatrixLayout::kTiles});
#include "kernels/block_decode.def"
#undef BELLHOP_BLOCK_FORMAT
  for (const WeightFormat planar :
       {WeightFormat::kInt4, WeightFormat::kInt3, WeightFormat::kInt8, WeightFormat::kMxfp4Planar}) {
    cases.push_back({planar, MatrixLayout::kTiles});
  }
  return cases;
}

struct Shape {
  int32_t rows, outputs, cols;
};

class PromptProductTest : public GpuTest {
 protected:
  std::vector<float> Multiply(const DeviceMatrix& w, const TermRows& x, int32_t rows, const PromptDevice& device = {}) {
    const int64_t stride = w.rows + 3;
    PromptGemmArgs args;
    args.matrix = w;
    args.x = x;
    args.rows = rows;
    args.books = rig().books();
    args.y = rig().Poisoned<float>(Size((rows + 1) * stride));
    args.y_stride = stride;
    args.device = device;
    EXPECT_EQ(LaunchPromptGemm(args, rig().queue()), cudaSuccess);
    return TakeResults(rig().Download(args.y, Size((rows + 1) * stride)), rows, w.rows, stride);
  }
};

class PromptFormatTest : public PromptProductTest, public testing::WithParamInterface<ProductCase> {};

TEST_P(PromptFormatTest, ProductsAreThoseOfRoundedRowsAndRowsDoNotSeeOneAnother) {
  const ProductCase& c = GetParam();
  const bool odd = quant::Traits(c.format).block_elems == 1;
  // Tiles take any number of columns, file rows whole pieces of 16.
  const int32_t odd_cols = !odd ? 700 : c.layout == MatrixLayout::kTiles ? 701 : 720;
  const Shape shapes[] = {{1, 37, 256}, {17, 130, 512}, {64, 16, odd_cols}, {100, 257, 1504}, {513, 72, 640}};
  uint64_t seed = 1;
  double worst = 0, worst_sum = 0;
  for (const Shape& shape : shapes) {
    const int32_t cols = odd ? shape.cols : NearestColumns(c.format, shape.cols);
    const int32_t rows = shape.rows;
    SCOPED_TRACE(testing::Message() << rows << " rows, " << shape.outputs << " x " << cols);
    const HostMatrix w = RandomHostMatrix(c.format, shape.outputs, cols, ++seed);
    const DeviceMatrix device = OnDevice(rig(), w, c.layout);
    const auto values = Normal(Size(int64_t{rows} * cols), 1, ++seed);
    const TermRows x = UploadPromptRows(rig(), values, rows, cols);
    const auto exact = ExactProduct(w, ToDoubles(values), rows);
    const auto exact_sums = ExactProduct(w, ToDoubles(RoundedToBf16(values)), rows);
    for (const PromptDevice& math : PromptDevices()) {
      SCOPED_TRACE(PromptMathName(math.math));
      const auto all = Multiply(device, x, rows, math);
      const double error = RelativeL2(all, exact), sum_error = RelativeL2(all, exact_sums);
      // Few results of one row may be smaller than what they are sums of.
      EXPECT_LE(error, rows == 1 ? 2 * kPromptTolerance : kPromptTolerance);
      EXPECT_LE(sum_error, kSumTolerance);
      worst = std::max(worst, error);
      worst_sum = std::max(worst_sum, sum_error);
      for (const int32_t first : {0, rows / 3, rows - 1}) {
        for (const int32_t count : {1, 63, rows - first}) {
          if (first + count > rows) continue;
          const auto some = Multiply(device, RowsFrom(x, first), count, math);
          EXPECT_TRUE(SameBits(some.data(), all.data() + int64_t{first} * w.rows, some.size()))
              << count << " rows from " << first;
        }
      }
    }
    rig().FreeMemory();
  }
  std::cout << "relative error " << worst << ", of sums " << worst_sum << "\n";
}

std::string CaseName(const testing::TestParamInfo<ProductCase>& info) {
  return std::string(quant::Traits(info.param.format).name) +
         (info.param.layout == MatrixLayout::kTiles ? "_tiles" : "_file");
}
INSTANTIATE_TEST_SUITE_P(AllFormats, PromptFormatTest, testing::ValuesIn(AllCases()), CaseName);

// Every kind of tile that a kernel has for its rows, and one row less and more.
TEST_F(PromptProductTest, TilesOfAnySizeGiveTheSameBits) {
  constexpr int32_t kRows = 400, kOutputs = 150;
  for (const WeightFormat format :
       {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kQ4K, WeightFormat::kQ6K, WeightFormat::kF16}) {
    const HostMatrix w = RandomHostMatrix(format, kOutputs, 256, 1);
    const DeviceMatrix device = OnDevice(rig(), w, MatrixLayout::kTiles);
    const auto values = RoundedToBf16(Normal(Size(int64_t{kRows} * w.cols), 1, 2));
    const TermRows x = UploadPromptRows(rig(), values, kRows, w.cols);
    for (const PromptDevice& math : PromptDevices()) {
      SCOPED_TRACE(testing::Message() << quant::Traits(format).name << " " << PromptMathName(math.math));
      const auto all = Multiply(device, x, kRows, math);
      EXPECT_LE(RelativeL2(all, ExactProduct(w, ToDoubles(values), kRows)), kSumTolerance);
      for (const int32_t size : {16, 32, 48, 64, 96, 128, 144, 160, 168, 192}) {
        for (const int32_t rows : {size - 1, size, size + 1}) {
          const int32_t first = (size * 7 + rows) % (kRows - rows);
          const auto some = Multiply(device, RowsFrom(x, first), rows, math);
          EXPECT_TRUE(SameBits(some.data(), all.data() + int64_t{first} * kOutputs, some.size())) << rows << " rows";
        }
      }
    }
    rig().FreeMemory();
  }
}

TEST_F(PromptProductTest, ScaleBiasAndSumsIntoTheResidual) {
  constexpr int32_t kRows = 77, kOutputs = 150;
  for (const WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ4K, WeightFormat::kF16}) {
    const int32_t cols = 512;
    const HostMatrix w = RandomHostMatrix(format, kOutputs, cols, 1);
    const auto values = RoundedToBf16(Normal(Size(kRows * cols), 1, 2));
    const auto bias = Normal(kOutputs, 5, 3), residual = Normal(Size(kRows * kOutputs), 10, 4);
    auto want = ExactProduct(w, ToDoubles(values), kRows);
    PromptGemmArgs args;
    args.matrix = OnDevice(rig(), w, MatrixLayout::kTiles);
    args.matrix.scale = 1.5f;
    args.matrix.bias = rig().Upload(bias);
    args.x = UploadPromptRows(rig(), values, kRows, cols);
    args.rows = kRows;
    args.books = rig().books();
    args.y_stride = kOutputs;
    args.adds = true;
    args.port_scale = 0.75f;
    for (size_t i = 0; i < want.size(); ++i) want[i] = residual[i] + 0.75 * (1.5 * want[i] + bias[i % kOutputs]);
    for (const PromptDevice& math : PromptDevices()) {
      args.y = rig().Upload(residual);
      args.device = math;
      ASSERT_EQ(LaunchPromptGemm(args, rig().queue()), cudaSuccess);
      EXPECT_LE(RelativeL2(rig().Download(args.y, want.size()), want), kSumTolerance) << PromptMathName(math.math);
    }
  }
}

TEST_F(PromptProductTest, DecodedTilesAreFileRowsRoundedToHalves) {
  for (const WeightFormat format :
       {WeightFormat::kQ5_0, WeightFormat::kIQ4XS, WeightFormat::kQ3K, WeightFormat::kQ8_0}) {
    const int32_t cols = NearestColumns(format, 800), rows = 70;
    const HostMatrix w = RandomHostMatrix(format, 90, cols, 1);
    const DeviceMatrix file = OnDevice(rig(), w, MatrixLayout::kFile);
    DeviceMatrix tiles;
    const uint64_t bytes = DeviceMatrixBytes(WeightFormat::kF16, w.rows, w.cols, 0);
    auto* const to = rig().PoisonedBytes(bytes + 64);
    ASSERT_EQ(LaunchDecodeTiles(file, rig().books(), to, &tiles, rig().queue()), cudaSuccess);
    const auto values = RoundedToBf16(Normal(Size(int64_t{rows} * cols), 1, 2));
    const auto got = Multiply(tiles, UploadPromptRows(rig(), values, rows, cols), rows);
    EXPECT_LE(RelativeL2(got, ExactProduct(w, ToDoubles(values), rows)), 4e-4) << quant::Traits(format).name;
    for (const uint8_t b : rig().Download(to + bytes, 64)) ASSERT_EQ(b, 0xFF) << "behind the tiles";
  }
}

TEST_F(PromptProductTest, ImpossibleProductsAreRefused) {
  PromptGemmArgs args;
  args.matrix = OnDevice(rig(), RandomHostMatrix(WeightFormat::kQ4_0, 16, 512, 1), MatrixLayout::kTiles);
  args.x = PoisonedPromptRows(rig(), 1, 256);
  args.rows = 1;
  args.y = rig().Poisoned<float>(16);
  EXPECT_EQ(LaunchPromptGemm(args, rig().queue()), cudaErrorInvalidValue) << "too few columns";
  args.x = UploadTerms(rig(), std::vector<float>(512), 1, 512, 2);
  EXPECT_EQ(LaunchPromptGemm(args, rig().queue()), cudaErrorInvalidValue) << "two terms";
}

class PromptNormTest : public GpuTest {};

TEST_F(PromptNormTest, RowsAreNormalisedAndRounded) {
  constexpr float kEpsilon = 1e-5f;
  for (const int32_t hidden : {16, 100, 1024, 2880, 5120}) {
    for (const bool normalised : {true, false}) {
      SCOPED_TRACE(testing::Message() << hidden << (normalised ? " with a norm" : ""));
      constexpr int32_t kRows = 35;
      const auto values = Normal(Size(kRows * hidden), 3, 1), norm = Normal(Size(hidden), 1, 2);
      PromptNormArgs args;
      args.values = rig().Upload(values);
      args.norm = normalised ? rig().Upload(norm) : nullptr;
      args.epsilon = kEpsilon;
      args.rows = kRows;
      args.hidden = hidden;
      args.x = PoisonedPromptRows(rig(), kRows, hidden);
      args.inverse_rms = rig().Poisoned<float>(kRows);
      ASSERT_EQ(LaunchPromptNorm(args, rig().queue()), cudaSuccess);
      const auto want = normalised ? Normalised(values, norm, kRows, kEpsilon) : ToDoubles(values);
      const auto got = DownloadPromptRows(rig(), args.x, kRows, hidden);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * (0x1p-8 + 1e-6) + 1e-37) << i;
      }
      const auto inverse = rig().Download(args.inverse_rms, kRows);
      for (int32_t m = 0; m < kRows; ++m) {
        double sum = 0;
        for (int32_t c = 0; c < hidden; ++c) sum += double{values[Size(m * hidden + c)]} * values[Size(m * hidden + c)];
        const double exact = normalised ? 1 / std::sqrt(sum / hidden + kEpsilon) : 1;
        ASSERT_NEAR(inverse[Size(m)], exact, 1e-6 * exact);
      }
      // One row alone.
      PromptNormArgs one = args;
      one.values += int64_t{20} * hidden;
      one.rows = 1;
      one.x = PoisonedPromptRows(rig(), 1, hidden);
      ASSERT_EQ(LaunchPromptNorm(one, rig().queue()), cudaSuccess);
      const auto alone = DownloadPromptRows(rig(), one.x, 1, hidden);
      EXPECT_TRUE(SameBits(alone.data(), got.data() + int64_t{20} * hidden, alone.size()));
    }
    rig().FreeMemory();
  }
}

}  // namespace
}  // namespace bellhop::kernels
