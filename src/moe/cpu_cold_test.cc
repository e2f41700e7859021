#include "moe/cpu_cold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "moe/doorbell_service.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/random_weights.h"

namespace bellhop::moe {
namespace {

using quant::MatrixSpec;
using quant::ScaleType;
using quant::WeightFormat;
using store::Fc1Layout;

constexpr int64_t kHidden = 320, kInner = 192;  // not multiples of every unit of work
constexpr int32_t kExperts = 5;

MatrixSpec Q4() { return {.format = WeightFormat::kQ4_0}; }
MatrixSpec F32() { return {.format = WeightFormat::kF32}; }
MatrixSpec Int4(ScaleType scales, bool zero_points) {
  return {.format = WeightFormat::kInt4, .scale_type = scales, .group = 32, .zero_points = zero_points};
}

struct LayerOptions {
  MatrixSpec matrix = Q4();
  Fc1Layout layout = Fc1Layout::kSeparate;
  ExpertNumerics numerics = {};
  bool biases = true;
  int64_t inner = kInner;
};

// One layer of random experts, with a plain double-precision forward.
class Layer {
 public:
  explicit Layer(const LayerOptions& options) : options_(options), random_(7) {
    const bool interleaved = options.layout == Fc1Layout::kInterleaved;
    const int64_t fc1_rows = interleaved ? 2 * options.inner : options.inner;
    for (int32_t e = 0; e < kExperts; ++e) {
      store::ExpertView view;
      view.fc1 = options.layout;
      view.gate = Add(fc1_rows, kHidden);
      if (options.layout == Fc1Layout::kSeparate) view.up = Add(options.inner, kHidden);
      view.down = Add(kHidden, options.inner);
      if (options.biases) {
        view.gate_bias = AddBias(fc1_rows);
        if (options.layout == Fc1Layout::kSeparate) view.up_bias = AddBias(options.inner);
        view.down_bias = AddBias(kHidden);
        view.down_scale = 0.75f;
      }
      views_.push_back(view);
    }
  }

  std::vector<std::vector<Expert>> Experts(const sys::CpuCaps& caps) const {
    std::vector<std::vector<Expert>> layers(1);
    for (const store::ExpertView& view : views_) {
      auto expert = MakeExpert(view, options_.numerics.activation, caps, nullptr);
      EXPECT_TRUE(expert.ok()) << expert.status().ToString();
      if (expert.ok()) layers[0].push_back(*expert);
    }
    return layers;
  }

  // y of one expert for one row.
  std::vector<double> Oracle(int32_t e, const float* x) const {
    const store::ExpertView& view = views_[static_cast<size_t>(e)];
    auto product = [](const quant::QuantView& w, const float* bias, float scale, const std::vector<double>& in) {
      std::vector<double> out;
      std::vector<float> row(static_cast<size_t>(w.cols));
      for (int64_t r = 0; r < w.rows; ++r) {
        quant::DecodeRow(w, r, row.data());
        double sum = 0;
        for (size_t c = 0; c < row.size(); ++c) sum += static_cast<double>(row[c]) * in[c];
        out.push_back(scale * sum + (bias != nullptr ? bias[r] : 0.0f));
      }
      return out;
    };
    const std::vector<double> in(x, x + kHidden);
    std::vector<double> fc1 = product(view.gate, view.gate_bias, view.gate_scale, in), up;
    if (view.fc1 == Fc1Layout::kSeparate) up = product(view.up, view.up_bias, view.up_scale, in);
    std::vector<double> h;
    for (int64_t i = 0; i < options_.inner; ++i) {
      const auto n = static_cast<size_t>(i);
      const bool interleaved = view.fc1 == Fc1Layout::kInterleaved;
      const double gate = interleaved ? fc1[2 * n] : fc1[n];
      const double u = interleaved ? fc1[2 * n + 1] : up.empty() ? 0 : up[n];
      h.push_back(Round(options_.numerics.hidden, Activate(gate, u)));
    }
    std::vector<double> y = product(view.down, view.down_bias, view.down_scale, h);
    for (double& v : y) v = Round(options_.numerics.output, v);
    return y;
  }

 private:
  quant::QuantView Add(int64_t rows, int64_t cols) {
    MatrixSpec spec = options_.matrix;
    spec.rows = rows;
    spec.cols = cols;
    matrices_.push_back(quant::RandomMatrix(spec, random_()));
    return matrices_.back().view;
  }
  const float* AddBias(int64_t n) {
    std::normal_distribution<float> normal;
    biases_.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(n)));
    for (float& v : *biases_.back()) v = normal(random_);
    return biases_.back()->data();
  }
  double Activate(double g, double u) const {
    const ActivationParams& p = options_.numerics.activation;
    auto gelu = [](double v) { return 0.5 * v * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v))); };
    switch (p.kind) {
      case ExpertActivation::kSwiGlu: {
        const double limit = p.limit;
        const double gate = std::min(g, limit), up = std::clamp(u, -limit, limit);
        return gate / (1 + std::exp(-static_cast<double>(p.alpha) * gate)) * (up + p.beta);
      }
      case ExpertActivation::kGeGlu: return gelu(g) * u;
      case ExpertActivation::kSilu: return g / (1 + std::exp(-g));
      case ExpertActivation::kGelu: return gelu(g);
      case ExpertActivation::kRelu: return std::max(g, 0.0);
      case ExpertActivation::kIdentity: return g;
    }
    return 0;
  }
  static double Round(Rounding rounding, double v) {
    const auto f = static_cast<float>(v);
    switch (rounding) {
      case Rounding::kNone: return v;
      case Rounding::kF16: return quant::F16ToF32(quant::F32ToF16(f));
      case Rounding::kBF16: return quant::Bf16ToF32(quant::F32ToBf16(f));
    }
    return v;
  }

  LayerOptions options_;
  std::mt19937 random_;
  std::vector<quant::OwnedMatrix> matrices_;
  std::vector<std::unique_ptr<std::vector<float>>> biases_;
  std::vector<store::ExpertView> views_;
};

struct Call {
  int32_t rows = 4, used = 3;
  std::vector<int32_t> ids;
  std::vector<float> weights, x;
  std::vector<uint8_t> skip;

  Call(int32_t row_count, int32_t used_count, uint32_t seed) : rows(row_count), used(used_count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<int32_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    for (int32_t m = 0; m < rows; ++m) {
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + used);
    }
    for (size_t r = 0; r < ids.size(); ++r) {
      weights.push_back(0.1f + static_cast<float>(random() % 100) / 100);
      skip.push_back(random() % 4 == 0);
    }
    x.resize(static_cast<size_t>(rows) * kHidden);
    for (float& v : x) v = normal(random);
  }
};

// What a Runner's tests vary.
struct RunOptions {
  NumericClass numeric_class = NumericClass::kDecode;
  RowRange inner = {};
  bool use_skip = true;
  const std::atomic<ExpertReady>* ready = nullptr;
  uint8_t* failed_rows = nullptr;
};

class Runner {
 public:
  Runner(const Layer& layer, const ExpertNumerics& numerics, int threads, const sys::CpuCaps& caps) {
    auto pool = sys::WorkerPool::Create({.cpus = std::vector<int>(static_cast<size_t>(threads), 0), .pin = false});
    EXPECT_TRUE(pool.ok());
    pool_ = std::move(pool).value();
    auto cpu = CpuContext::Create(pool_.get(), caps, kHidden, 64);
    EXPECT_TRUE(cpu.ok());
    cpu_ = std::move(cpu).value();
    auto path = CpuColdPath::Create(layer.Experts(caps), *cpu_,
                                    {.hidden = kHidden, .max_rows = 64, .max_used = kExperts, .numerics = numerics});
    EXPECT_TRUE(path.ok()) << path.status().ToString();
    path_ = std::move(path).value();
  }

  std::vector<float> Run(const Call& call, const RunOptions& options = {}) {
    std::vector<float> y(call.x.size(), NAN);
    path_->Run({.layer = LayerId(0),
                .numeric_class = options.numeric_class,
                .routes = {call.rows, call.used, call.ids.data(), call.weights.data(),
                           options.use_skip ? call.skip.data() : nullptr},
                .x = {call.x.data(), call.rows, kHidden, kHidden},
                .y = {y.data(), call.rows, kHidden, kHidden},
                .inner = options.inner,
                .ready = options.ready,
                .failed_rows = options.failed_rows});
    return y;
  }
  CpuColdPath* path() { return path_.get(); }

 private:
  std::unique_ptr<sys::WorkerPool> pool_;
  std::unique_ptr<CpuContext> cpu_;
  std::unique_ptr<CpuColdPath> path_;
};

std::vector<double> Expected(const Layer& layer, const Call& call, bool use_skip = true) {
  std::vector<double> y(call.x.size(), 0.0);
  for (int32_t r = 0; r < call.rows * call.used; ++r) {
    const auto n = static_cast<size_t>(r);
    if (use_skip && call.skip[n] != 0) continue;
    const int32_t m = r / call.used;
    const std::vector<double> one = layer.Oracle(call.ids[n], call.x.data() + m * kHidden);
    for (int64_t c = 0; c < kHidden; ++c) {
      y[static_cast<size_t>(m * kHidden + c)] += call.weights[n] * one[static_cast<size_t>(c)];
    }
  }
  return y;
}

double RelativeL2(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(error / norm);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Bound of the f32 rounding errors: sums of at most 512 products, whose errors add up like a random walk.
constexpr double kF32Tolerance = 4e-6;

TEST(CpuColdPathTest, EveryLayoutAndActivationEqualsThePlainFormula) {
  const ActivationParams oai{.alpha = 1.702f, .beta = 1, .limit = 7};
  const struct {
    Fc1Layout layout;
    ActivationParams activation;
  } cases[] = {
      {Fc1Layout::kSeparate, {}},
      {Fc1Layout::kSeparate, oai},
      {Fc1Layout::kSeparate, {.kind = ExpertActivation::kGeGlu}},
      {Fc1Layout::kInterleaved, {}},
      {Fc1Layout::kInterleaved, oai},
      {Fc1Layout::kInterleaved, {.alpha = 0.5f, .beta = 0.25f, .limit = 1.5f}},
      {Fc1Layout::kSingle, {.kind = ExpertActivation::kSilu}},
      {Fc1Layout::kSingle, {.kind = ExpertActivation::kGelu}},
      {Fc1Layout::kSingle, {.kind = ExpertActivation::kRelu}},
      {Fc1Layout::kSingle, {.kind = ExpertActivation::kIdentity}},
  };
  const Call call(5, 3, 1);
  for (const auto& c : cases) {
    for (const MatrixSpec& matrix : {Q4(), Int4(ScaleType::kF16, false), Int4(ScaleType::kBF16, true), F32()}) {
      const ExpertNumerics numerics{.activation = c.activation};
      const Layer layer({.matrix = matrix, .layout = c.layout, .numerics = numerics});
      Runner runner(layer, numerics, 2, sys::DetectCpu());
      EXPECT_LT(RelativeL2(runner.Run(call), Expected(layer, call)), kF32Tolerance)
          << "layout " << static_cast<int>(c.layout) << ", activation " << static_cast<int>(c.activation.kind);
    }
  }
}

TEST(CpuColdPathTest, RoundsWhereTheNumericsSay) {
  const Call call(3, 2, 2);
  for (const Rounding hidden : {Rounding::kF16, Rounding::kBF16}) {
    for (const Rounding output : {Rounding::kNone, Rounding::kF16, Rounding::kBF16}) {
      const ExpertNumerics numerics{.activation = {}, .hidden = hidden, .output = output};
      const Layer layer({.layout = Fc1Layout::kInterleaved, .numerics = numerics});
      Runner rounded(layer, numerics, 2, sys::DetectCpu());
      const std::vector<double> want = Expected(layer, call);
      // An f32 error before a rounding can move a value to the neighbour: one step of the 16-bit type now and then.
      const double step = hidden == Rounding::kF16 && output != Rounding::kBF16 ? 0x1p-11 : 0x1p-8;
      EXPECT_LT(RelativeL2(rounded.Run(call), want), 0.1 * step);
      Runner plain(layer, {.activation = {}}, 2, sys::DetectCpu());
      EXPECT_GT(RelativeL2(plain.Run(call), want), 0.1 * step) << "the rounding makes no difference";
    }
  }
}

TEST(CpuColdPathTest, GateAndUpMayOverflowF16BeforeTheActivation) {
  // An f16 projection above 65504 must not become Inf before SwiGLU clamps it.
  const ExpertNumerics numerics{
      .activation = {.alpha = 1.702f, .beta = 1, .limit = 7}, .hidden = Rounding::kF16, .output = Rounding::kF16};
  const Layer layer({.layout = Fc1Layout::kInterleaved, .numerics = numerics});
  Runner runner(layer, numerics, 2, sys::DetectCpu());
  Call call(2, 2, 3);
  for (float& v : call.x) v *= 1e6f;
  const std::vector<float> y = runner.Run(call);
  for (const float v : y) ASSERT_TRUE(std::isfinite(v));
  EXPECT_LT(RelativeL2(y, Expected(layer, call)), 1e-3);
}

TEST(CpuColdPathTest, SameBitsForEveryThreadCountAndIsa) {
  for (const NumericClass numeric_class : {NumericClass::kDecode, NumericClass::kPrompt}) {
    for (const Fc1Layout layout : {Fc1Layout::kSeparate, Fc1Layout::kInterleaved}) {
      const ExpertNumerics numerics{.activation = {.alpha = 1.702f, .beta = 1, .limit = 7}};
      const Layer layer({.layout = layout, .numerics = numerics});
      const Call call(37, 4, 4);  // results are combined by rows with one and two threads, by columns with more
      std::vector<float> first;
      for (const std::string_view isa : {"reference", "avx2", "avx512", "amx"}) {
        const auto caps = sys::LimitIsa(sys::DetectCpu(), isa);
        if (!caps.ok()) continue;
        for (const int threads : {1, 2, 3, 7}) {
          Runner runner(layer, numerics, threads, *caps);
          const std::vector<float> y = runner.Run(call, {.numeric_class = numeric_class});
          if (first.empty()) first = y;
          EXPECT_TRUE(SameBits(y, first)) << isa << " with " << threads << " threads";
        }
      }
      const double tolerance = numeric_class == NumericClass::kDecode ? kF32Tolerance : 6e-3;
      EXPECT_LT(RelativeL2(first, Expected(layer, call)), tolerance);
    }
  }
}

TEST(CpuColdPathTest, ARowDoesNotDependOnTheOthers) {
  const Layer layer({});
  Runner runner(layer, {}, 3, sys::DetectCpu());
  const Call all(33, 3, 5);
  const std::vector<float> together = runner.Run(all);
  for (int32_t m = 0; m < all.rows; ++m) {
    Call one(1, all.used, 5);
    one.ids.assign(all.ids.begin() + m * all.used, all.ids.begin() + (m + 1) * all.used);
    one.weights.assign(all.weights.begin() + m * all.used, all.weights.begin() + (m + 1) * all.used);
    one.skip.assign(all.skip.begin() + m * all.used, all.skip.begin() + (m + 1) * all.used);
    one.x.assign(all.x.begin() + m * kHidden, all.x.begin() + (m + 1) * kHidden);
    const std::vector<float> alone = runner.Run(one);
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + m * kHidden, kHidden * sizeof(float)), 0) << "row " << m;
  }
}

TEST(CpuColdPathTest, PartsOfTheInnerDimensionAddUp) {
  for (const Fc1Layout layout : {Fc1Layout::kSeparate, Fc1Layout::kInterleaved}) {
    for (const MatrixSpec& matrix : {Q4(), Int4(ScaleType::kBF16, true)}) {
      const Layer layer({.matrix = matrix, .layout = layout});
      Runner runner(layer, {}, 2, sys::DetectCpu());
      const Call call(4, 3, 6);
      const int64_t unit = InnerGranularity(layer.Experts(sys::DetectCpu())[0][0]);
      ASSERT_LT(unit, kInner);
      for (int64_t cut = unit; cut < kInner; cut += unit) {
        std::vector<float> sum = runner.Run(call, {.inner = {0, cut}});
        const std::vector<float> rest = runner.Run(call, {.inner = {cut, kInner}});
        EXPECT_GT(std::abs(rest[0]), 0);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i];
        EXPECT_LT(RelativeL2(sum, Expected(layer, call)), kF32Tolerance) << "cut at " << cut;
      }
    }
  }
}

// The split lane: the doorbell's requests do not say which part is the CPU's.
TEST(CpuColdPathTest, TheDoorbellsRunnerKnowsTheCpusPart) {
  const Layer layer({});
  Runner runner(layer, {}, 2, sys::DetectCpu());
  const Call call(4, 3, 6);
  for (const RowRange inner : {RowRange{}, RowRange{0, kInner / 2}}) {
    std::vector<uint32_t> sums(call.x.size(), cuda::kNoSum);
    ColdPathRunner misses(runner.path(), {}, {inner});
    ASSERT_TRUE(
        misses.RunMisses({.layer = LayerId(0),
                          .routes = {call.rows, call.used, call.ids.data(), call.weights.data(), call.skip.data()},
                          .x = {call.x.data(), call.rows, kHidden, kHidden},
                          .sums = {sums.data(), call.rows, kHidden, kHidden}}));
    const std::vector<float> want = runner.Run(call, {.inner = inner});
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto first = call.skip.begin() + static_cast<int64_t>(i) / kHidden * call.used;
      const bool has_miss = std::count(first, first + call.used, 0) > 0;
      ASSERT_EQ(sums[i], has_miss ? std::bit_cast<uint32_t>(want[i]) : cuda::kNoSum) << i;
    }
  }
}

TEST(CpuColdPathTest, LateExpertsChangeNothing) {
  const Layer layer({});
  Runner runner(layer, {}, 2, sys::DetectCpu());
  const Call call(6, 3, 8);
  const std::vector<float> want = runner.Run(call);
  std::atomic<ExpertReady> ready[kExperts] = {};
  ready[1] = ExpertReady::kReady;
  ready[4] = ExpertReady::kReady;
  std::thread loader([&] {
    for (const int e : {3, 0, 2}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ready[e].store(ExpertReady::kReady, std::memory_order_release);
    }
  });
  const std::vector<float> late = runner.Run(call, {.ready = ready});
  loader.join();
  EXPECT_TRUE(SameBits(late, want));
}

TEST(CpuColdPathTest, AFailedLoadEndsTheRowsThatNeededIt) {
  const Layer layer({});
  Runner runner(layer, {}, 2, sys::DetectCpu());
  const Call call(8, 2, 9);
  const std::vector<float> want = runner.Run(call, {.use_skip = false});
  std::atomic<ExpertReady> ready[kExperts];
  for (auto& r : ready) r = ExpertReady::kReady;
  ready[2] = ExpertReady::kFailed;
  std::vector<uint8_t> failed(8, 0);
  const std::vector<float> got = runner.Run(call, {.use_skip = false, .ready = ready, .failed_rows = failed.data()});
  int failures = 0;
  for (int32_t m = 0; m < call.rows; ++m) {
    const bool needs = call.ids[static_cast<size_t>(2 * m)] == 2 || call.ids[static_cast<size_t>(2 * m + 1)] == 2;
    EXPECT_EQ(failed[static_cast<size_t>(m)], needs) << "row " << m;
    failures += needs;
    for (int64_t c = 0; c < kHidden; ++c) {
      const auto i = static_cast<size_t>(m * kHidden + c);
      ASSERT_EQ(got[i], needs ? 0.0f : want[i]);
    }
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(failures, call.rows);
}

TEST(ColdGroupsTest, ReadyExpertsComeFirst) {
  ColdGroups groups(6, 32);
  const std::vector<int32_t> ids = {5, 1, 0, 5, 3, 1};
  const std::vector<uint8_t> skip = {0, 0, 0, 0, 1, 0};
  std::atomic<ExpertReady> ready[6] = {};
  ready[5] = ExpertReady::kReady;
  groups.Build({.rows = 3, .used = 2, .ids = ids.data(), .weights = nullptr, .skip = skip.data()}, 6, ready);
  ASSERT_EQ(groups.groups().size(), 3u);
  EXPECT_EQ(groups.misses(), 5);
  EXPECT_EQ(groups.groups()[0].expert, 5);
  EXPECT_EQ(groups.groups()[0].count, 2);
  EXPECT_EQ(groups.groups()[1].expert, 0);
  EXPECT_EQ(groups.groups()[2].expert, 1);
  EXPECT_EQ(groups.groups()[2].first, 3);
  EXPECT_EQ(std::vector<int32_t>(groups.rows(), groups.rows() + 5), (std::vector<int32_t>{0, 1, 1, 0, 2}));
  EXPECT_EQ(std::vector<int32_t>(groups.positions(), groups.positions() + 6),
            (std::vector<int32_t>{0, 3, 2, 1, -1, 4}));
}

TEST(MakeExpertTest, RefusesWhatDoesNotFit) {
  const Layer layer({});
  store::ExpertView single;
  single.fc1 = Fc1Layout::kSingle;
  const auto one_half = MakeExpert(single, {}, sys::DetectCpu(), nullptr);
  EXPECT_EQ(one_half.status().code(), StatusCode::kInvalidArgument);
  const quant::OwnedMatrix m = quant::RandomMatrix({.format = WeightFormat::kQ4_0, .rows = 64, .cols = 96}, 1);
  store::ExpertView view;
  view.gate = view.up = view.down = m.view;
  const auto bad_shape = MakeExpert(view, {}, sys::DetectCpu(), nullptr);
  EXPECT_EQ(bad_shape.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bad_shape.status().message().find("gate"), std::string::npos) << bad_shape.status().ToString();
}

}  // namespace
}  // namespace bellhop::moe
