#include "moe/cold_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "quant/random_weights.h"

namespace bellhop::moe {
namespace {

using quant::WeightFormat;
using store::Fc1Layout;

constexpr int64_t kHidden = 320, kInner = 102;  // no multiples of every unit of work

std::vector<float> Normal(int64_t n, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(random);
  return v;
}

// One expert of random weights with biases and factors.
struct Weights {
  Weights(Fc1Layout fc1, WeightFormat format, WeightFormat down_format, std::mt19937_64& random) {
    const int64_t rows = fc1 == Fc1Layout::kInterleaved ? 2 * kInner : kInner;
    auto add = [&](WeightFormat f, int64_t r, int64_t c) {
      matrices.push_back(quant::RandomMatrix({.format = f, .rows = r, .cols = c}, random()));
      return matrices.back().view;
    };
    gate_bias = Normal(rows, random);
    up_bias = Normal(kInner, random);
    down_bias = Normal(kHidden, random);
    view.fc1 = fc1;
    view.gate = add(format, rows, kHidden);
    view.gate_bias = gate_bias.data();
    view.gate_scale = 0.7f;
    if (fc1 == Fc1Layout::kSeparate) {
      view.up = add(format, kInner, kHidden);
      view.up_bias = up_bias.data();
      view.up_scale = 1.3f;
    }
    view.down = add(down_format, kHidden, kInner);
    view.down_bias = down_bias.data();
  }
  std::vector<quant::OwnedMatrix> matrices;
  std::vector<float> gate_bias, up_bias, down_bias;
  store::ExpertView view;
};

sys::CpuCaps ReferenceCaps() { return *sys::LimitIsa(sys::DetectCpu(), "reference"); }

// W x by the reference kernels, all rows at once.
std::vector<float> ReferenceLinear(const quant::QuantView& w, const float* bias, float scale,
                                   const std::vector<float>& x) {
  const kernels::GemmKernel& gemm = *kernels::SelectGemm(ReferenceCaps());
  const auto rows = static_cast<int64_t>(x.size()) / w.cols, stride = kernels::GemmPaddedRows(rows);
  auto tile =
      sys::AlignedBuffer::Create(static_cast<uint64_t>(kernels::GemmTileBytes(w.cols, 1)), MemoryTag::kWorkspace);
  auto packed =
      sys::AlignedBuffer::Create(static_cast<uint64_t>(kernels::GemmPackedBytes(rows, w.cols)), MemoryTag::kWorkspace);
  gemm.pack({x.data(), rows, w.cols, w.cols}, nullptr, {0, rows}, packed->bytes().data());
  std::vector<float> y(static_cast<size_t>(rows * w.rows)), yt(static_cast<size_t>(stride));
  for (int64_t r = 0; r < w.rows; ++r) {
    gemm.fill_tile({.decode = kernels::SelectRowDecode(w.format, ReferenceCaps()),
                    .weights = &w,
                    .rows = {r, r + 1},
                    .tile = tile->bytes().data()});
    gemm.multiply({.tile = tile->bytes().data(),
                   .n = 1,
                   .packed = packed->bytes().data(),
                   .rows = rows,
                   .k = w.cols,
                   .yt = yt.data(),
                   .yt_stride = stride});
    gemm.transpose_store({.yt = yt.data(),
                          .yt_stride = stride,
                          .n = 1,
                          .rows = rows,
                          .scale = scale,
                          .bias = bias == nullptr ? nullptr : bias + r,
                          .y = y.data() + r,
                          .y_stride = w.rows});
  }
  return y;
}

// The whole expert, matrix by matrix.
std::vector<float> ReferenceExpert(const store::ExpertView& view, const ExpertNumerics& numerics,
                                   const std::vector<float>& x) {
  const kernels::VecOps& ops = kernels::SelectVecOps(ReferenceCaps());
  std::vector<float> gate = ReferenceLinear(view.gate, view.gate_bias, view.gate_scale, x), up;
  if (view.fc1 == Fc1Layout::kSeparate) {
    up = ReferenceLinear(view.up, view.up_bias, view.up_scale, x);
  } else if (view.fc1 == Fc1Layout::kInterleaved) {
    const std::vector<float> both = gate;
    gate.resize(both.size() / 2);
    up.resize(both.size() / 2);
    for (size_t i = 0; i < up.size(); ++i) gate[i] = both[2 * i], up[i] = both[2 * i + 1];
  }
  const auto n = static_cast<int64_t>(gate.size());
  ApplyActivation(ops, numerics.activation, gate.data(), up.data(), n, gate.data());
  ApplyRounding(ops, numerics.hidden, n, gate.data());
  std::vector<float> y = ReferenceLinear(view.down, view.down_bias, view.down_scale, gate);
  ApplyRounding(ops, numerics.output, static_cast<int64_t>(y.size()), y.data());
  return y;
}

class Runner {
 public:
  Runner(const sys::CpuCaps& caps, int threads, const ExpertNumerics& numerics, int64_t routes, int64_t groups) {
    pool_ =
        std::move(sys::WorkerPool::Create({.cpus = std::vector<int>(static_cast<size_t>(threads), 0), .pin = false}))
            .value();
    cpu_ = std::move(CpuContext::Create(pool_.get(), caps, kHidden, 64)).value();
    prompt_ = std::move(ColdPrompt::Create(
                            *cpu_, {.hidden = kHidden, .inner = kInner, .routes = routes, .groups = groups}, numerics))
                  .value();
  }
  ColdPrompt& prompt() { return *prompt_; }

 private:
  std::unique_ptr<sys::WorkerPool> pool_;
  std::unique_ptr<CpuContext> cpu_;
  std::unique_ptr<ColdPrompt> prompt_;
};

// Some experts and the rows that each of them gets.
struct Layer {
  Layer(Fc1Layout layout, WeightFormat format, WeightFormat down_format, const std::vector<int32_t>& group_rows,
        uint64_t seed)
      : counts(group_rows), random(seed) {
    x = Normal(kRows * kHidden, random);
    for (const int32_t count : counts) {
      weights.push_back(std::make_unique<Weights>(layout, format, down_format, random));
      rows.emplace_back();
      for (int32_t i = 0; i < count; ++i) rows.back().push_back(static_cast<int32_t>(random() % kRows));
      routes += count;
    }
  }
  // The results of all groups, one after the other.
  std::vector<float> Run(ColdPrompt& prompt, const ExpertNumerics& numerics, const sys::CpuCaps& caps,
                         const std::atomic<ExpertReady>* ready = nullptr) {
    constexpr int64_t kStride = kHidden + 16;
    std::vector<float> out(static_cast<size_t>(routes * kStride), -7.0f), compact;
    std::vector<Expert> experts;
    std::vector<PromptGroup> groups;
    experts.reserve(weights.size());
    int64_t first = 0;
    for (size_t g = 0; g < weights.size(); ++g) {
      experts.push_back(*MakeExpert(weights[g]->view, numerics.activation, caps, nullptr));
      groups.push_back({.expert = &experts.back(),
                        .id = static_cast<int32_t>(g),
                        .count = counts[g],
                        .rows = rows[g].data(),
                        .out = out.data() + first * kStride});
      first += counts[g];
    }
    prompt.Run({groups.data(), groups.size()}, {x.data(), kRows, kHidden, kHidden}, kStride, ready, [](int, int) {});
    for (int64_t r = 0; r < routes; ++r) {
      const float* row = out.data() + r * kStride;
      compact.insert(compact.end(), row, row + kHidden);
      for (int64_t c = kHidden; c < kStride; ++c) EXPECT_EQ(row[c], -7.0f);
    }
    return compact;
  }
  std::vector<float> Expected(const ExpertNumerics& numerics) const {
    std::vector<float> all;
    for (size_t g = 0; g < weights.size(); ++g) {
      std::vector<float> gathered;
      for (const int32_t r : rows[g])
        gathered.insert(gathered.end(), x.data() + r * kHidden, x.data() + (r + 1) * kHidden);
      const std::vector<float> y = ReferenceExpert(weights[g]->view, numerics, gathered);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }

  static constexpr int64_t kRows = 40;
  std::vector<int32_t> counts;
  std::mt19937_64 random;
  std::vector<float> x;
  std::vector<std::unique_ptr<Weights>> weights;
  std::vector<std::vector<int32_t>> rows;
  int64_t routes = 0;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(ColdPromptTest, EveryLayoutAndNumericEqualsTheReferenceKernelsBitForBit) {
  const ActivationParams oai{.alpha = 1.702f, .beta = 1, .limit = 1.5f};
  const struct {
    Fc1Layout layout;
    ExpertNumerics numerics;
    WeightFormat format, down_format;
  } cases[] = {
      {Fc1Layout::kSeparate, {}, WeightFormat::kQ4_0, WeightFormat::kF16},
      {Fc1Layout::kSeparate, {.activation = oai}, WeightFormat::kQ8_0, WeightFormat::kBF16},
      {Fc1Layout::kSeparate,
       {.activation = {.kind = ExpertActivation::kGeGlu}, .output = Rounding::kBF16},
       WeightFormat::kF32,
       WeightFormat::kF32},
      {Fc1Layout::kInterleaved,
       {.activation = oai, .hidden = Rounding::kF16, .output = Rounding::kF16},
       WeightFormat::kMXFP4,
       WeightFormat::kF16},
      {Fc1Layout::kInterleaved,
       {.activation = {}, .hidden = Rounding::kBF16},
       WeightFormat::kIQ4NL,
       WeightFormat::kF32},
      {Fc1Layout::kSingle, {.activation = {.kind = ExpertActivation::kRelu}}, WeightFormat::kQ4_1, WeightFormat::kF16},
      {Fc1Layout::kSingle,
       {.activation = {.kind = ExpertActivation::kIdentity}, .hidden = Rounding::kF16},
       WeightFormat::kF16,
       WeightFormat::kF16},
  };
  uint64_t seed = 1;
  for (const auto& c : cases) {
    Layer layer(c.layout, c.format, c.down_format, {3, 33, 1}, seed++);
    const std::vector<float> want = layer.Expected(c.numerics);
    for (const std::string_view isa : {"reference", "avx2", "avx512", "amx"}) {
      const auto caps = sys::LimitIsa(sys::DetectCpu(), isa);
      if (!caps.ok()) continue;
      Runner runner(*caps, 2, c.numerics, layer.routes, 3);
      EXPECT_TRUE(SameBits(layer.Run(runner.prompt(), c.numerics, *caps), want)) << "case " << seed - 2 << " " << isa;
    }
  }
}

// More rows than a chunk, many units of work, and any number of workers.
TEST(ColdPromptTest, LargeGroupsAndEveryThreadCountGiveTheSameBits) {
  const ExpertNumerics numerics;
  const sys::CpuCaps caps = sys::DetectCpu();
  Layer layer(Fc1Layout::kSeparate, WeightFormat::kQ4_0, WeightFormat::kF16, {300, 16, 0, 65}, 9);
  const std::vector<float> want = layer.Expected(numerics);
  for (const int threads : {1, 2, 5, 16}) {
    Runner runner(caps, threads, numerics, layer.routes, 4);
    for (int repeat = 0; repeat < 2; ++repeat) {
      EXPECT_TRUE(SameBits(layer.Run(runner.prompt(), numerics, caps), want)) << threads << " threads";
    }
  }
}

// Workers share the groups of columns of few panels: however they are cut, the packed bytes are those of one call.
TEST(ColdPromptTest, PackingByGroupsOfColumnsGivesTheSameBytes) {
  std::mt19937_64 random(21);
  for (const std::string_view isa : {"reference", "avx2", "avx512", "amx"}) {
    const auto caps = sys::LimitIsa(sys::DetectCpu(), isa);
    if (!caps.ok()) continue;
    const kernels::GemmKernel& gemm = *kernels::SelectGemm(*caps);
    for (const auto& [count, cols] : {std::pair<int64_t, int64_t>{64, 320}, {37, 102}, {1, 31}, {16, 33}, {20, 64}}) {
      const int64_t stride = cols + 5, x_rows = 50;
      const std::vector<float> data = Normal((count + x_rows) * stride, random);
      std::vector<int32_t> rows;
      for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(random() % x_rows));
      const auto bytes = static_cast<uint64_t>(kernels::GemmPackedBytes(count, cols));
      auto want = sys::AlignedBuffer::Create(bytes, MemoryTag::kWorkspace);
      auto got = sys::AlignedBuffer::Create(bytes, MemoryTag::kWorkspace);
      for (const int32_t* chosen : {static_cast<const int32_t*>(nullptr), static_cast<const int32_t*>(rows.data())}) {
        const MatView<const float> x{data.data(), chosen == nullptr ? count : x_rows, cols, stride};
        gemm.pack(x, chosen, {0, count}, want->bytes().data());
        const int64_t groups = PackedGroups(count, cols);
        EXPECT_EQ(static_cast<uint64_t>(groups) * kernels::kGemmGroup * kernels::kGemmPanelRows * 2, bytes);
        for (const int64_t share : {int64_t{1}, int64_t{3}, groups}) {
          std::memset(got->bytes().data(), 0x7F, bytes);
          for (int64_t g = 0; g < groups; g += share) {
            PackGroups(gemm, x, chosen, count, {g, std::min(g + share, groups)}, got->bytes().data());
          }
          EXPECT_EQ(std::memcmp(got->bytes().data(), want->bytes().data(), bytes), 0)
              << isa << " " << count << " x " << cols << " shares of " << share;
        }
      }
    }
  }
}

TEST(ColdPromptTest, LateExpertsAreAwaitedAndFailedOnesLeaveTheirRowsAlone) {
  const ExpertNumerics numerics;
  const sys::CpuCaps caps = sys::DetectCpu();
  Layer layer(Fc1Layout::kInterleaved, WeightFormat::kQ4_0, WeightFormat::kF32, {5, 20, 7}, 11);
  const std::vector<float> want = layer.Expected(numerics);
  Runner runner(caps, 2, numerics, layer.routes, 3);
  std::atomic<ExpertReady> ready[] = {ExpertReady::kFailed, ExpertReady::kLoading, ExpertReady::kReady};
  std::thread loader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ready[1].store(ExpertReady::kReady, std::memory_order_release);
  });
  const std::vector<float> got = layer.Run(runner.prompt(), numerics, caps, ready);
  loader.join();
  const size_t failed = 5 * kHidden;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i < failed ? -7.0f : want[i]) << i;
}

TEST(ColdPromptTest, EveryWorkerFinishesEvenWithoutGroups) {
  Runner runner(sys::DetectCpu(), 2, {}, 8, 2);
  std::atomic<int> finished[2] = {};
  runner.prompt().Run({}, {nullptr, 0, kHidden, kHidden}, kHidden, nullptr, [&](int worker, int workers) {
    EXPECT_EQ(workers, 2);
    ++finished[worker];
  });
  for (const std::atomic<int>& count : finished) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace bellhop::moe
