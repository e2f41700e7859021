// Dense matrices of a decode step against exact products of the decoded weights.
#include <cmath>

#include "kernels/cuda/gpu_rig_for_test.h"
#include "quant/format.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

constexpr int32_t kRows = kMaxStepRows;
constexpr float kEpsilon = 1e-5f;

struct TileCase {
  WeightFormat format;
  MatrixLayout layout;
};

std::vector<TileCase> AllCases() {
  std::vector<TileCase> cases;
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

// Whole blocks, and with them: one, a few, more than the warps of a block or than a warp asks for at once, chunks that
// are not full.
std::vector<int32_t> Columns(const TileCase& c) {
  // Whole scale groups, or not.
  if (quant::Traits(c.format).planar) return {32, 88, 96, 160, 352, 1312, 2336, 4640};
  const auto block = static_cast<int32_t>(quant::Traits(c.format).block_elems);
  switch (block) {
    case 1:
      // Tiles take any number of columns, file rows whole pieces of 16.
      return c.layout == MatrixLayout::kTiles ? std::vector<int32_t>{5, 37, 160, 1003, 1500}
                                              : std::vector<int32_t>{16, 80, 1008};
    case 32: return {32, 96, 352, 1312, 2336, 4640};
    case 64: return {64, 192, 1088};
    case 128: return {128, 384, 1152};
    default: return {block, 3 * block, 10 * block};
  }
}

std::vector<double> Product(const HostMatrix& w, const std::vector<double>& x, int32_t rows) {
  std::vector<double> y(static_cast<size_t>(rows) * static_cast<size_t>(w.rows));
  for (int32_t m = 0; m < rows; ++m) {
    for (int32_t r = 0; r < w.rows; ++r) {
      double sum = 0;
      for (int32_t c = 0; c < w.cols; ++c) {
        sum += double{w.weights[static_cast<size_t>(int64_t{r} * w.cols + c)]} *
               x[static_cast<size_t>(int64_t{m} * w.cols + c)];
      }
      y[static_cast<size_t>(int64_t{m} * w.rows + r)] = sum;
    }
  }
  return y;
}

std::vector<double> Doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

class TileTest : public GpuTest {
 protected:
  // Results [kRows][matrix rows] of `rows` rows in a launch of `bucket`; what lies behind them must stay poison.
  std::vector<float> Multiply(const DeviceMatrix& w, const TermRows& x, int32_t rows, int32_t bucket) {
    const int64_t stride = w.rows + 3;
    MatVecArgs args;
    args.matrices[0] = w;
    args.count = 1;
    args.x = x;
    args.rows = rig().Upload(std::vector<int32_t>{rows});
    args.books = rig().books();
    args.y[0] = rig().Poisoned<float>(static_cast<size_t>(kRows * stride));
    args.y_stride = stride;
    EXPECT_EQ(LaunchMatVec(args, bucket, rig().queue()), cudaSuccess);
    const auto y = rig().Download(args.y[0], static_cast<size_t>(kRows * stride));
    std::vector<float> packed;
    int written = 0, missing = 0;
    for (int64_t i = 0; i < kRows * stride; ++i) {
      const bool result = i / stride < rows && i % stride < w.rows;
      const bool number = !std::isnan(y[static_cast<size_t>(i)]);
      missing += result && !number ? 1 : 0;
      written += !result && number ? 1 : 0;
      if (result) packed.push_back(y[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(written, 0) << "outside of the results, rows " << rows;
    EXPECT_EQ(missing, 0) << "results that are no number, rows " << rows;
    return packed;
  }
};

class TileFormatTest : public TileTest, public testing::WithParamInterface<TileCase> {};

TEST_P(TileFormatTest, ProductsAreExactToTheTermsAndRowsDoNotSeeOneAnother) {
  const TileCase& c = GetParam();
  uint64_t seed = 1;
  for (const int32_t cols : Columns(c)) {
    const int32_t matrix_rows = cols % 3 == 0 ? 53 : cols % 3 == 1 ? 16 : 1;
    const HostMatrix w = RandomHostMatrix(c.format, matrix_rows, cols, ++seed);
    const DeviceMatrix device = OnDevice(rig(), w, c.layout);
    const auto x = Normal(static_cast<size_t>(kRows) * static_cast<size_t>(cols), 1, ++seed);
    const auto want = Product(w, Doubles(x), kRows);
    for (const int32_t terms : {2, 3}) {
      SCOPED_TRACE(testing::Message() << matrix_rows << " x " << cols << ", " << terms << " terms");
      const TermRows activations = UploadTerms(rig(), x, kRows, cols, terms);
      const auto all = Multiply(device, activations, kRows, kRows);
      EXPECT_LE(RelativeL2(all, want), Tolerance(terms));
      const auto row_size = static_cast<size_t>(matrix_rows);
      for (const int32_t rows : {1, 2, 4, 5, 8, 16}) {
        const auto some = Multiply(device, activations, rows, rows);
        EXPECT_TRUE(SameBits(some.data(), all.data(), some.size())) << rows << " rows";
      }
      const auto few = Multiply(device, activations, 3, 16);  // fewer rows than the launch is for
      EXPECT_TRUE(SameBits(few.data(), all.data(), few.size()));
      for (const int32_t row : {7, 31}) {
        const auto one = Multiply(device, RowsFrom(activations, row), 1, 1);
        EXPECT_TRUE(SameBits(one.data(), all.data() + static_cast<size_t>(row) * row_size, row_size)) << "row " << row;
      }
    }
    rig().FreeMemory();
  }
}

std::string CaseName(const testing::TestParamInfo<TileCase>& info) {
  return std::string(quant::Traits(info.param.format).name) +
         (info.param.layout == MatrixLayout::kTiles ? "_tiles" : "_file");
}
INSTANTIATE_TEST_SUITE_P(AllFormats, TileFormatTest, testing::ValuesIn(AllCases()), CaseName);

// Norm, scale, bias and divisor, for matrices that share an input; formats of their own or the same.
TEST_F(TileTest, SeveralMatricesOfOneInput) {
  constexpr int32_t kCols = 512;
  constexpr float kDivisor = 3;
  const WeightFormat mixed[3] = {WeightFormat::kQ4K, WeightFormat::kF32, WeightFormat::kIQ4XS};
  const int32_t outputs[3] = {33, 16, 70};
  const auto values = Normal(size_t{kRows} * kCols, 2, 1);
  const auto norm = Normal(kCols, 1, 2);
  const auto exact = Normalised(values, norm, kRows, kEpsilon);
  for (const bool same : {true, false}) {
    for (const int32_t terms : {2, 3}) {
      const ResidualRows x = UploadResidual(rig(), values, norm, kRows, kEpsilon, terms);
      MatVecArgs args;
      args.count = 3;
      args.x = x.terms;
      args.norm = NormOf(x);
      args.rows = rig().Upload(std::vector<int32_t>{kRows});
      args.books = rig().books();
      args.y_stride = 80;
      args.divisor = kDivisor;
      std::vector<double> want[3];
      for (int i = 0; i < 3; ++i) {
        const auto w =
            RandomHostMatrix(same ? WeightFormat::kQ6K : mixed[i], outputs[i], kCols, 3 + static_cast<uint64_t>(i));
        const auto bias = Normal(static_cast<size_t>(outputs[i]), 1, 9 + static_cast<uint64_t>(i));
        args.matrices[i] = OnDevice(rig(), w, UsualLayout(w.format));
        args.matrices[i].scale = 0.5f + static_cast<float>(i);
        if (i != 1) args.matrices[i].bias = rig().Upload(bias);
        args.y[i] = rig().Poisoned<float>(size_t{kRows} * 80);
        want[i] = Product(w, exact, kRows);
        for (size_t at = 0; at < want[i].size(); ++at) {
          want[i][at] = (want[i][at] * args.matrices[i].scale + (i != 1 ? bias[at % bias.size()] : 0.0f)) / kDivisor;
        }
      }
      ASSERT_EQ(LaunchMatVec(args, kRows, rig().queue()), cudaSuccess);
      for (int i = 0; i < 3; ++i) {
        const auto y = rig().Download(args.y[i], size_t{kRows} * 80);
        std::vector<float> got;
        for (size_t m = 0; m < kRows; ++m) {
          got.insert(got.end(), y.begin() + static_cast<std::ptrdiff_t>(m * 80),
                     y.begin() + static_cast<std::ptrdiff_t>(m * 80) + outputs[i]);
        }
        EXPECT_LE(RelativeL2(got, want[i]), 2 * Tolerance(terms)) << "matrix " << i << " terms " << terms;
      }
    }
  }
}

TEST_F(TileTest, AResidualRowGetsTheProductAndWhatTheNextNormNeeds) {
  constexpr int32_t kCols = 96;
  constexpr float kPort = 0.25f;
  for (const int32_t hidden : {200, 256}) {  // the first ends within a tile
    for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ5_1}) {
      for (const int32_t terms : {2, 3}) {
        for (const int32_t rows : {1, 5, 32}) {
          SCOPED_TRACE(testing::Message() << hidden << " " << terms << " " << rows);
          const auto w = RandomHostMatrix(format, hidden, kCols, 7);
          const auto x = Normal(size_t{kRows} * kCols, 1, 8);
          const auto values = Normal(static_cast<size_t>(kRows * hidden), 1, 9);
          const auto norm = Normal(static_cast<size_t>(hidden), 1, 10);
          MatVecArgs args;
          args.matrices[0] = OnDevice(rig(), w, UsualLayout(format));
          args.count = 1;
          args.x = UploadTerms(rig(), x, kRows, kCols, terms);
          args.rows = rig().Upload(std::vector<int32_t>{rows});
          args.books = rig().books();
          args.to_residual = true;
          args.port_scale = kPort;
          args.residual = NextResidual(rig(), UploadResidual(rig(), values, norm, kRows, kEpsilon, terms), norm, kRows);
          ASSERT_EQ(LaunchMatVec(args, rows, rig().queue()), cudaSuccess);
          auto want = Product(w, Doubles(x), kRows);
          for (size_t i = 0; i < want.size(); ++i) {
            want[i] = values[i] + (i < static_cast<size_t>(rows * hidden) ? kPort * want[i] : 0.0);
          }
          EXPECT_LE(RelativeL2(rig().Download(args.residual.values, want.size()), want), Tolerance(terms));
          ExpectResidual(rig(), args.residual, norm, rows);
          rig().FreeMemory();
        }
      }
    }
  }
}

// What starts a step leaves the residual as it is described.
TEST_F(TileTest, TheFirstKernelTakesTheStepFromPinnedMemory) {
  constexpr int32_t kHidden = 200, kMaxPages = 5, kActive = 3, kBucket = 4;
  auto* const input = new (rig().Pinned(sizeof(StepInput))) StepInput;
  auto* const embeddings = reinterpret_cast<float*>(rig().Pinned(kActive * kHidden * sizeof(float)));
  auto* const pages = reinterpret_cast<int32_t*>(rig().Pinned(kActive * kMaxPages * sizeof(int32_t)));
  const auto values = Normal(size_t{kActive} * kHidden, 1, 1), norm = Normal(kHidden, 1, 2);
  std::copy(values.begin(), values.end(), embeddings);
  *input = {
      .rows = kActive, .positions = {0, 64, 300}, .embeddings = embeddings, .pages = pages, .max_pages = kMaxPages};
  for (int32_t i = 0; i < kActive * kMaxPages; ++i) pages[i] = 100 + i;
  const std::vector<float> zeros(size_t{kActive} * kHidden);
  BeginArgs args;
  args.input = input;
  args.state = {.rows = rig().Poisoned<int32_t>(1),
                .positions = rig().Poisoned<int32_t>(kMaxStepRows),
                .pages = rig().Poisoned<int32_t>(kMaxStepRows * kMaxPages)};
  args.residual = NextResidual(rig(), UploadResidual(rig(), zeros, norm, kActive, kEpsilon, 2), norm, kActive);
  args.doorbell = rig().Upload(std::vector<cuda::DoorbellState>(1));
  ASSERT_EQ(LaunchBeginDecode(args, kBucket, rig().queue()), cudaSuccess);
  EXPECT_EQ(rig().Download(args.state.rows, 1)[0], kActive);
  EXPECT_EQ(rig().Download(args.state.positions, 3), (std::vector<int32_t>{0, 64, 300}));
  const auto copied = rig().Download(args.state.pages, size_t{kActive} * kMaxPages);
  const int32_t used[kActive] = {1, 2, 5};
  for (int32_t m = 0; m < kActive; ++m) {
    for (int32_t i = 0; i < used[m]; ++i)
      EXPECT_EQ(copied[static_cast<size_t>(m * kMaxPages + i)], 100 + m * kMaxPages + i);
  }
  EXPECT_EQ(rig().Download(args.residual.values, values.size()), values);
  ExpectResidual(rig(), args.residual, norm, kActive);
  EXPECT_EQ(rig().Download(args.doorbell, 1)[0].steps, 1u);
}

}  // namespace
}  // namespace bellhop::kernels
