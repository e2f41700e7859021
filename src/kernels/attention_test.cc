#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<AttentionKernel> UsableKernels() {
  const sys::CpuCaps caps = sys::DetectCpu();
  std::vector<AttentionKernel> usable;
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    if (kernel.isa <= caps.isa) usable.push_back(kernel);
  }
  return usable;
}

struct Shape {
  KvType type = KvType::kF16;
  int32_t group = 1, key_dim = 64, value_dim = 64;
  int64_t begin = 0, end = 1;  // what the last row sees
  bool sinks = false;
  int64_t padding_bytes = 0;  // between rows of K and V
  int64_t rows = 1;           // row r sees rows - 1 - r positions less at the end
  int64_t window = 0;         // > 0: row r sees the last `window` positions before its end, whatever `begin` is

  std::string ToString() const {
    return "type " + std::to_string(static_cast<int>(type)) + " group " + std::to_string(group) + " dims " +
           std::to_string(key_dim) + "/" + std::to_string(value_dim) + " positions " + std::to_string(begin) + ".." +
           std::to_string(end) + " rows " + std::to_string(rows) + " window " + std::to_string(window) +
           (sinks ? " sinks" : "");
  }
  int64_t End(int64_t row) const { return end - (rows - 1 - row); }
  int64_t Begin(int64_t row) const { return window > 0 ? std::max<int64_t>(0, End(row) - window) : begin; }
};

float RoundToType(KvType type, float x) {
  switch (type) {
    case KvType::kF32: return x;
    case KvType::kF16: return quant::F16ToF32(quant::F32ToF16(x));
    case KvType::kBF16: return quant::Bf16ToF32(quant::F32ToBf16(x));
  }
  return x;
}

// A block table whose pages lie in a mixed order; entries of pages that nobody sees are far out of bounds.
std::vector<int32_t> MixedPages(int64_t begin, int64_t end) {
  const int64_t first = begin / kKvPageTokens, last = (end + kKvPageTokens - 1) / kKvPageTokens;
  std::vector<int32_t> order;
  for (int64_t p = first; p < last; ++p) order.push_back(static_cast<int32_t>(p - first));
  std::reverse(order.begin(), order.end() - (order.size() > 1 ? 1 : 0));  // the last page stays last in memory
  std::vector<int32_t> pages(static_cast<size_t>(last), INT32_MAX / 2);
  for (int64_t p = first; p < last; ++p) pages[static_cast<size_t>(p)] = order[static_cast<size_t>(p - first)];
  return pages;
}

// One side of a paged cache. Every byte outside the visible rows holds NaN, and the memory ends with the last visible
// row, so that a stray read shows.
class Pages {
 public:
  Pages(KvType type, int32_t dim, int64_t begin, int64_t end, int64_t padding_bytes, const std::vector<int32_t>& pages)
      : type_(type), row_bytes_(dim * KvTypeBytes(type) + padding_bytes), pages_(pages) {
    const int64_t last = (end - 1) / kKvPageTokens;
    const int64_t bytes = end > begin ? (last - begin / kKvPageTokens) * page_bytes() +
                                            (end - last * kKvPageTokens) * row_bytes_ - padding_bytes
                                      : 0;
    storage_ = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
    std::memset(storage_.get(), 0xFF, static_cast<size_t>(bytes));
  }

  void Set(int64_t position, int32_t i, float value) {
    std::byte* const at = Address(position, i);
    if (type_ == KvType::kF32) {
      std::memcpy(at, &value, 4);
    } else {
      const uint16_t half = type_ == KvType::kF16 ? quant::F32ToF16(value) : quant::F32ToBf16(value);
      std::memcpy(at, &half, 2);
    }
  }

  double Get(int64_t position, int32_t i) const {
    const std::byte* const at = const_cast<Pages*>(this)->Address(position, i);
    float value;
    uint16_t half;
    if (type_ == KvType::kF32) {
      std::memcpy(&value, at, 4);
      return value;
    }
    std::memcpy(&half, at, 2);
    return type_ == KvType::kF16 ? quant::F16ToF32(half) : quant::Bf16ToF32(half);
  }

  KvHead head() const { return {storage_.get(), page_bytes(), row_bytes_}; }

 private:
  int64_t page_bytes() const { return kKvPageTokens * row_bytes_ + 32; }
  std::byte* Address(int64_t position, int32_t i) {
    return storage_.get() + pages_[static_cast<size_t>(position / kKvPageTokens)] * page_bytes() +
           (position % kKvPageTokens) * row_bytes_ + i * KvTypeBytes(type_);
  }

  KvType type_;
  int64_t row_bytes_;
  const std::vector<int32_t>& pages_;
  std::unique_ptr<std::byte[]> storage_;
};

class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t floats) : size_(floats) {
    data_ = static_cast<float*>(::operator new(static_cast<size_t>(floats) * 4, std::align_val_t(64)));
    std::fill(data_, data_ + floats, kNan);
  }
  ~FloatBuffer() { ::operator delete(data_, std::align_val_t(64)); }
  FloatBuffer(const FloatBuffer&) = delete;
  FloatBuffer& operator=(const FloatBuffer&) = delete;
  float* data() { return data_; }

 private:
  int64_t size_;
  float* data_;
};

enum class How { kWhole, kSpans, kRowByRow };

struct Problem {
  Shape shape;
  std::vector<int32_t> pages;
  Pages k, v;
  int64_t q_stride, out_stride;
  std::vector<float> q, sinks;  // q: [rows][group], q_stride apart
  float scale;

  Problem(const Shape& s, uint32_t seed)
      : shape(s),
        pages(MixedPages(s.Begin(0), s.end)),
        k(s.type, s.key_dim, s.Begin(0), s.end, s.padding_bytes, pages),
        v(s.type, s.value_dim, s.Begin(0), s.end, s.padding_bytes, pages),
        q_stride(s.key_dim + 3),
        out_stride(s.value_dim + 5),
        scale(1.0f / std::sqrt(static_cast<float>(s.key_dim))) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> dist;
    for (int64_t p = s.Begin(0); p < s.end; ++p) {
      for (int32_t i = 0; i < s.key_dim; ++i) k.Set(p, i, dist(rng));
      for (int32_t i = 0; i < s.value_dim; ++i) v.Set(p, i, dist(rng));
    }
    const int64_t vectors = s.rows * s.group;
    q.assign(static_cast<size_t>((vectors - 1) * q_stride + s.key_dim), kNan);  // NaN between heads
    for (int64_t h = 0; h < vectors; ++h) {
      for (int32_t i = 0; i < s.key_dim; ++i) q[static_cast<size_t>(h * q_stride + i)] = 2 * dist(rng);
    }
    for (int32_t h = 0; h < s.group; ++h) sinks.push_back(dist(rng));
  }

  // The result of row r, head h is at (r * group + h) * out_stride.
  std::vector<float> Run(const AttentionKernel& kernel, How how = How::kWhole) const {
    const int64_t vectors = shape.rows * shape.group;
    std::vector<float> out(static_cast<size_t>((vectors - 1) * out_stride + shape.value_dim), -99.0f);
    std::vector<AttentionRow> rows;
    for (int64_t r = 0; r < shape.rows; ++r) {
      rows.push_back({q.data() + r * shape.group * q_stride, out.data() + r * shape.group * out_stride, shape.Begin(r),
                      shape.End(r)});
    }
    FloatBuffer scratch(AttentionScratchFloats(shape.rows, shape.group, shape.key_dim, shape.value_dim));
    AttentionArgs args{.rows = rows.data(),
                       .row_count = shape.rows,
                       .group = shape.group,
                       .key_dim = shape.key_dim,
                       .value_dim = shape.value_dim,
                       .type = shape.type,
                       .q_stride = q_stride,
                       .out_stride = out_stride,
                       .keys = k.head(),
                       .values = v.head(),
                       .pages = pages.data(),
                       .scale = scale,
                       .sinks = shape.sinks ? sinks.data() : nullptr,
                       .scratch = scratch.data()};
    if (how == How::kWhole) {
      kernel.attend(args);
    } else if (how == How::kRowByRow) {
      args.row_count = 1;
      for (args.rows = rows.data(); args.rows < rows.data() + shape.rows; ++args.rows) kernel.attend(args);
    } else {
      const int64_t first = shape.Begin(0) / kAttentionSpan, last = (shape.end - 1) / kAttentionSpan;
      const int64_t block = vectors * AttentionStateFloats(shape.value_dim);
      FloatBuffer states((last - first + 1) * block);
      for (int64_t span = last; span >= first; --span) {
        kernel.span(args, span, states.data() + (span - first) * block);
      }
      kernel.merge(args, first, states.data());
    }
    return out;
  }
};

::testing::AssertionResult SameBits(const std::vector<float>& want, const std::vector<float>& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (std::bit_cast<uint32_t>(want[i]) != std::bit_cast<uint32_t>(got[i])) {
      return ::testing::AssertionFailure() << "element " << i << ": " << std::hexfloat << want[i] << " and " << got[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Exact attention in double, without rounding of the weights, and a bound on what the kernel may differ by.
void ExpectNearExact(const Problem& p, const std::vector<float>& out) {
  const Shape& s = p.shape;
  const double ulp = 0x1p-24;
  const double type_error = s.type == KvType::kF32 ? 0 : s.type == KvType::kF16 ? 0x1p-11 : 0x1p-8;
  const double type_floor = s.type == KvType::kF16 ? 0x1p-25 : 0;  // half a subnormal step
  for (int64_t h = 0; h < s.rows * s.group; ++h) {
    const int64_t begin = s.Begin(h / s.group), n = s.End(h / s.group) - begin;
    const float sink = p.sinks[static_cast<size_t>(h % s.group)];
    std::vector<double> score(static_cast<size_t>(n));
    double max = s.sinks ? sink : -1e300, min = 1e300, score_error = 0;
    for (int64_t j = 0; j < n; ++j) {
      double dot = 0, magnitude = 0;
      for (int32_t i = 0; i < s.key_dim; ++i) {
        const double q = RoundToType(s.type, p.q[static_cast<size_t>(h * p.q_stride + i)]);
        const double k = p.k.Get(begin + j, i);
        dot += q * k;
        magnitude += std::fabs(q * k);
      }
      score[static_cast<size_t>(j)] = dot * p.scale;
      max = std::max(max, dot * p.scale);
      min = std::min(min, dot * p.scale);
      // One rounding per step, one for the scale.
      score_error = std::max(score_error, (s.key_dim + 2) * ulp * magnitude * p.scale);
    }
    double sum = s.sinks ? std::exp(sink - max) : 0;
    for (double x : score) sum += std::exp(x - max);
    const double weight_error =
        2 * (2 * score_error + (max - min) * ulp + 2e-7) + (static_cast<double>(n) / 16 + 16) * ulp;
    for (int32_t d = 0; d < s.value_dim; ++d) {
      double want = 0, magnitude = 0, plain = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double w = std::exp(score[static_cast<size_t>(j)] - max) / sum, v = p.v.Get(begin + j, d);
        want += w * v;
        magnitude += w * std::fabs(v);
        plain += std::fabs(v);
      }
      const double bound = magnitude * (weight_error + type_error * (1 + 1e-3) + static_cast<double>(n) * ulp) +
                           plain * type_floor + 1e-30;
      ASSERT_NEAR(out[static_cast<size_t>(h * p.out_stride + d)], want, bound) << "head " << h << " element " << d;
    }
  }
}

TEST(AttentionTest, ReferenceIsNearExactArithmetic) {
  uint32_t seed = 1;
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    for (const Shape& shape :
         {Shape{type, 1, 64, 64, 0, 1}, Shape{type, 2, 64, 64, 0, 70, true}, Shape{type, 4, 128, 128, 5, 200},
          Shape{type, 3, 40, 24, 63, 130, true, 16}, Shape{type, 8, 192, 128, 100, 164},
          Shape{type, 1, 7, 5, 0, 9, true, 2}, Shape{type, 2, 32, 32, 0, 700, true, 0, 9},
          Shape{type, 2, 32, 48, 0, 600, false, 0, 20, 100}}) {
      SCOPED_TRACE(shape.ToString());
      const Problem problem(shape, seed++);
      ExpectNearExact(problem, problem.Run(AllAttentionKernels()[0]));
    }
  }
}

TEST(AttentionTest, EveryIsaAndSplitGivesTheBitsOfTheReference) {
  std::mt19937 rng(11);
  const std::vector<int32_t> groups = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
  const std::vector<int32_t> dims = {1, 8, 15, 16, 17, 31, 40, 64, 72, 80, 96, 112, 128, 144, 192, 256, 576};
  const auto pick = [&rng](const std::vector<int32_t>& from) { return from[rng() % from.size()]; };
  for (int i = 0; i < 240; ++i) {
    Shape shape;
    shape.type = static_cast<KvType>(i % 3);
    shape.group = pick(groups);
    shape.key_dim = pick(dims);
    shape.value_dim = pick(dims);
    shape.rows = rng() % 2 == 0 ? 1 : static_cast<int64_t>(1 + rng() % (shape.group > 4 ? 5 : 20));
    shape.begin = rng() % 3 == 0 ? 0 : static_cast<int64_t>(rng() % 300);
    const int64_t most = shape.key_dim > 150 || shape.rows > 1 ? 40 : 150;
    shape.end = shape.begin + shape.rows + static_cast<int64_t>(rng() % most);
    if (rng() % 4 == 0) shape.end += 256 + rng() % 64;
    if (rng() % 3 == 0) shape.window = static_cast<int64_t>(1 + rng() % (rng() % 2 == 0 ? 8 : 300));
    shape.sinks = rng() % 2 == 0;
    shape.padding_bytes = static_cast<int64_t>(rng() % 3) * 4;
    if (shape.End(0) <= shape.Begin(0)) continue;
    const Problem problem(shape, static_cast<uint32_t>(i));
    const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
    for (const AttentionKernel& kernel : UsableKernels()) {
      SCOPED_TRACE(std::string(kernel.name) + " " + shape.ToString());
      ASSERT_TRUE(SameBits(want, problem.Run(kernel)));
      ASSERT_TRUE(SameBits(want, problem.Run(kernel, How::kSpans)));
      ASSERT_TRUE(SameBits(want, problem.Run(kernel, How::kRowByRow)));
    }
  }
}

// A whole block of rows, as prompts run: the tiles of a block cross spans, pages and the edges of a window.
TEST(AttentionTest, BlocksOfRowsGiveTheBitsOfSingleRows) {
  for (const Shape& shape :
       {Shape{KvType::kF16, 8, 128, 128, 0, 700, false, 0, 8}, Shape{KvType::kBF16, 4, 64, 64, 0, 530, true, 0, 16},
        Shape{KvType::kF16, 1, 32, 32, 0, 600, false, 0, 64}, Shape{KvType::kF16, 1, 32, 40, 0, 64, true, 0, 64},
        Shape{KvType::kF16, 2, 32, 40, 0, 290, true, 0, 32, 3},
        Shape{KvType::kF32, 3, 24, 32, 0, 777, true, 4, 21, 128}}) {
    SCOPED_TRACE(shape.ToString());
    const Problem problem(shape, 3);
    const std::vector<float> want = problem.Run(AllAttentionKernels()[0], How::kRowByRow);
    for (const AttentionKernel& kernel : UsableKernels()) {
      EXPECT_TRUE(SameBits(want, problem.Run(kernel))) << kernel.name;
      EXPECT_TRUE(SameBits(want, problem.Run(kernel, How::kSpans))) << kernel.name;
    }
  }
}

TEST(AttentionTest, WritesTheStatedElementsOnly) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    for (const How how : {How::kWhole, How::kSpans}) {
      const Problem problem({KvType::kF16, 5, 40, 24, 3, 280, false, 0, 3}, 5);
      const std::vector<float> out = problem.Run(kernel, how);
      for (int64_t h = 0; h + 1 < 15; ++h) {
        for (int64_t i = h * problem.out_stride + 24; i < (h + 1) * problem.out_stride; ++i) EXPECT_EQ(out[i], -99.0f);
      }
    }
  }
}

// A head's result must not depend on which heads share its KV head.
TEST(AttentionTest, HeadsOfAGroupAreIndependent) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    const Problem together({KvType::kBF16, 7, 80, 72, 30, 340, true}, 6);
    const std::vector<float> all = together.Run(kernel);
    for (int32_t h = 0; h < 7; ++h) {
      Problem alone({KvType::kBF16, 1, 80, 72, 30, 340, true}, 6);  // the same seed fills the cache alike
      alone.q.assign(together.q.begin() + h * together.q_stride, together.q.begin() + h * together.q_stride + 80);
      alone.sinks = {together.sinks[static_cast<size_t>(h)]};
      const auto first = all.begin() + h * together.out_stride;
      EXPECT_TRUE(SameBits(std::vector<float>(first, first + 72), alone.Run(kernel))) << kernel.name << " head " << h;
    }
  }
}

TEST(AttentionTest, FarPositionsOfALongContext) {
  const int64_t end = (int64_t{1} << 20) + 17;
  Problem problem({KvType::kF16, 8, 64, 64, end - 350, end, true}, 7);
  const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
  ExpectNearExact(problem, want);
  for (const AttentionKernel& kernel : UsableKernels()) {
    EXPECT_TRUE(SameBits(want, problem.Run(kernel)));
    EXPECT_TRUE(SameBits(want, problem.Run(kernel, How::kSpans)));
  }
}

TEST(AttentionTest, ManyPositions) {
  const Problem problem({KvType::kF16, 2, 16, 16, 9, 20000, false, 0, 2}, 8);
  const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
  ExpectNearExact(problem, want);
  for (const AttentionKernel& kernel : UsableKernels()) {
    EXPECT_TRUE(SameBits(want, problem.Run(kernel)));
    EXPECT_TRUE(SameBits(want, problem.Run(kernel, How::kSpans)));
  }
}

// Scores that grow from span to span rescale what was summed before; a falling order leaves it.
TEST(AttentionTest, MergesSpansOfDifferentMagnitude) {
  for (const float slope : {0.2f, -0.2f}) {
    Problem problem({KvType::kF32, 2, 16, 16, 0, 1000, true}, 8);
    for (int64_t h = 0; h < 2; ++h) problem.q[static_cast<size_t>(h * problem.q_stride)] = 1.0f;
    for (int64_t j = 0; j < 1000; ++j) problem.k.Set(j, 0, slope * static_cast<float>(j));
    const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
    ExpectNearExact(problem, want);
    for (const AttentionKernel& kernel : UsableKernels()) EXPECT_TRUE(SameBits(want, problem.Run(kernel)));
  }
}

TEST(AttentionTest, NanStaysInsideItsHead) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    SCOPED_TRACE(kernel.name);
    Problem problem({KvType::kF16, 5, 72, 40, 0, 377, false, 0, 2}, 9);
    const std::vector<float> clean = problem.Run(kernel);
    problem.q[static_cast<size_t>(2 * problem.q_stride + 71)] = kNan;
    const std::vector<float> out = problem.Run(kernel);
    for (int32_t h = 0; h < 10; ++h) {
      for (int32_t d = 0; d < 40; ++d) {
        const size_t i = static_cast<size_t>(h * problem.out_stride + d);
        if (h == 2) {
          EXPECT_TRUE(std::isnan(out[i]));
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(clean[i]));
        }
      }
    }
    problem.k.Set(50, 3, kNan);  // a bad key reaches every head, and nothing hangs or crashes
    const std::vector<float> all = problem.Run(kernel);
    for (int32_t h = 0; h < 10; ++h) EXPECT_TRUE(std::isnan(all[static_cast<size_t>(h * problem.out_stride)]));
  }
}

// What a later row of the block sees must not reach an earlier one.
TEST(AttentionTest, ABadLastPositionStaysInTheLastRow) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    Problem problem({KvType::kF16, 2, 32, 32, 0, 300, false, 0, 6}, 9);
    const std::vector<float> clean = problem.Run(kernel);
    problem.k.Set(299, 0, kNan);
    problem.v.Set(299, 0, kNan);
    const std::vector<float> out = problem.Run(kernel);
    const int64_t last_row = 10 * problem.out_stride;
    for (int64_t i = 0; i < last_row; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[static_cast<size_t>(i)]),
                std::bit_cast<uint32_t>(clean[static_cast<size_t>(i)]));
    }
    EXPECT_TRUE(std::isnan(out[static_cast<size_t>(last_row)]));
  }
}

TEST(AttentionTest, OnePositionReturnsItsValueRow) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
      const Problem problem({type, 3, 64, 48, 64, 65}, 10);
      const std::vector<float> out = problem.Run(kernel);
      for (int32_t h = 0; h < 3; ++h) {
        for (int32_t d = 0; d < 48; ++d) {
          EXPECT_EQ(out[static_cast<size_t>(h * problem.out_stride + d)], problem.v.Get(64, d));
        }
      }
    }
  }
}

// An empty range is outside the contract of a step but must not read anything.
TEST(AttentionTest, EmptyRangeGivesZeros) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    const Problem problem({KvType::kF16, 3, 64, 40, 10, 10, true}, 10);
    const std::vector<float> out = problem.Run(kernel);
    for (int32_t d = 0; d < 40; ++d) EXPECT_EQ(out[static_cast<size_t>(d)], 0.0f);
  }
}

TEST(AttentionTest, SelectsTheBestKernelThatTheCapsAllow) {
  for (sys::Isa isa : {sys::Isa::kReference, sys::Isa::kAvx2, sys::Isa::kAvx512}) {
    sys::CpuCaps caps;
    caps.isa = isa;
    ASSERT_NE(SelectAttention(caps), nullptr);
    EXPECT_EQ(SelectAttention(caps)->isa, isa);
  }
}

}  // namespace
}  // namespace bellhop::kernels
