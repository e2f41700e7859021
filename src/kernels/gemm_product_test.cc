// The prompt-class products: every ISA against the reference, bit for bit, and the reference against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/random_weights_for_test.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "sys/aligned_buffer.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;
using sys::Isa;

constexpr float kPoison = -12345.5f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

sys::CpuCaps CapsOf(Isa isa) {
  sys::CpuCaps caps;
  caps.isa = isa;
  return caps;
}
const GemmKernel& Reference() { return *SelectGemm(CapsOf(Isa::kReference)); }

uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }
bool SameResult(float a, float b) { return Bits(a) == Bits(b) || (std::isnan(a) && std::isnan(b)); }

// What gemm.h says of rounding to bf16.
float Rounded(float v) {
  if (std::fabs(v) < FLT_MIN) return std::copysign(0.0f, v);
  return quant::Bf16ToF32(quant::F32ToBf16(v));
}

sys::AlignedBuffer Buffer(int64_t bytes) {
  auto buffer = sys::AlignedBuffer::Create(static_cast<size_t>(bytes), MemoryTag::kWorkspace);
  EXPECT_TRUE(buffer.ok());
  std::memset(buffer->as<std::byte>().data(), 0xA5, static_cast<size_t>(bytes));
  return std::move(*buffer);
}

// What the values of a matrix look like.
enum class Values {
  kNormal,
  kWide,      // all exponents, denormals included: sums overflow
  kSmallest,  // products around the smallest normal number
  kSpecial,   // normal, with -0, denormals, Inf and a few NaN
};
constexpr Values kAllValues[] = {Values::kNormal, Values::kWide, Values::kSmallest, Values::kSpecial};

float RandomValue(Values values, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const float v = normal(random);
  const uint64_t kind = random() % 64;
  switch (values) {
    case Values::kNormal: return v;
    case Values::kWide: return std::ldexp(v, static_cast<int>(random() % 260) - 140);
    case Values::kSmallest: return std::ldexp(v, static_cast<int>(random() % 12) - 70);
    case Values::kSpecial:
      if (kind == 0) return -0.0f;
      if (kind == 1) return 1e-42f;
      if (kind == 2) return -1e-39f;
      if (kind == 3 && random() % 16 == 0) return std::numeric_limits<float>::infinity();
      if (kind == 4 && random() % 32 == 0) return std::bit_cast<float>(0x7FFFFFFFu);
      return v;
  }
  return v;
}

// Rows `pad` elements apart; the last row ends with its buffer, so that ASan sees one element too many.
struct Matrix {
  int64_t rows, cols, stride;
  std::vector<float> data;

  Matrix(int64_t r, int64_t c, int64_t pad) : rows(r), cols(c), stride(c + pad) {
    data.assign(static_cast<size_t>(stride * (r - 1) + c), kNan);
    data.shrink_to_fit();
  }
  void Randomise(Values values, std::mt19937_64& random) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) data[static_cast<size_t>(r * stride + c)] = RandomValue(values, random);
    }
  }
  MatView<const float> View() const { return {data.data(), rows, cols, stride}; }
  float At(int64_t r, int64_t c) const { return data[static_cast<size_t>(r * stride + c)]; }
  quant::QuantView Weights() const {
    return {.format = WeightFormat::kF32,
            .rows = rows,
            .cols = cols,
            .planes = {{reinterpret_cast<const std::byte*>(data.data()), stride * 4}}};
  }
};

// yt of one tile and some rows of x, computed by one kernel from end to end. Everything that must stay untouched is
// checked here.
std::vector<float> Product(const GemmKernel& kernel, const quant::QuantView& w, const Matrix& x, int terms = 1) {
  const int64_t k = w.cols, n = w.rows, padded = GemmPaddedRows(x.rows), stride = padded + 16;
  const sys::AlignedBuffer tile = Buffer(GemmTileBytes(k, terms)), packed = Buffer(GemmPackedBytes(x.rows, k));
  auto* tile_bytes = tile.as<std::byte>().data();
  std::memset(tile_bytes, 0xFF, tile.size());  // NaN: padding must be written, not only met by zeros
  auto* packed_bytes = packed.as<std::byte>().data();
  const RowDecodeKernel* decode = SelectRowDecode(w.format, CapsOf(kernel.isa));
  kernel.fill_tile({.decode = decode, .weights = &w, .terms = terms, .rows = {0, n}, .tile = tile_bytes});
  kernel.pack(x.View(), nullptr, {0, x.rows}, packed_bytes);
  const sys::AlignedBuffer out = Buffer((n + 1) * stride * 4);
  float* yt = out.as<float>().data();
  std::fill(yt, yt + (n + 1) * stride, kPoison);
  kernel.multiply({.tile = tile_bytes,
                   .terms = terms,
                   .n = n,
                   .packed = packed_bytes,
                   .rows = x.rows,
                   .k = k,
                   .yt = yt,
                   .yt_stride = stride});
  std::vector<float> result;
  for (int64_t j = 0; j <= n; ++j) {
    for (int64_t m = 0; m < stride; ++m) {
      const float v = yt[j * stride + m];
      if (j < n && m < x.rows) {
        result.push_back(v);
      } else if (j == n || m >= padded) {
        EXPECT_EQ(Bits(v), Bits(kPoison)) << "row " << j << " column " << m;
      }
    }
  }
  return result;
}

void ExpectSame(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(SameResult(got[i], want[i]))
        << what << " element " << i << ": " << std::hexfloat << got[i] << " instead of " << want[i];
  }
}

TEST(GemmSelection, EveryIsaHasAKernel) {
  for (const Isa isa : sys::kAllIsas) {
    const GemmKernel* kernel = SelectGemm(CapsOf(isa));
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ(kernel->isa, isa);
    EXPECT_TRUE(std::string(kernel->name).ends_with(isa == Isa::kReference ? "ref" : sys::IsaName(isa)));
  }
  EXPECT_EQ(AllGemmKernels().size(), std::size(sys::kAllIsas));
}

// ---- The reference
// ---------------------------------------------------------------------------------------------------

// Inputs round to bf16 once (2^-8 each, relative); a product then passes up to 16 fused roundings of its chain, two
// additions, and one for each later group.
TEST(GemmReference, MatchesDoubleWithinRounding) {
  std::mt19937_64 random(3);
  for (const int64_t k : {1, 31, 64, 777}) {
    Matrix w(9, k, 0), x(20, k, 3);
    w.Randomise(Values::kNormal, random);
    x.Randomise(Values::kNormal, random);
    const std::vector<float> got = Product(Reference(), w.Weights(), x);
    for (int64_t j = 0; j < w.rows; ++j) {
      for (int64_t m = 0; m < x.rows; ++m) {
        double exact = 0, rounded = 0, terms = 0;
        for (int64_t c = 0; c < k; ++c) {
          exact += static_cast<double>(w.At(j, c)) * x.At(m, c);
          rounded += static_cast<double>(Rounded(w.At(j, c))) * Rounded(x.At(m, c));
          terms += std::abs(static_cast<double>(w.At(j, c)) * x.At(m, c));
        }
        const double sums = (16 + 2 + static_cast<double>(k) / 32) * 0x1p-24 * terms * 1.01;
        const float y = got[static_cast<size_t>(j * x.rows + m)];
        EXPECT_LE(std::abs(y - rounded), sums) << k;
        EXPECT_LE(std::abs(y - exact), sums + (0x1p-7 + 0x1p-16) * terms) << k;
      }
    }
  }
}

// Two terms keep 16 bits of a weight: what remains is the rounding of x.
TEST(GemmReference, TwoTermsKeepTheWeights) {
  std::mt19937_64 random(12);
  Matrix w(7, 300, 0), x(18, 300, 0);
  w.Randomise(Values::kNormal, random);
  x.Randomise(Values::kNormal, random);
  const std::vector<float> got = Product(Reference(), w.Weights(), x, 2);
  for (int64_t j = 0; j < w.rows; ++j) {
    for (int64_t m = 0; m < x.rows; ++m) {
      double exact = 0, terms = 0;
      for (int64_t c = 0; c < 300; ++c) {
        const double product = static_cast<double>(w.At(j, c)) * Rounded(x.At(m, c));
        exact += product;
        terms += std::abs(product);
      }
      const double bound = (0x1p-16 + (16 + 2 + 2 * 10) * 0x1p-24 * 1.01) * terms;
      EXPECT_LE(std::abs(got[static_cast<size_t>(j * x.rows + m)] - exact), bound);
    }
  }
}

// The order of gemm.h, spelled out for one group and a bit.
TEST(GemmReference, EvenAndOddColumnsAreSummedApart) {
  Matrix w(1, 34, 0), x(1, 34, 0);
  for (int64_t c = 0; c < 34; ++c) w.data[static_cast<size_t>(c)] = 1, x.data[static_cast<size_t>(c)] = 0;
  // In one chain 2^24 + 1 would lose the 1; the odd chain keeps 1 + 1, and their sum with 2^24 is exact.
  x.data[0] = 0x1p24f;
  x.data[1] = x.data[3] = 1;
  EXPECT_EQ(Product(Reference(), w.Weights(), x)[0], 0x1p24f + 2);
  // Even columns are one chain: both ones are lost there.
  x.data[1] = x.data[3] = 0;
  x.data[2] = x.data[4] = 1;
  EXPECT_EQ(Product(Reference(), w.Weights(), x)[0], 0x1p24f);
  // The next group is a sum of its own, added last.
  x.data[2] = x.data[4] = 0;
  x.data[32] = x.data[33] = 1;
  EXPECT_EQ(Product(Reference(), w.Weights(), x)[0], 0x1p24f + 2);
}

TEST(GemmReference, DenormalsAreZeros) {
  Matrix w(1, 2, 0), x(1, 2, 0);
  w.data = {1e-39f, 0};
  x.data = {0x1p30f, 0};
  EXPECT_EQ(Bits(Product(Reference(), w.Weights(), x)[0]), 0u);  // a denormal weight
  w.data = {0x1p-70f, 0};
  x.data = {0x1p-70f, 0};
  EXPECT_EQ(Bits(Product(Reference(), w.Weights(), x)[0]), 0u);  // a denormal product
  w.data = {0x1p-63f, 0x1p-63f};
  x.data = {0x1p-63f, -0x1.fep-64f};  // 2^-126 minus a little less: the difference is a denormal
  EXPECT_EQ(Bits(Product(Reference(), w.Weights(), x)[0]), Bits(0x1p-126f));
}

// ---- Every ISA
// -------------------------------------------------------------------------------------------------------

class GemmConformance : public ::testing::TestWithParam<GemmKernel> {
 protected:
  void SetUp() override {
    if (GetParam().isa > sys::DetectCpu().isa) {
      GTEST_SKIP() << "this CPU lacks " << sys::IsaName(GetParam().isa) << "; the kernel was not tested";
    }
  }
};

TEST_P(GemmConformance, EqualsTheReferenceBitForBit) {
  std::mt19937_64 random(1);
  const int64_t ks[] = {1, 2, 17, 31, 32, 33, 64, 95, 100, 128, 160, 257, 320, 47};
  for (int round = 0; round < 56; ++round) {
    const int64_t k = ks[round % 14];
    const int64_t n = 1 + static_cast<int64_t>(random() % 32), m = 1 + static_cast<int64_t>(random() % 130);
    const Values values = kAllValues[round / 14];
    const int terms = 1 + round % 2;
    Matrix w(n, k, round % 3), x(m, k, round % 5);
    w.Randomise(values, random);
    x.Randomise(values, random);
    ExpectSame(Product(GetParam(), w.Weights(), x, terms), Product(Reference(), w.Weights(), x, terms),
               std::to_string(terms) + " terms, n " + std::to_string(n) + " m " + std::to_string(m) + " k " +
                   std::to_string(k));
    if (HasFatalFailure()) return;
  }
}

// Full and nearly full tiles, one row, and more rows than a kernel takes at once.
TEST_P(GemmConformance, EveryCornerOfTheTileEqualsTheReference) {
  std::mt19937_64 random(2);
  for (const int64_t n : {1, 7, 8, 15, 16, 17, 31, 32}) {
    for (const int64_t m : {1, 15, 16, 17, 33, 48, 64, 81}) {
      Matrix w(n, 70, 0), x(m, 70, 0);
      w.Randomise(Values::kNormal, random);
      x.Randomise(Values::kNormal, random);
      for (const int terms : {1, 2}) {
        ExpectSame(Product(GetParam(), w.Weights(), x, terms), Product(Reference(), w.Weights(), x, terms),
                   std::to_string(terms) + " terms, n " + std::to_string(n) + " m " + std::to_string(m));
      }
      if (HasFatalFailure()) return;
    }
  }
}

// A row's products do not depend on the rows beside it, nor on where a call begins.
TEST_P(GemmConformance, ARowDoesNotDependOnTheOthers) {
  std::mt19937_64 random(4);
  Matrix w(24, 96, 0), x(70, 96, 0);
  w.Randomise(Values::kNormal, random);
  x.Randomise(Values::kNormal, random);
  const std::vector<float> all = Product(GetParam(), w.Weights(), x);
  for (const int64_t m : {0, 16, 37, 69}) {
    Matrix one(1, 96, 0);
    std::copy_n(x.data.data() + m * 96, 96, one.data.data());
    const std::vector<float> alone = Product(GetParam(), w.Weights(), one);
    for (int64_t j = 0; j < 24; ++j) {
      EXPECT_EQ(Bits(alone[static_cast<size_t>(j)]), Bits(all[static_cast<size_t>(j * 70 + m)]));
    }
  }
}

// Rows 14 .. 18 of a tile: they touch both of its halves.
constexpr int64_t kFilledRows = 5, kFirstFilled = 14;

// Columns [first, first + 16) of a tile's rows 14 .. 18, by products with unit vectors.
std::vector<float> TileColumns(const GemmKernel& kernel, const std::byte* tile, int64_t k, int64_t first) {
  Matrix x(16, k, 0);
  std::fill(x.data.begin(), x.data.end(), 0.0f);
  for (int64_t m = 0; m < 16 && first + m < k; ++m) x.data[static_cast<size_t>(m * k + first + m)] = 1;
  const sys::AlignedBuffer packed = Buffer(GemmPackedBytes(16, k));
  kernel.pack(x.View(), nullptr, {0, 16}, packed.as<std::byte>().data());
  std::vector<float> yt(19 * 16);
  kernel.multiply({.tile = tile,
                   .n = 19,
                   .packed = packed.as<std::byte>().data(),
                   .rows = 16,
                   .k = k,
                   .yt = yt.data(),
                   .yt_stride = 16});
  return {yt.begin() + kFirstFilled * 16, yt.end()};
}

// The tile holds the decoded values, rounded once; the rows around them keep what they had.
void ExpectTileOf(const GemmKernel& kernel, const quant::FormatTraits& t, int64_t k, ScaleRange scales,
                  std::mt19937_64& random) {
  const auto row_bytes = static_cast<int64_t>(quant::RowBytes(t.format, static_cast<uint64_t>(k)).value());
  std::vector<std::byte> bytes(static_cast<size_t>(1 + kFilledRows * row_bytes));  // at an odd address
  std::vector<float> want(static_cast<size_t>(kFilledRows * k));
  for (int64_t r = 0; r < kFilledRows; ++r) {
    std::byte* row = bytes.data() + 1 + r * row_bytes;
    FillRandomWeights(t.format, k, scales, random, row);
    quant::DecodeRow(t.format, row, k, want.data() + r * k);
  }
  const quant::QuantView w{
      .format = t.format, .rows = kFilledRows, .cols = k, .planes = {{bytes.data() + 1, row_bytes}}};
  const sys::AlignedBuffer tile = Buffer(GemmTileBytes(k, 1));
  auto* tile_bytes = tile.as<std::byte>().data();
  std::memset(tile_bytes, 0, tile.size());
  const RowDecodeKernel* decode = SelectRowDecode(t.format, CapsOf(kernel.isa));
  const auto fill = [&](RowRange rows, int64_t first_row) {
    kernel.fill_tile({.decode = decode, .weights = &w, .rows = rows, .first_row = first_row, .tile = tile_bytes});
  };
  fill({0, 2}, kFirstFilled);
  fill({2, kFilledRows}, kFirstFilled + 2);
  for (const int64_t first : {int64_t{0}, std::max<int64_t>(k - 90, 0) / 32 * 32, std::max<int64_t>(k - 16, 0)}) {
    const std::vector<float> got = TileColumns(kernel, tile_bytes, k, first);
    for (int64_t r = 0; r < kFilledRows; ++r) {
      const float* row = want.data() + r * k;
      const int64_t odd_ones = std::count_if(row, row + k, [](float v) { return !std::isfinite(v); });
      for (int64_t c = first; c < std::min(first + 16, k); ++c) {
        // A NaN or Inf elsewhere in the row makes NaN of its product with zero.
        const bool nan = odd_ones > (std::isinf(row[c]) ? 1 : 0);
        const float expected = nan ? kNan : Rounded(row[c]) + 0.0f;
        const float v = got[static_cast<size_t>(r * 16 + c - first)];
        ASSERT_TRUE(SameResult(v, expected))
            << t.name << " row " << r << " column " << c << " of " << k << ": " << v << " instead of " << expected;
      }
    }
  }
}

TEST_P(GemmConformance, TilesHoldTheRoundedWeights) {
  std::mt19937_64 random(5);
  for (const quant::FormatTraits& t : quant::AllFormats()) {
    const RowDecodeKernel* decode = SelectRowDecode(t.format, CapsOf(GetParam().isa));
    if (decode == nullptr || decode->slice != nullptr) continue;  // planar formats have a test of their own
    const auto block = static_cast<int64_t>(t.block_elems);
    const int64_t step = block == 1 ? 11 : block;
    // Rows of one block, of several, and beyond the pieces in which rows are decoded.
    for (const int64_t k : {step, 3 * step, 2048 + 3 * step}) {
      for (const ScaleRange scales : {ScaleRange::kModerate, ScaleRange::kAnyBits}) {
        ExpectTileOf(GetParam(), t, k, scales, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Every format, with more columns than a kernel may take at once, a tile of two parts.
TEST_P(GemmConformance, FillMultiplyIsFillThenMultiply) {
  const GemmKernel& kernel = GetParam();
  std::mt19937_64 random(13);
  int round = 0;
  for (const quant::FormatTraits& t : quant::AllFormats()) {
    const RowDecodeKernel* decode = SelectRowDecode(t.format, CapsOf(kernel.isa));
    if (decode == nullptr || decode->slice != nullptr) continue;
    const int64_t k = 1024 + (t.block_elems == 1 ? 77 : 3 * static_cast<int64_t>(t.block_elems));
    const int64_t m = std::vector<int64_t>{16, 33, 64, 90}[static_cast<size_t>(round % 4)];
    const int64_t n = std::vector<int64_t>{32, 9, 30, 16, 22}[static_cast<size_t>(round % 5)];
    const int terms = 1 + round++ % 3 / 2;
    const auto row_bytes = static_cast<int64_t>(quant::RowBytes(t.format, static_cast<uint64_t>(k)).value());
    std::vector<std::byte> bytes(static_cast<size_t>(n * row_bytes));
    for (int64_t r = 0; r < n; ++r) {
      FillRandomWeights(t.format, k, ScaleRange::kModerate, random, bytes.data() + r * row_bytes);
    }
    const quant::QuantView w{.format = t.format, .rows = n, .cols = k, .planes = {{bytes.data(), row_bytes}}};
    Matrix x(m, k, 0);
    x.Randomise(Values::kNormal, random);
    const sys::AlignedBuffer tile = Buffer(GemmTileBytes(k, terms)), packed = Buffer(GemmPackedBytes(m, k));
    kernel.pack(x.View(), nullptr, {0, m}, packed.as<std::byte>().data());
    const int64_t stride = GemmPaddedRows(m), middle = n / 2;
    std::vector<float> got(static_cast<size_t>(n * stride)), rows;
    FillArgs parts[2] = {{.decode = decode, .weights = &w, .terms = terms, .rows = {0, middle}},
                         {.decode = decode, .weights = &w, .terms = terms, .rows = {middle, n}, .first_row = middle}};
    for (FillArgs& part : parts) part.tile = tile.as<std::byte>().data();
    kernel.fill_multiply(parts, 2,
                         {.tile = parts[0].tile,
                          .terms = terms,
                          .n = n,
                          .packed = packed.as<std::byte>().data(),
                          .rows = m,
                          .k = k,
                          .yt = got.data(),
                          .yt_stride = stride});
    for (int64_t j = 0; j < n; ++j) rows.insert(rows.end(), got.data() + j * stride, got.data() + j * stride + m);
    ExpectSame(rows, Product(kernel, w, x, terms), std::string(t.name));
    if (HasFatalFailure()) return;
  }
}

TEST_P(GemmConformance, PackedRowsAreTheSameBytes) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 24; ++round) {
    const int64_t k = 1 + static_cast<int64_t>(random() % 200), rows = 1 + static_cast<int64_t>(random() % 60);
    Matrix x(rows + 7, k, round % 4);
    x.Randomise(kAllValues[round % 4], random);
    std::vector<int32_t> order(static_cast<size_t>(rows));
    for (int32_t& r : order) r = static_cast<int32_t>(random() % static_cast<uint64_t>(rows + 7));
    const int32_t* chosen = round % 2 == 0 ? order.data() : nullptr;
    const int64_t bytes = GemmPackedBytes(rows, k);
    const sys::AlignedBuffer want = Buffer(bytes), got = Buffer(bytes);
    Reference().pack(x.View(), chosen, {0, rows}, want.as<std::byte>().data());
    // In two parts, as two workers would.
    const int64_t middle = std::min(rows, rows / 2 / 16 * 16);
    GetParam().pack(x.View(), chosen, {middle, rows}, got.as<std::byte>().data());
    if (middle > 0) GetParam().pack(x.View(), chosen, {0, middle}, got.as<std::byte>().data());
    EXPECT_EQ(std::memcmp(want.as<std::byte>().data(), got.as<std::byte>().data(), static_cast<size_t>(bytes)), 0)
        << rows << " rows of " << k;
  }
}

TEST_P(GemmConformance, PackingATransposedMatrixIsPackingTheMatrix) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 24; ++round) {
    const int64_t k = 1 + static_cast<int64_t>(random() % 150), rows = 1 + static_cast<int64_t>(random() % 50);
    Matrix x(rows, k, 0), xt(k, rows, round % 3);
    x.Randomise(kAllValues[round % 4], random);
    for (int64_t c = 0; c < k; ++c) {
      for (int64_t r = 0; r < rows; ++r) xt.data[static_cast<size_t>(c * xt.stride + r)] = x.At(r, c);
    }
    const int64_t bytes = GemmPackedBytes(rows, k);
    const sys::AlignedBuffer want = Buffer(bytes), got = Buffer(bytes);
    Reference().pack(x.View(), nullptr, {0, rows}, want.as<std::byte>().data());
    for (int64_t begin = 0; begin < k;) {  // pieces of even width, the last one to the end
      int64_t width = 2 * (1 + static_cast<int64_t>(random() % 20));
      if (begin + width >= k - 1) width = k - begin;
      GetParam().pack_transposed({xt.data.data() + begin * xt.stride, width, rows, xt.stride}, begin, k,
                                 got.as<std::byte>().data());
      begin += width;
    }
    EXPECT_EQ(std::memcmp(want.as<std::byte>().data(), got.as<std::byte>().data(), static_cast<size_t>(bytes)), 0)
        << rows << " rows of " << k;
  }
}

TEST_P(GemmConformance, TransposeStoreScalesAndAddsTheBias) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 32; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(random() % 32), rows = 1 + static_cast<int64_t>(random() % 50);
    const int64_t stride = GemmPaddedRows(rows), y_stride = n + 5;
    Matrix yt(n, stride, 0), bias(1, n, 0);
    yt.Randomise(kAllValues[round % 4], random);
    bias.Randomise(Values::kNormal, random);
    const float scale = round % 3 == 0 ? 1.0f : 0.37f;
    const float* added = round % 2 == 0 ? bias.data.data() : nullptr;
    std::vector<float> y(static_cast<size_t>((rows - 1) * y_stride + n), kPoison);
    y.shrink_to_fit();
    GetParam().transpose_store({.yt = yt.data.data(),
                                .yt_stride = stride,
                                .n = n,
                                .rows = rows,
                                .scale = scale,
                                .bias = added,
                                .y = y.data(),
                                .y_stride = y_stride});
    for (size_t i = 0; i < y.size(); ++i) {
      const auto m = static_cast<int64_t>(i) / y_stride, j = static_cast<int64_t>(i) % y_stride;
      float want = kPoison;
      if (j < n) {
        want = yt.At(j, m) * scale;
        if (added != nullptr) want += bias.data[static_cast<size_t>(j)];
      }
      ASSERT_TRUE(SameResult(y[i], want)) << "row " << m << " column " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, GemmConformance,
                         ::testing::ValuesIn(AllGemmKernels().begin(), AllGemmKernels().end()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bellhop::kernels
