// Attention of decode steps on a GPU against double precision on the host. Without a GPU only what needs none is
// checked.
#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cuda/attention_rig_for_test.h"

namespace bellhop::kernels {
namespace {

class GpuAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = cuda::Device::Open(DeviceId(0), &ledger_);
    if (!opened.ok()) GTEST_SKIP() << opened.status().ToString();
    device_ = std::move(*opened);
  }
  std::unique_ptr<AttentionRig> Make(const AttentionCase& c, uint32_t seed = 1) {
    auto rig = AttentionRig::Create(device_.get(), c, seed);
    EXPECT_TRUE(rig.ok()) << rig.status().ToString();
    return rig.ok() ? std::move(*rig) : nullptr;
  }
  void RunAndCheck(const AttentionCase& c, uint32_t seed) {
    SCOPED_TRACE(c.ToString());
    const auto rig = Make(c, seed);
    ASSERT_NE(rig, nullptr);
    const std::vector<float> before = rig->Inputs();
    const Status ran = rig->Run();
    ASSERT_TRUE(ran.ok()) << ran.ToString();
    rig->CheckFinished(before);
    rig->CheckResults();
    rig->CheckCountersAreZero();
  }
  cuda::MemoryLedger ledger_;
  std::unique_ptr<cuda::Device> device_;
};

constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16, KvType::kF32};

struct Dims {
  int32_t heads, kv_heads, key, value;
};
constexpr Dims kDims[] = {
    {32, 4, 128, 128}, {4, 4, 64, 64},   {8, 2, 80, 80}, {7, 1, 128, 128}, {16, 1, 64, 64}, {16, 2, 256, 256},
    {16, 1, 256, 256}, {8, 1, 192, 128}, {4, 1, 96, 96}, {4, 1, 72, 24},   {2, 2, 8, 16},   {16, 1, 80, 200},
};

// Positions around the ends of pages, pages that sequences share, three positions of one sequence in one step, and a
// row of padding.
std::vector<TestRow> MixedRows(int32_t last) {
  return {{0, 0}, {1, 63}, {2, 64}, {3, 511}, {4, last}, {5, 126}, {5, 127}, {5, 128}, {6, -1}, {7, 200}};
}

TEST_F(GpuAttentionTest, AgreesWithTheHost) {
  constexpr int32_t kWindows[] = {0, 128, 0, 100, 1, 1000, 0};
  for (const KvType type : kTypes) {
    for (size_t i = 0; i < std::size(kDims); ++i) {
      const Dims& d = kDims[i];
      const size_t variant = i + static_cast<size_t>(type);
      AttentionCase c{.type = type,
                      .heads = d.heads,
                      .kv_heads = d.kv_heads,
                      .key_dim = d.key,
                      .value_dim = d.value,
                      .norm = static_cast<HeadNorm>(variant % 3),
                      .rope = static_cast<RopeOrder>((variant / 2) % 3),
                      .sinks = variant % 2 == 1,
                      .window = kWindows[variant % std::size(kWindows)],
                      .terms = 2 + static_cast<int32_t>(variant / 2 % 2),
                      .rows = MixedRows(i % 3 == 0 ? 5000 : 1400),
                      .launched = 16};
      if (c.rope != RopeOrder::kNone) c.rope_dims = variant % 4 < 2 ? d.key : d.key / 2;
      RunAndCheck(c, static_cast<uint32_t>(i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuAttentionTest, EveryNormWithEveryRope) {
  for (const HeadNorm norm : {HeadNorm::kNone, HeadNorm::kPerHead, HeadNorm::kFullWidth}) {
    for (const RopeOrder rope : {RopeOrder::kNone, RopeOrder::kNorm, RopeOrder::kNeox}) {
      for (const KvType type : kTypes) {
        RunAndCheck({.type = type,
                     .heads = 12,
                     .kv_heads = 6,
                     .key_dim = 64,
                     .value_dim = 64,
                     .norm = norm,
                     .rope = rope,
                     .rope_dims = rope == RopeOrder::kNone ? 0 : 48,
                     .rows = {{0, 70}, {1, 3}},
                     .max_pages = 4},
                    5);
      }
    }
  }
}

TEST_F(GpuAttentionTest, BatchesOfOneFiveAndThirtyTwoRows) {
  for (const int32_t count : {1, 5, 32}) {
    AttentionCase c{.heads = 16, .kv_heads = 2, .key_dim = 128, .value_dim = 128, .rows = {}};
    for (int32_t m = 0; m < count; ++m) c.rows.push_back({m, 37 * m + 60});
    RunAndCheck(c, 9);
  }
}

TEST_F(GpuAttentionTest, ARowsBitsDoNotDependOnTheOthers) {
  for (const KvType type : kTypes) {
    AttentionCase c{.type = type,
                    .heads = 16,
                    .kv_heads = 2,
                    .key_dim = 64,
                    .value_dim = 64,
                    .norm = HeadNorm::kFullWidth,
                    .rope = RopeOrder::kNeox,
                    .rope_dims = 64,
                    .sinks = true,
                    .rows = {}};
    for (int32_t m = 0; m < 30; ++m) c.rows.push_back({m, 150 * m + m * m});
    c.rows.push_back({30, 4242});
    c.rows.push_back({30, 4243});
    const auto rig = Make(c);
    ASSERT_NE(rig, nullptr);
    const std::vector<float> before = rig->Inputs();
    ASSERT_TRUE(rig->Run().ok());
    const std::vector<float> finished = rig->Inputs();
    std::vector<std::vector<uint8_t>> together;
    for (int32_t m = 0; m < 32; ++m) together.push_back(rig->OutputOf(m));
    for (int32_t m = 0; m < 32; ++m) {
      std::copy(before.begin(), before.end(), rig->qkv());
      rig->PoisonOutputs();
      ASSERT_TRUE(rig->Upload().ok());
      ASSERT_TRUE(rig->Submit(m, 1).ok());
      ASSERT_TRUE(rig->Download().ok());
      EXPECT_EQ(rig->OutputOf(m), together[static_cast<size_t>(m)]) << m;
      const int64_t at = int64_t{m} * rig->Stride();
      EXPECT_EQ(std::memcmp(rig->qkv() + at, finished.data() + at, static_cast<size_t>(rig->Stride()) * 4), 0) << m;
    }
  }
}

// The cache, what is in q, and the results: one kernel against two.
TEST_F(GpuAttentionTest, OneKernelDoesWhatFinishAndAttentionDo) {
  for (const KvType type : kTypes) {
    for (size_t i = 0; i < std::size(kDims); ++i) {
      const Dims& d = kDims[i];
      const auto rope = static_cast<RopeOrder>((i + static_cast<size_t>(type)) % 3);
      const AttentionCase c{.type = type,
                            .heads = d.heads,
                            .kv_heads = d.kv_heads,
                            .key_dim = d.key,
                            .value_dim = d.value,
                            .norm = i % 4 == 1 ? HeadNorm::kNone : HeadNorm::kPerHead,
                            .rope = rope,
                            .rope_dims = rope == RopeOrder::kNone ? 0 : d.key / 2 / 2 * 2,
                            .sinks = i % 2 == 1,
                            .window = i % 3 == 2 ? 100 : 0,
                            .rows = {{0, 0}, {1, 63}, {2, 64}, {3, 511}, {4, 1400}, {5, -1}, {6, 15}, {7, 16}},
                            .max_pages = 24};
      SCOPED_TRACE(c.ToString());
      const auto rig = Make(c, static_cast<uint32_t>(i));
      ASSERT_NE(rig, nullptr);
      const std::vector<float> before = rig->Inputs();
      ASSERT_TRUE(rig->Upload().ok());
      rig->ReadAhead(i % 2 == 0);
      for (int32_t m = 0; m < c.Launched(); ++m) ASSERT_TRUE(rig->SubmitFused(m).ok());
      ASSERT_TRUE(rig->Download().ok());
      const std::vector<uint8_t> cache = rig->Cache();
      EXPECT_EQ(std::memcmp(rig->qkv(), before.data(), before.size() * sizeof(float)), 0);
      rig->CheckCountersAreZero();
      std::vector<std::vector<uint8_t>> fused;
      for (int32_t m = 0; m < c.Launched(); ++m) fused.push_back(rig->OutputOf(m));
      // The new rows are written once more, from the same inputs.
      rig->PoisonOutputs();
      ASSERT_TRUE(rig->Upload().ok());
      for (int32_t m = 0; m < c.Launched(); ++m) ASSERT_TRUE(rig->Submit(m, 1).ok());
      ASSERT_TRUE(rig->Download().ok());
      rig->CheckFinished(before);
      EXPECT_TRUE(rig->Cache() == cache);
      for (int32_t m = 0; m < c.Launched(); ++m) EXPECT_EQ(rig->OutputOf(m), fused[static_cast<size_t>(m)]) << m;
    }
  }
}

// Splits of one row meet through words or through counters; also with heads that share a piece of 16 columns, more KV
// heads than may wait, and launches behind each other.
TEST_F(GpuAttentionTest, WordsAndCountersGiveTheSameBits) {
  constexpr Dims kShapes[] = {{32, 4, 128, 128}, {16, 16, 64, 64},  {40, 20, 64, 64}, {64, 8, 64, 64},  {4, 1, 72, 24},
                              {16, 2, 256, 256}, {12, 1, 128, 128}, {8, 4, 128, 8},   {16, 1, 256, 256}};
  for (const KvType type : kTypes) {
    for (const Dims& d : kShapes) {
      const AttentionCase c{.type = type,
                            .heads = d.heads,
                            .kv_heads = d.kv_heads,
                            .key_dim = d.key,
                            .value_dim = d.value,
                            .sinks = d.kv_heads == 4,
                            .window = d.kv_heads == 8 ? 700 : 0,
                            .rows = {{0, 0}, {1, 63}, {2, 64}, {3, 200}, {4, 700}, {5, 2111}, {6, 2112}, {7, 5000}}};
      SCOPED_TRACE(c.ToString());
      const auto rig = Make(c);
      ASSERT_NE(rig, nullptr);
      std::vector<std::vector<uint8_t>> results[2];
      for (const bool words : {false, true}) {
        rig->UseWords(words);
        rig->PoisonOutputs();
        ASSERT_TRUE(rig->Upload().ok());
        for (int32_t m = 0; m < c.Launched(); ++m) ASSERT_TRUE(rig->SubmitFused(m).ok());
        ASSERT_TRUE(rig->Download().ok());
        rig->CheckCountersAreZero();
        for (int32_t m = 0; m < c.Launched(); ++m) results[words ? 1 : 0].push_back(rig->OutputOf(m));
      }
      EXPECT_TRUE(results[0] == results[1]);
      ASSERT_TRUE(rig->Submit(0, c.Launched()).ok());
      ASSERT_TRUE(rig->Download().ok());
      if (type == KvType::kF16) rig->CheckResults();
      for (int32_t m = 0; m < c.Launched(); ++m) {
        EXPECT_EQ(rig->OutputOf(m), results[0][static_cast<size_t>(m)]) << m;
      }
    }
  }
}

TEST_F(GpuAttentionTest, AGraphReplaysAtOtherPositions) {
  AttentionCase c{.heads = 8,
                  .kv_heads = 2,
                  .key_dim = 64,
                  .value_dim = 64,
                  .norm = HeadNorm::kPerHead,
                  .rope = RopeOrder::kNeox,
                  .rope_dims = 64,
                  .rows = {{0, 2000}, {1, 1500}, {1, 1501}, {2, 700}, {3, 130}},
                  .launched = 8,
                  .max_pages = 40};
  const auto rig = Make(c);
  ASSERT_NE(rig, nullptr);
  const auto graph = cuda::Graph::Capture(rig->stream(), [&] { return rig->Submit(0, c.launched); });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto exec = cuda::GraphExec::Create(*graph, rig->stream());
  ASSERT_TRUE(exec.ok()) << exec.status().ToString();
  std::mt19937 random(3);
  for (uint32_t replay = 0; replay < 100; ++replay) {
    // Behind the shared pages, up to what the cache has; the second sequence's two rows are consecutive.
    for (int32_t m = 0; m < 5; ++m) {
      const int32_t first = c.rows[static_cast<size_t>(m)].position;
      rig->SetPosition(m, 128 + static_cast<int32_t>(random() % static_cast<uint32_t>(first - 127)));
    }
    const int32_t second = rig->spec().rows[1].position;
    rig->SetPosition(2, second + 1);
    rig->FillInputs(replay);
    rig->PoisonOutputs();
    const std::vector<float> before = rig->Inputs();
    ASSERT_TRUE(rig->Upload().ok());
    ASSERT_TRUE(exec->Launch(rig->stream()).ok());
    ASSERT_TRUE(rig->Download().ok());
    rig->CheckFinished(before);
    rig->CheckResults();
    rig->CheckCountersAreZero();
    ASSERT_FALSE(HasFailure()) << replay;
  }
}

TEST_F(GpuAttentionTest, NaNAndInfinityStayInTheirHeads) {
  for (const KvType type : kTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    const AttentionCase c{.type = type, .heads = 8, .kv_heads = 2, .key_dim = 64, .value_dim = 64, .rows = {{0, 900}}};
    const auto rig = Make(c);
    ASSERT_NE(rig, nullptr);
    rig->qkv()[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
    // Scores of the second KV head at one position are +Inf or -Inf, as the sign of the query's element is.
    rig->SetKey(0, 1, 333, 7, std::numeric_limits<float>::infinity());
    uint64_t nan_heads = 1u << 3;
    for (int32_t h = 4; h < 8; ++h) {
      float& q = rig->qkv()[h * 64 + 7];
      q = h % 2 == 0 ? std::abs(q) + 0.1f : -std::abs(q) - 0.1f;
      if (h % 2 == 0) nan_heads |= 1u << h;
    }
    ASSERT_TRUE(rig->Run().ok());
    rig->CheckResults(nan_heads);
    rig->CheckCountersAreZero();
  }
}

TEST(GpuAttention, RefusesWhatItCannotDo) {
  const cuda::LaunchQueue queue;
  const AttendArgs good = {.step = {.rows = 1, .max_pages = 1},
                           .kv = {.kv_heads = 1, .key_dim = 64, .value_dim = 64},
                           .heads = 8,
                           .out = {.stride = 512}};
  auto refused = [&](auto change) {
    AttendArgs args = good;
    change(args);
    return LaunchAttention(args, queue) == cudaErrorInvalidValue;
  };
  EXPECT_TRUE(refused([](AttendArgs& a) { a.heads = 17; }));
  EXPECT_TRUE(refused([](AttendArgs& a) { a.step.rows = kMaxStepRows + 1; }));
  EXPECT_TRUE(refused([](AttendArgs& a) { a.kv.key_dim = 60; }));
  EXPECT_TRUE(refused([](AttendArgs& a) { a.kv.value_dim = 264; }));
  EXPECT_TRUE(refused([](AttendArgs& a) { a.kv.value_dim = 24, a.heads = 1; }));  // 16 sums would cross KV heads
  EXPECT_TRUE(refused([](AttendArgs& a) { a.out.stride = 256; }));
  EXPECT_TRUE(refused([](AttendArgs& a) { a.out.terms = 1; }));
  FinishQkvArgs finish = {.step = good.step, .kv = good.kv, .heads = 8, .rope_dims = 66};
  EXPECT_EQ(LaunchFinishQkv(finish, queue), cudaErrorInvalidValue);
}

TEST(GpuAttention, SplitsFollowHeadsAndWhatIsVisible) {
  EXPECT_EQ(AttentionSplits(4, 512, 0), 33);
  EXPECT_EQ(AttentionSplits(1, 512, 0), kAttentionMaxSplits);
  EXPECT_EQ(AttentionSplits(1, 5, 0), 5);
  EXPECT_EQ(AttentionSplits(500, 512, 0), 1);
  EXPECT_EQ(AttentionSplits(4, 512, 1), 1);
  EXPECT_EQ(AttentionSplits(4, 512, 65), 2);
  EXPECT_EQ(AttentionSplits(4, 512, 66), 3);  // 64 positions between one of the page before and one of the page behind
}

}  // namespace
}  // namespace bellhop::kernels
