#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
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
  int64_t begin = 0, end = 1;
  bool sinks = false;
  int64_t padding_bytes = 0;  // between rows

  std::string ToString() const {
    return "type " + std::to_string(static_cast<int>(type)) + " group " + std::to_string(group) + " dims " +
           std::to_string(key_dim) + "/" + std::to_string(value_dim) + " positions " + std::to_string(begin) + ".." +
           std::to_string(end) + (sinks ? " sinks" : "");
  }
};

float RoundToType(KvType type, float x) {
  switch (type) {
    case KvType::kF32: return x;
    case KvType::kF16: return quant::F16ToF32(quant::F32ToF16(x));
    case KvType::kBF16: return quant::Bf16ToF32(quant::F32ToBf16(x));
  }
  return x;
}

// One side of a paged cache. Pages outside the visible range are null, every byte outside the visible rows holds NaN,
// and the last page ends with the last visible row, so that a stray read shows.
class Pages {
 public:
  Pages(KvType type, int32_t dim, int64_t begin, int64_t end, int64_t padding_bytes)
      : type_(type), row_bytes_(dim * KvTypeBytes(type) + padding_bytes) {
    pages_.assign(static_cast<size_t>((end + kKvPageTokens - 1) / kKvPageTokens), nullptr);
    for (int64_t p = begin / kKvPageTokens; p * kKvPageTokens < end; ++p) {
      const int64_t rows = std::min<int64_t>(kKvPageTokens, end - p * kKvPageTokens);
      const int64_t bytes = rows * row_bytes_ - padding_bytes;
      storage_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
      std::memset(storage_.back().get(), 0xFF, static_cast<size_t>(bytes));
      pages_[static_cast<size_t>(p)] = storage_.back().get();
    }
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

  const std::byte* const* data() const { return pages_.data(); }
  int64_t row_bytes() const { return row_bytes_; }

 private:
  std::byte* Address(int64_t position, int32_t i) {
    return pages_[static_cast<size_t>(position / kKvPageTokens)] + (position % kKvPageTokens) * row_bytes_ +
           i * KvTypeBytes(type_);
  }

  KvType type_;
  int64_t row_bytes_;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::vector<std::byte*> pages_;
};

struct Problem {
  Shape shape;
  Pages k, v;
  int64_t q_stride, out_stride;
  std::vector<float> q, sinks;
  float scale;

  Problem(const Shape& s, uint32_t seed)
      : shape(s),
        k(s.type, s.key_dim, s.begin, s.end, s.padding_bytes),
        v(s.type, s.value_dim, s.begin, s.end, s.padding_bytes),
        q_stride(s.key_dim + 3),
        out_stride(s.value_dim + 5),
        scale(1.0f / std::sqrt(static_cast<float>(s.key_dim))) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> dist;
    for (int64_t p = s.begin; p < s.end; ++p) {
      for (int32_t i = 0; i < s.key_dim; ++i) k.Set(p, i, dist(rng));
      for (int32_t i = 0; i < s.value_dim; ++i) v.Set(p, i, dist(rng));
    }
    q.assign(static_cast<size_t>((s.group - 1) * q_stride + s.key_dim), kNan);  // NaN between heads
    for (int32_t h = 0; h < s.group; ++h) {
      for (int32_t i = 0; i < s.key_dim; ++i) q[static_cast<size_t>(h * q_stride + i)] = 2 * dist(rng);
      sinks.push_back(dist(rng));
    }
  }

  std::vector<float> Run(const AttentionKernel& kernel) const {
    const int64_t n = shape.end - shape.begin;
    const size_t scratch_floats = static_cast<size_t>(shape.group * n + shape.group * shape.key_dim);
    float* const scratch = static_cast<float*>(::operator new(scratch_floats * 4, std::align_val_t(64)));
    std::vector<float> out(static_cast<size_t>((shape.group - 1) * out_stride + shape.value_dim), -99.0f);
    kernel.fn({.q = q.data(),
               .q_stride = q_stride,
               .group = shape.group,
               .key_dim = shape.key_dim,
               .value_dim = shape.value_dim,
               .type = shape.type,
               .k_pages = k.data(),
               .v_pages = v.data(),
               .k_row_bytes = k.row_bytes(),
               .v_row_bytes = v.row_bytes(),
               .begin = shape.begin,
               .end = shape.end,
               .scale = scale,
               .sinks = shape.sinks ? sinks.data() : nullptr,
               .scratch = scratch,
               .out = out.data(),
               .out_stride = out_stride});
    ::operator delete(scratch, std::align_val_t(64));
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
  const int64_t n = s.end - s.begin;
  const double ulp = 0x1p-24;
  const double type_error = s.type == KvType::kF32 ? 0 : s.type == KvType::kF16 ? 0x1p-11 : 0x1p-8;
  const double type_floor = s.type == KvType::kF16 ? 0x1p-25 : 0;  // half a subnormal step
  for (int32_t h = 0; h < s.group; ++h) {
    std::vector<double> score(static_cast<size_t>(n));
    double max = s.sinks ? p.sinks[static_cast<size_t>(h)] : -1e300, min = 1e300, score_error = 0;
    for (int64_t j = 0; j < n; ++j) {
      double dot = 0, magnitude = 0;
      for (int32_t i = 0; i < s.key_dim; ++i) {
        const double q = RoundToType(s.type, p.q[static_cast<size_t>(h * p.q_stride + i)]);
        const double k = p.k.Get(s.begin + j, i);
        dot += q * k;
        magnitude += std::fabs(q * k);
      }
      score[static_cast<size_t>(j)] = dot * p.scale;
      max = std::max(max, dot * p.scale);
      min = std::min(min, dot * p.scale);
      // One rounding per step of a lane, four in the tree, one for the scale.
      score_error = std::max(score_error, (s.key_dim / 16 + 6) * ulp * magnitude * p.scale);
    }
    double sum = s.sinks ? std::exp(p.sinks[static_cast<size_t>(h)] - max) : 0;
    for (double x : score) sum += std::exp(x - max);
    const double weight_error =
        2 * (2 * score_error + (max - min) * ulp + 2e-7) + (static_cast<double>(n) / 16 + 8) * ulp;
    for (int32_t d = 0; d < s.value_dim; ++d) {
      double want = 0, magnitude = 0, plain = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double w = std::exp(score[static_cast<size_t>(j)] - max) / sum, v = p.v.Get(s.begin + j, d);
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
    for (const Shape& shape : {Shape{type, 1, 64, 64, 0, 1}, Shape{type, 2, 64, 64, 0, 70, true},
                               Shape{type, 4, 128, 128, 5, 200}, Shape{type, 3, 40, 24, 63, 130, true, 16},
                               Shape{type, 8, 192, 128, 100, 164}, Shape{type, 1, 7, 5, 0, 9, true, 2}}) {
      SCOPED_TRACE(shape.ToString());
      const Problem problem(shape, seed++);
      ExpectNearExact(problem, problem.Run(AllAttentionKernels()[0]));
    }
  }
}

TEST(AttentionTest, EveryIsaGivesTheBitsOfTheReference) {
  std::mt19937 rng(11);
  const std::vector<int32_t> groups = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
  const std::vector<int32_t> dims = {1, 8, 15, 16, 17, 31, 40, 64, 72, 80, 96, 112, 128, 144, 192, 256, 576};
  const auto pick = [&rng](const std::vector<int32_t>& from) { return from[rng() % from.size()]; };
  for (int i = 0; i < 150; ++i) {
    Shape shape;
    shape.type = static_cast<KvType>(i % 3);
    shape.group = pick(groups);
    shape.key_dim = pick(dims);
    shape.value_dim = pick(dims);
    shape.begin = rng() % 3 == 0 ? 0 : static_cast<int64_t>(rng() % 300);
    shape.end = shape.begin + 1 + static_cast<int64_t>(rng() % (shape.key_dim > 150 ? 40 : 150));
    shape.sinks = rng() % 2 == 0;
    shape.padding_bytes = static_cast<int64_t>(rng() % 3) * 4;
    const Problem problem(shape, static_cast<uint32_t>(i));
    const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
    for (const AttentionKernel& kernel : UsableKernels()) {
      SCOPED_TRACE(std::string(kernel.name) + " " + shape.ToString());
      ASSERT_TRUE(SameBits(want, problem.Run(kernel)));
    }
  }
}

TEST(AttentionTest, WritesTheStatedElementsOnly) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    const Problem problem({KvType::kF16, 5, 40, 24, 3, 80}, 5);
    const std::vector<float> out = problem.Run(kernel);
    for (int32_t h = 0; h + 1 < 5; ++h) {
      for (int64_t i = h * problem.out_stride + 24; i < (h + 1) * problem.out_stride; ++i) EXPECT_EQ(out[i], -99.0f);
    }
  }
}

// A head's result must not depend on which heads share its KV head.
TEST(AttentionTest, HeadsOfAGroupAreIndependent) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    const Problem together({KvType::kBF16, 7, 80, 72, 30, 140, true}, 6);
    const std::vector<float> all = together.Run(kernel);
    for (int32_t h = 0; h < 7; ++h) {
      Problem alone({KvType::kBF16, 1, 80, 72, 30, 140, true}, 6);  // the same seed fills the cache alike
      alone.q.assign(together.q.begin() + h * together.q_stride, together.q.begin() + h * together.q_stride + 80);
      alone.sinks = {together.sinks[static_cast<size_t>(h)]};
      const auto first = all.begin() + h * together.out_stride;
      EXPECT_TRUE(SameBits(std::vector<float>(first, first + 72), alone.Run(kernel))) << kernel.name << " head " << h;
    }
  }
}

TEST(AttentionTest, FarPositionsOfALongContext) {
  const int64_t end = (int64_t{1} << 20) + 17;
  Problem problem({KvType::kF16, 8, 64, 64, end - 150, end, true}, 7);
  const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
  ExpectNearExact(problem, want);
  for (const AttentionKernel& kernel : UsableKernels()) EXPECT_TRUE(SameBits(want, problem.Run(kernel)));
}

TEST(AttentionTest, ManyPositions) {
  const Problem problem({KvType::kF16, 2, 16, 16, 9, 20000}, 8);
  const std::vector<float> want = problem.Run(AllAttentionKernels()[0]);
  ExpectNearExact(problem, want);
  for (const AttentionKernel& kernel : UsableKernels()) EXPECT_TRUE(SameBits(want, problem.Run(kernel)));
}

TEST(AttentionTest, NanStaysInsideItsHead) {
  for (const AttentionKernel& kernel : UsableKernels()) {
    SCOPED_TRACE(kernel.name);
    Problem problem({KvType::kF16, 5, 72, 40, 0, 77}, 9);
    const std::vector<float> clean = problem.Run(kernel);
    problem.q[static_cast<size_t>(2 * problem.q_stride + 71)] = kNan;
    const std::vector<float> out = problem.Run(kernel);
    for (int32_t h = 0; h < 5; ++h) {
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
    for (int32_t h = 0; h < 5; ++h) EXPECT_TRUE(std::isnan(all[static_cast<size_t>(h * problem.out_stride)]));
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
