#include "kernels/vec_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUlp = 0x1p-24;  // half a unit in the last place of 1.0f: the rounding error of one operation

const VecOps& Reference() { return AllVecOps()[0]; }

std::vector<VecOps> UsableOps() {
  const sys::CpuCaps caps = sys::DetectCpu();
  std::vector<VecOps> usable;
  for (const VecOps& ops : AllVecOps()) {
    if (ops.isa <= caps.isa) usable.push_back(ops);
  }
  return usable;
}

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 70; ++n) sizes.push_back(n);
  for (int64_t n : {96, 127, 128, 129, 200, 255, 256, 257, 704, 2880, 4099}) sizes.push_back(n);
  return sizes;
}

// Exactly n elements on the heap, so that AddressSanitizer sees any access beyond them.
template <typename T>
class Exact {
 public:
  explicit Exact(const std::vector<T>& values) : size_(values.size()), data_(new T[values.size()]) {
    std::copy(values.begin(), values.end(), data_.get());
  }
  T* get() const { return data_.get(); }
  std::vector<T> ToVector() const { return std::vector<T>(data_.get(), data_.get() + size_); }

 private:
  size_t size_;
  std::unique_ptr<T[]> data_;
};

std::vector<float> Normal(int64_t n, float sigma, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0.0f, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = dist(rng);
  return x;
}

// Every bit pattern is as likely as any other: all exponents, infinities, NaN, subnormals.
std::vector<float> AnyBits(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
  return x;
}

std::vector<float> EdgeValues() {
  std::vector<float> x;
  for (float v :
       {0.0f,   1e-45f, 1e-40f, 0x1p-126f, 1e-20f,   0.5f,     1.0f,     7.0f,  20.0f, 87.0f,         88.0f, 88.72f,
        88.73f, 89.0f,  103.9f, 104.1f,    65504.0f, 65519.0f, 65520.0f, 1e19f, 1e20f, 3.4028235e38f, kInf,  kNan}) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

std::vector<float> Repeat(const std::vector<float>& values, int64_t n, int64_t shift) {
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(i + shift) % values.size()];
  return x;
}

::testing::AssertionResult SameBits(const std::vector<float>& want, const std::vector<float>& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (std::bit_cast<uint32_t>(want[i]) != std::bit_cast<uint32_t>(got[i])) {
      return ::testing::AssertionFailure() << "element " << i << ": " << std::hexfloat << want[i] << " and " << got[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// One operation on two input rows of n elements; in place where `in_place` is set and the operation allows it.
struct Op {
  const char* name;
  std::function<void(const VecOps&, const float* a, const float* b, int64_t n, float* y)> run;
};

std::vector<Op> Ops() {
  using V = const VecOps&;
  using In = const float*;
  const auto copy = [](In a, int64_t n, float* y) {
    if (a != y) std::copy(a, a + n, y);
  };
  return {
      {"rms_norm", [](V o, In a, In b, int64_t n, float* y) { o.rms_norm(a, b, 1e-6f, n, y); }},
      {"rms_norm_plain", [](V o, In a, In, int64_t n, float* y) { o.rms_norm(a, nullptr, 1e-5f, n, y); }},
      {"exp", [](V o, In a, In, int64_t n, float* y) { o.exp(a, n, y); }},
      {"softmax",
       [copy](V o, In a, In, int64_t n, float* y) {
         copy(a, n, y);
         o.softmax(y, n, nullptr);
       }},
      {"softmax_sink",
       [copy](V o, In a, In b, int64_t n, float* y) {
         const float sink = n > 0 ? b[0] : 0.0f;
         copy(a, n, y);
         o.softmax(y, n, &sink);
       }},
      {"sigmoid", [](V o, In a, In, int64_t n, float* y) { o.sigmoid(a, n, y); }},
      {"swiglu", [](V o, In a, In b, int64_t n, float* y) { o.swiglu(a, b, n, y); }},
      {"swiglu_clamped", [](V o, In a, In b, int64_t n, float* y) { o.swiglu_clamped(a, b, 1.25f, 0.5f, 4.0f, n, y); }},
      {"geglu", [](V o, In a, In b, int64_t n, float* y) { o.geglu(a, b, n, y); }},
      {"silu", [](V o, In a, In, int64_t n, float* y) { o.silu(a, n, y); }},
      {"gelu", [](V o, In a, In, int64_t n, float* y) { o.gelu(a, n, y); }},
      {"relu", [](V o, In a, In, int64_t n, float* y) { o.relu(a, n, y); }},
      {"add",
       [copy](V o, In a, In b, int64_t n, float* y) {
         copy(a, n, y);
         o.add(b, n, y);
       }},
      {"scale",
       [copy](V o, In a, In, int64_t n, float* y) {
         copy(a, n, y);
         o.scale(0.3f, n, y);
       }},
      {"add_scaled",
       [copy](V o, In a, In b, int64_t n, float* y) {
         copy(a, n, y);
         o.add_scaled(b, -1.7f, n, y);
       }},
      {"rope_norm",
       [copy](V o, In a, In b, int64_t n, float* y) {
         copy(a, n, y);
         o.rope_norm(y, b, n / 2 * 2);
       }},
      {"rope_neox",
       [copy](V o, In a, In b, int64_t n, float* y) {
         copy(a, n, y);
         o.rope_neox(y, b, n / 2 * 2);
       }},
      {"round_bf16", [](V o, In a, In, int64_t n, float* y) { o.round_bf16(a, n, y); }},
      {"round_f16", [](V o, In a, In, int64_t n, float* y) { o.round_f16(a, n, y); }},
  };
}

std::vector<std::vector<float>> InputsOf(int64_t n) {
  const uint32_t seed = static_cast<uint32_t>(n);
  return {Normal(n, 3.0f, seed), Normal(n, 60.0f, seed + 1), AnyBits(n, seed + 2), Repeat(EdgeValues(), n, 0)};
}

std::vector<float> SecondInput(int64_t n, size_t which) {
  const uint32_t seed = static_cast<uint32_t>(n);
  if (which == 2) return AnyBits(n, seed + 100);
  if (which == 3) return Repeat(EdgeValues(), n, n % 13 + 1);
  return Normal(n, 1.0f, seed + 101);
}

TEST(VecOpsTest, EveryIsaGivesTheBitsOfTheReference) {
  for (const VecOps& ops : UsableOps()) {
    for (const Op& op : Ops()) {
      for (int64_t n : Sizes()) {
        const std::vector<std::vector<float>> inputs = InputsOf(n);
        for (size_t k = 0; k < inputs.size(); ++k) {
          SCOPED_TRACE(std::string(ops.name) + " " + op.name + " n " + std::to_string(n) + " input " +
                       std::to_string(k));
          const Exact<float> a(inputs[k]), b(SecondInput(n, k));
          const Exact<float> want(std::vector<float>(n, -7.0f)), got(std::vector<float>(n, -8.0f));
          op.run(Reference(), a.get(), b.get(), n, want.get());
          op.run(ops, a.get(), b.get(), n, got.get());
          ASSERT_TRUE(SameBits(want.ToVector(), got.ToVector()));
          op.run(ops, a.get(), b.get(), n, a.get());  // in place, over the first input
          ASSERT_TRUE(SameBits(want.ToVector(), a.ToVector()));
        }
      }
    }
  }
}

TEST(VecOpsTest, GatedOperationsMayWriteOverTheirSecondInput) {
  for (const VecOps& ops : UsableOps()) {
    for (int64_t n : {5, 16, 37, 257}) {
      const std::vector<float> gate = Normal(n, 2.0f, 5), up = Normal(n, 2.0f, 6);
      std::vector<float> want(n), got = up;
      ops.swiglu(gate.data(), up.data(), n, want.data());
      ops.swiglu(gate.data(), got.data(), n, got.data());
      EXPECT_TRUE(SameBits(want, got));
      got = up;
      ops.swiglu_clamped(gate.data(), up.data(), 1.25f, 0.5f, 4.0f, n, want.data());
      ops.swiglu_clamped(gate.data(), got.data(), 1.25f, 0.5f, 4.0f, n, got.data());
      EXPECT_TRUE(SameBits(want, got));
      got = up;
      ops.geglu(gate.data(), up.data(), n, want.data());
      ops.geglu(gate.data(), got.data(), n, got.data());
      EXPECT_TRUE(SameBits(want, got));
    }
  }
}

TEST(VecOpsTest, NothingIsWrittenBeyondTheRow) {
  for (const VecOps& ops : UsableOps()) {
    for (const Op& op : Ops()) {
      for (int64_t n = 0; n <= 40; ++n) {
        const std::vector<float> a = Normal(n, 1.0f, 1), b = Normal(n, 1.0f, 2);
        std::vector<float> y(n + 32, 123.0f);
        op.run(ops, a.data(), b.data(), n, y.data());
        for (int64_t i = n; i < n + 32; ++i) ASSERT_EQ(y[i], 123.0f) << ops.name << " " << op.name << " n " << n;
        std::vector<uint16_t> h(n + 32, 0xABCD);
        ops.f32_to_f16(a.data(), n, h.data());
        ops.f32_to_bf16(a.data(), n, h.data());
        for (int64_t i = n; i < n + 32; ++i) ASSERT_EQ(h[i], 0xABCD) << ops.name << " n " << n;
      }
    }
  }
}

TEST(VecOpsTest, ExpIsWithinItsBound) {
  std::vector<float> x;
  for (double v = -87.0; v <= 88.0; v += 1.0 / 1021) x.push_back(static_cast<float>(v));
  for (int n = -125; n <= 126; ++n) {  // both sides of every change of exponent
    float v = static_cast<float>((n + 0.5) * std::log(2.0));
    for (int step = -3; step <= 3; ++step) {
      if (v >= -87.0f && v <= 88.0f) x.push_back(v);
      v = std::nextafter(v, step < 0 ? -kInf : kInf);
    }
  }
  for (float v : {0.0f, -0.0f, 1e-45f, 1e-8f, -1e-8f, 0x1p-12f, -0x1p-12f, -87.0f, 88.0f}) x.push_back(v);
  for (const VecOps& ops : UsableOps()) {
    std::vector<float> y(x.size());
    ops.exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(y[i] - want) / want);
    }
    EXPECT_LT(worst, 2e-7) << ops.name;
    EXPECT_GT(worst, 1e-9) << "the oracle compares nothing";
  }
}

TEST(VecOpsTest, ExpAtTheEdges) {
  for (const VecOps& ops : UsableOps()) {
    SCOPED_TRACE(ops.name);
    const std::vector<float> x = {0.0f,   -0.0f,  88.72283f, 88.73f,  1e9f,   kInf,
                                  -87.5f, -95.0f, -103.9f,   -104.5f, -1e30f, -kInf};
    std::vector<float> y(x.size());
    ops.exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_NEAR(y[2] / 3.4028235e38f, 1.0f, 1e-5f);
    EXPECT_EQ(y[3], kInf);
    EXPECT_EQ(y[4], kInf);
    EXPECT_EQ(y[5], kInf);
    for (int i : {6, 7, 8}) {  // subnormal results: within one unit of 2^-149
      EXPECT_NEAR(y[i] / 0x1p-149, std::exp(static_cast<double>(x[i])) / 0x1p-149,
                  1.0 + 2e-7 * std::exp(static_cast<double>(x[i])) / 0x1p-149);
      EXPECT_GT(y[i], 0.0f);
    }
    for (int i : {9, 10, 11}) EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), 0u);
    float nan = kNan;
    ops.exp(&nan, 1, &nan);
    EXPECT_TRUE(std::isnan(nan));
  }
}

TEST(VecOpsTest, RmsNormIsWithinItsBound) {
  for (int64_t n : {1, 16, 40, 257, 2880}) {
    const std::vector<float> x = Normal(n, 4.0f, 9), w = Normal(n, 1.0f, 10);
    std::vector<float> y(n);
    double sum = 0;
    for (float v : x) sum += static_cast<double>(v) * v;
    const double r = 1.0 / std::sqrt(sum / static_cast<double>(n) + 1e-6f);
    // Half of the relative error of a sum of n/16 + 5 roundings, then sqrt, division and two products.
    const double bound = (0.5 * (static_cast<double>(n) / 16 + 7) + 4) * kUlp;
    Reference().rms_norm(x.data(), w.data(), 1e-6f, n, y.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], x[i] * r * w[i], std::fabs(x[i] * r * w[i]) * bound);
    Reference().rms_norm(x.data(), nullptr, 1e-6f, n, y.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], x[i] * r, std::fabs(x[i] * r) * bound);
  }
}

TEST(VecOpsTest, SoftmaxIsWithinItsBound) {
  for (int64_t n : {1, 3, 16, 33, 300, 4096}) {
    for (float sigma : {0.5f, 8.0f}) {
      for (bool with_sink : {false, true}) {
        std::vector<float> x = Normal(n, sigma, 21);
        const float sink = 1.25f;
        double max = with_sink ? sink : -1e300, min = 1e300;
        for (float v : x) max = std::max(max, static_cast<double>(v));
        for (float v : x) min = std::min(min, static_cast<double>(v));
        double sum = with_sink ? std::exp(sink - max) : 0.0;
        for (float v : x) sum += std::exp(v - max);
        // Each exponential: the rounded difference and exp's own bound; the same again for the sum, plus its rounding.
        const double bound = 2 * ((max - min) * kUlp + 2e-7) + (static_cast<double>(n) / 16 + 8) * kUlp;
        const std::vector<float> logits = x;
        Reference().softmax(x.data(), n, with_sink ? &sink : nullptr);
        double total = 0;
        for (int64_t i = 0; i < n; ++i) {
          const double want = std::exp(logits[i] - max) / sum;
          ASSERT_NEAR(x[i], want, want * bound) << n << " " << i;
          total += x[i];
        }
        const double missing = with_sink ? std::exp(sink - max) / sum : 0.0;
        EXPECT_NEAR(total, 1.0 - missing, 1e-5);
      }
    }
  }
}

TEST(VecOpsTest, SoftmaxOfDegenerateRows) {
  for (const VecOps& ops : UsableOps()) {
    for (int64_t n : {1, 7, 16, 35}) {
      SCOPED_TRACE(std::string(ops.name) + " n " + std::to_string(n));
      const auto run = [&](std::vector<float> x, const float* sink) {
        ops.softmax(x.data(), n, sink);
        return x;
      };
      const auto all_nan = [](const std::vector<float>& x) {
        for (float v : x) {
          if (!std::isnan(v)) return false;
        }
        return true;
      };
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        std::vector<float> x = Normal(n, 1.0f, 3);
        x[at] = kNan;
        EXPECT_TRUE(all_nan(run(x, nullptr)));
        x[at] = kInf;
        EXPECT_TRUE(all_nan(run(x, nullptr)));
        x[at] = -kInf;  // a masked entry
        if (n > 1) {
          const std::vector<float> y = run(x, nullptr);
          EXPECT_EQ(y[at], 0.0f);
          EXPECT_FALSE(std::isnan(y[at == 0 ? 1 : 0]));
        }
        std::vector<float> one(n, -kInf);
        one[at] = -3.0f;
        EXPECT_EQ(run(one, nullptr)[at], 1.0f);
      }
      EXPECT_TRUE(all_nan(run(std::vector<float>(n, -kInf), nullptr)));
      const float sink = 2.0f, minus_inf = -kInf, nan = kNan;
      EXPECT_EQ(run(std::vector<float>(n, -kInf), &sink), std::vector<float>(n, 0.0f));
      EXPECT_TRUE(all_nan(run(std::vector<float>(n, -kInf), &minus_inf)));
      EXPECT_TRUE(all_nan(run(std::vector<float>(n, 1.0f), &nan)));
      EXPECT_EQ(run(std::vector<float>(n, 1.0f), nullptr), run(std::vector<float>(n, 1.0f), &minus_inf));
      EXPECT_NEAR(run(std::vector<float>(n, 2.0f), &sink)[0], 1.0 / (static_cast<double>(n) + 1), 1e-7);
    }
    ops.softmax(nullptr, 0, nullptr);
  }
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(VecOpsTest, ActivationsAreWithinTheirBounds) {
  std::vector<float> g, u;
  for (int i = 0; i < 4001; ++i) {
    g.push_back(static_cast<float>(-20.0 + 0.01 * i));
    u.push_back(static_cast<float>(std::sin(i) * 9.0));
  }
  const int64_t n = static_cast<int64_t>(g.size());
  std::vector<float> y(n);
  const double base = 2e-7 + 4 * kUlp;  // exp, then sum, division and up to two products

  Reference().sigmoid(g.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], Sigmoid(g[i]), Sigmoid(g[i]) * base);

  Reference().swiglu(g.data(), u.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) {
    const double want = g[i] * Sigmoid(g[i]) * u[i];
    ASSERT_NEAR(y[i], want, std::fabs(want) * base);
  }

  Reference().silu(g.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], g[i] * Sigmoid(g[i]), std::fabs(g[i] * Sigmoid(g[i])) * base);

  for (float beta : {1.0f, 0.25f, 0.0f}) {
    Reference().swiglu_clamped(g.data(), u.data(), 1.702f, beta, 7.0f, n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      const double gate = std::min(g[i], 7.0f), up = std::min(std::max(u[i], -7.0f), 7.0f);
      const double want = gate * Sigmoid(static_cast<double>(1.702f) * gate) * (up + beta);
      // alpha * g is rounded once before it is an exponent; up + beta cancels near -beta.
      const double rounding = base + std::fabs(1.702 * gate) * kUlp;
      ASSERT_NEAR(y[i], want, std::fabs(want) * rounding);
    }
  }

  Reference().geglu(g.data(), u.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) {
    const double x = g[i];
    const double z = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    if (2 * z < -80) continue;  // exp overflows there; the edge test covers it
    const double want = x * Sigmoid(2 * z) * u[i];
    const double rounding = base + std::fabs(2 * z) * 4 * kUlp;  // two rounded constants, three operations
    ASSERT_NEAR(y[i], want, std::fabs(want) * rounding) << x;
  }

  // geglu is gelu times the other input.
  std::vector<float> alone(n);
  Reference().gelu(g.data(), n, alone.data());
  for (int64_t i = 0; i < n; ++i) alone[i] *= u[i];
  EXPECT_TRUE(SameBits(alone, y));
}

TEST(VecOpsTest, ReluKeepsNanAndMinusZero) {
  for (const VecOps& ops : UsableOps()) {
    const std::vector<float> x = {1.5f, -1.5f, 0.0f, -0.0f, kInf, -kInf, kNan, 1e-45f, -1e-45f};
    std::vector<float> y(x.size());
    ops.relu(x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_TRUE(SameBits({1.5f, 0.0f, 0.0f, -0.0f, kInf, 0.0f, kNan, 1e-45f, 0.0f}, y)) << ops.name;
  }
}

TEST(VecOpsTest, DeinterleaveSplitsPairs) {
  for (const VecOps& ops : UsableOps()) {
    for (int64_t n = 0; n <= 70; ++n) {
      const std::vector<float> x = AnyBits(2 * n, static_cast<uint32_t>(n));
      const Exact<float> in(x), even(std::vector<float>(n, -1.0f)), odd(std::vector<float>(n, -2.0f));
      ops.deinterleave(in.get(), n, even.get(), odd.get());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(even.get()[i]), std::bit_cast<uint32_t>(x[2 * i])) << ops.name << " " << n;
        ASSERT_EQ(std::bit_cast<uint32_t>(odd.get()[i]), std::bit_cast<uint32_t>(x[2 * i + 1])) << ops.name << " " << n;
      }
    }
  }
}

TEST(VecOpsTest, ActivationsAtTheEdges) {
  for (const VecOps& ops : UsableOps()) {
    SCOPED_TRACE(ops.name);
    const std::vector<float> g = {0.0f, kInf, -200.0f, 1e30f, -1e30f, kNan}, one(g.size(), 1.0f);
    const int64_t n = static_cast<int64_t>(g.size());
    std::vector<float> y(g.size());
    ops.sigmoid(g.data(), n, y.data());
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 5), (std::vector<float>{0.5f, 1.0f, 0.0f, 1.0f, 0.0f}));
    EXPECT_TRUE(std::isnan(y[5]));
    for (auto op : {ops.swiglu, ops.geglu}) {
      op(g.data(), one.data(), n, y.data());
      EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 5), (std::vector<float>{0.0f, kInf, 0.0f, 1e30f, 0.0f}));
      EXPECT_TRUE(std::isnan(y[5]));
    }
    ops.swiglu_clamped(g.data(), one.data(), 1.702f, 1.0f, 7.0f, n, y.data());
    EXPECT_NEAR(y[1], 14.0f, 2e-4f);  // gate clamped to 7, times (1 + 1)
    EXPECT_EQ(y[4], 0.0f);
    EXPECT_TRUE(std::isnan(y[5]));
    const std::vector<float> up = {kNan, 50.0f, -50.0f, 0.0f, 0.0f, 0.0f}, gate(6, 1.0f);
    ops.swiglu_clamped(gate.data(), up.data(), 1.702f, 1.0f, 7.0f, n, y.data());
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_NEAR(y[1], Sigmoid(1.702) * 8, 1e-5);
    EXPECT_NEAR(y[2], Sigmoid(1.702) * -6, 1e-5);
  }
}

TEST(VecOpsTest, RopeRotatesPairs) {
  for (const VecOps& ops : UsableOps()) {
    for (int64_t n_rot : {0, 2, 6, 16, 30, 32, 64, 96, 128}) {
      const int64_t head = n_rot + 5;  // the rest of the head keeps its values
      std::vector<float> cos_sin(n_rot);
      for (int64_t j = 0; j < n_rot / 2; ++j) {
        cos_sin[2 * j] = static_cast<float>(std::cos(0.3 * static_cast<double>(j) + 1));
        cos_sin[2 * j + 1] = static_cast<float>(std::sin(0.3 * static_cast<double>(j) + 1));
      }
      const std::vector<float> x = Normal(head, 1.0f, 77);
      for (bool neox : {false, true}) {
        std::vector<float> y = x;
        (neox ? ops.rope_neox : ops.rope_norm)(y.data(), cos_sin.data(), n_rot);
        for (int64_t j = 0; j < n_rot / 2; ++j) {
          const int64_t ia = neox ? j : 2 * j, ib = neox ? j + n_rot / 2 : 2 * j + 1;
          const double a = x[ia], b = x[ib], c = cos_sin[2 * j], s = cos_sin[2 * j + 1];
          const double bound = 2 * kUlp * (std::fabs(a) + std::fabs(b));
          EXPECT_NEAR(y[ia], a * c - b * s, bound) << ops.name << " n_rot " << n_rot << " pair " << j;
          EXPECT_NEAR(y[ib], b * c + a * s, bound) << ops.name << " n_rot " << n_rot << " pair " << j;
        }
        for (int64_t i = n_rot; i < head; ++i) EXPECT_EQ(y[i], x[i]);
      }
    }
  }
}

TEST(VecOpsTest, AllHalvesWidenAsTheScalarRuleSays) {
  std::vector<uint16_t> h(65536);
  for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<uint16_t>(i);
  for (const VecOps& ops : UsableOps()) {
    std::vector<float> f16(h.size()), bf16(h.size());
    ops.f16_to_f32(h.data(), 65536, f16.data());
    ops.bf16_to_f32(h.data(), 65536, bf16.data());
    for (size_t i = 0; i < h.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(f16[i]), std::bit_cast<uint32_t>(quant::F16ToF32(h[i]))) << ops.name << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), std::bit_cast<uint32_t>(quant::Bf16ToF32(h[i]))) << ops.name << i;
    }
    for (int64_t n = 0; n < 40; ++n) {
      const Exact<uint16_t> exact(std::vector<uint16_t>(h.begin() + 0x7BF0, h.begin() + 0x7BF0 + n));
      const Exact<float> widened(std::vector<float>(n, -1.0f));
      ops.f16_to_f32(exact.get(), n, widened.get());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(widened.get()[i]), std::bit_cast<uint32_t>(f16[0x7BF0 + i]));
      }
      ops.bf16_to_f32(exact.get(), n, widened.get());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(widened.get()[i]), std::bit_cast<uint32_t>(bf16[0x7BF0 + i]));
      }
    }
  }
}

TEST(VecOpsTest, NarrowingFollowsTheScalarRule) {
  std::vector<float> x = AnyBits(200000, 4);
  for (uint32_t h = 0; h < 65536; ++h) {  // around every half of both kinds: itself, ties and their neighbours
    for (uint32_t base : {std::bit_cast<uint32_t>(quant::F16ToF32(static_cast<uint16_t>(h))), h << 16}) {
      for (uint32_t add : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x1FFFu, 0x7FFFu, 0x8000u, 0x8001u}) {
        x.push_back(std::bit_cast<float>(base + add));
      }
    }
  }
  const int64_t n = static_cast<int64_t>(x.size());
  for (const VecOps& ops : UsableOps()) {
    std::vector<uint16_t> f16(x.size()), bf16(x.size());
    std::vector<float> r16(x.size()), rb16(x.size());
    ops.f32_to_f16(x.data(), n, f16.data());
    ops.f32_to_bf16(x.data(), n, bf16.data());
    ops.round_f16(x.data(), n, r16.data());
    ops.round_bf16(x.data(), n, rb16.data());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(f16[i], quant::F32ToF16(x[i])) << ops.name << " " << std::hexfloat << x[i];
      ASSERT_EQ(bf16[i], quant::F32ToBf16(x[i])) << ops.name << " " << std::hexfloat << x[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(r16[i]), std::bit_cast<uint32_t>(quant::F16ToF32(f16[i])));
      ASSERT_EQ(std::bit_cast<uint32_t>(rb16[i]), std::bit_cast<uint32_t>(quant::Bf16ToF32(bf16[i])));
    }
    for (int64_t m = 0; m < 40; ++m) {
      const Exact<float> exact(std::vector<float>(x.end() - m, x.end()));
      const Exact<uint16_t> half(std::vector<uint16_t>(m, 0));
      ops.f32_to_f16(exact.get(), m, half.get());
      ASSERT_EQ(half.ToVector(), std::vector<uint16_t>(f16.end() - m, f16.end())) << ops.name;
      ops.f32_to_bf16(exact.get(), m, half.get());
      ASSERT_EQ(half.ToVector(), std::vector<uint16_t>(bf16.end() - m, bf16.end())) << ops.name;
    }
  }
}

// Every binary32 pattern against quant/half.h. NaN: a half becomes sign | 0x7E00 whatever the payload was; bfloat16
// keeps its upper 16 bits with bit 6, which makes it quiet, set. (The other way, in AllHalvesWidenAsTheScalarRuleSays:
// a half's payload is shifted up and made quiet; bfloat16 moves its bits as they are, so a signalling NaN stays one.)
// Builds without optimisation or with sanitizers check every 509th of the chunks, all exponents and signs among them.
TEST(VecOpsTest, NarrowingOfEveryPatternFollowsTheScalarRule) {
#ifdef NDEBUG
  constexpr uint64_t kStep = 1;
#else
  constexpr uint64_t kStep = 509;
#endif
  constexpr uint64_t kChunk = 1 << 14, kChunks = (uint64_t{1} << 32) / kChunk;
  const std::vector<VecOps> usable = UsableOps();
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> checked{0};
  std::atomic<int64_t> wrong{-1};  // a pattern
  const auto work = [&] {
    std::vector<float> x(kChunk);
    std::vector<uint16_t> want_f16(kChunk), want_bf16(kChunk), got(kChunk);
    for (uint64_t c = next++ * kStep; c < kChunks && wrong < 0; c = next++ * kStep) {
      for (uint64_t i = 0; i < kChunk; ++i) x[i] = std::bit_cast<float>(static_cast<uint32_t>(c * kChunk + i));
      quant::F32RowToF16(x.data(), kChunk, reinterpret_cast<std::byte*>(want_f16.data()));
      for (uint64_t i = 0; i < kChunk; ++i) want_bf16[i] = quant::F32ToBf16(x[i]);
      const auto compare = [&](const std::vector<uint16_t>& want) {
        if (std::memcmp(got.data(), want.data(), kChunk * sizeof(uint16_t)) == 0) return;
        const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
        wrong = static_cast<int64_t>(c * kChunk) + at;
      };
      for (const VecOps& ops : usable) {
        if (ops.isa == sys::Isa::kReference && c % 64 != 0) continue;  // it calls the functions it is compared with
        ops.f32_to_f16(x.data(), kChunk, got.data());
        compare(want_f16);
        ops.f32_to_bf16(x.data(), kChunk, got.data());
        compare(want_bf16);
      }
      checked += kChunk;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, -1) << "pattern " << std::hex << wrong;
  EXPECT_EQ(checked, (kChunks + kStep - 1) / kStep * kChunk);
}

TEST(VecOpsTest, SelectsTheBestTableThatTheCapsAllow) {
  for (sys::Isa isa : {sys::Isa::kReference, sys::Isa::kAvx2, sys::Isa::kAvx512}) {
    sys::CpuCaps caps;
    caps.isa = isa;
    EXPECT_EQ(SelectVecOps(caps).isa, isa);
  }
}

}  // namespace
}  // namespace bellhop::kernels
