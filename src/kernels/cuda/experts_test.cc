// fc1 and fc2 of a decode step with routes made by hand, against exact results of the decoded weights.
#include <cmath>
#include <thread>

#include "cuda/doorbell_channel.h"
#include "cuda/doorbell_sums.h"
#include "kernels/cuda/expert_layer_for_test.h"
#include "quant/format.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

constexpr float kEpsilon = 1e-5f;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct Outcome {
  std::vector<float> values;
  ResidualRows next;
};

class ExpertsTest : public GpuTest {
 protected:
  // Rows [first, first + routes.rows) of the values.
  Outcome Run(const HostExperts& experts, const ExpertBank& bank, const HostRoutes& routes,
              const std::vector<float>& values, int32_t first, int32_t bucket, int32_t terms) {
    const auto hidden = experts.shape.hidden;
    const std::vector<float> own(values.begin() + int64_t{first} * hidden,
                                 values.begin() + int64_t{first + routes.rows} * hidden);
    ExpertArgs args = LayerArgs(rig(), experts, bank, routes.rows, terms);
    args.max_groups = std::min(bucket * experts.shape.used, experts.shape.experts);
    args.routes = UploadRoutes(rig(), routes, experts);
    args.x = UploadResidual(rig(), own, norm_, routes.rows, kEpsilon, terms);
    args.next = NextResidual(rig(), args.x, next_norm_, routes.rows);
    EXPECT_EQ(LaunchExpertFc1(args, bucket, rig().queue()), cudaSuccess);
    EXPECT_EQ(LaunchExpertFc2(args, bucket, rig().queue()), cudaSuccess);
    const auto arrivals = rig().Download(args.tile_arrivals, Size((hidden + 15) / 16));
    EXPECT_EQ(arrivals, std::vector<uint32_t>(arrivals.size()));
    return {rig().Download(args.next.values, own.size()), args.next};
  }

  void MakeNorms(int32_t hidden) {
    norm_ = Normal(Size(hidden), 1, 100);
    next_norm_ = Normal(Size(hidden), 1, 101);
  }

  // Some routes drop, some miss, some experts have several rows; rows alone and together.
  void ExpectLayer(const LayerShape& shape) {
    constexpr int32_t kRows = 32;
    MakeNorms(shape.hidden);
    const HostExperts experts = RandomExperts(shape, 1);
    std::vector<int32_t> slot_of;
    for (int32_t e = 0; e < shape.experts; ++e)
      slot_of.push_back(e % 5 == 3 ? cuda::kMissRoute : (e * 3 + 1) % shape.experts);
    const ExpertBank bank = MakeBank(rig(), experts, slot_of, shape.experts);
    HostRoutes routes = RandomRoutes(kRows, shape, slot_of, 2);
    for (int32_t u = 0; u < shape.used; ++u) routes.slots[Size(4 * shape.used + u)] = cuda::kDroppedRoute;
    for (int32_t u = 0; u < shape.used; ++u) routes.slots[Size(9 * shape.used + u)] = cuda::kMissRoute;
    const auto values = Normal(Size(kRows * shape.hidden), 0.01f, 3);  // experts weigh more
    const auto want = LayerResult(experts, routes, values, Normalised(values, norm_, kRows, kEpsilon));
    for (const int32_t terms : {2, 3}) {
      SCOPED_TRACE(testing::Message() << terms << " terms");
      const Outcome all = Run(experts, bank, routes, values, 0, kRows, terms);
      EXPECT_LE(RelativeL2(all.values, want), 2 * Tolerance(terms));
      ExpectResidual(rig(), all.next, next_norm_, kRows);
      for (const int32_t row : {0, 4, 9, 17, 31}) {
        const Outcome one = Run(experts, bank, RowOf(routes, row), values, row, row == 17 ? 4 : 1, terms);
        EXPECT_TRUE(SameBits(one.values.data(), all.values.data() + row * shape.hidden, Size(shape.hidden))) << row;
      }
    }
    rig().FreeMemory();
  }

  std::vector<float> norm_, next_norm_;
};

TEST_F(ExpertsTest, FormatsOfEveryKind) {
  struct {
    WeightFormat gate, up, down;
    int32_t hidden, inner;
  } const cases[] = {
      {WeightFormat::kQ4_0, WeightFormat::kQ4_0, WeightFormat::kQ8_0, 96, 160},
      {WeightFormat::kMXFP4, WeightFormat::kMXFP4, WeightFormat::kMXFP4, 288, 96},
      {WeightFormat::kQ8_0, WeightFormat::kQ8_0, WeightFormat::kQ4_0, 32, 32},
      {WeightFormat::kQ4K, WeightFormat::kQ4K, WeightFormat::kQ6K, 512, 256},
      {WeightFormat::kQ6K, WeightFormat::kQ6K, WeightFormat::kQ4K, 256, 512},
      {WeightFormat::kIQ3XXS, WeightFormat::kIQ3XXS, WeightFormat::kIQ3XXS, 256, 256},
      {WeightFormat::kBF16, WeightFormat::kBF16, WeightFormat::kF16, 100, 72},
      {WeightFormat::kF16, WeightFormat::kF16, WeightFormat::kBF16, 72, 100},
      {WeightFormat::kF32, WeightFormat::kF32, WeightFormat::kF32, 48, 80},
      {WeightFormat::kInt4, WeightFormat::kInt4, WeightFormat::kInt8, 96, 160},
      {WeightFormat::kInt3, WeightFormat::kInt3, WeightFormat::kInt3, 160, 640},
      {WeightFormat::kInt8, WeightFormat::kMxfp4Planar, WeightFormat::kInt4, 320, 96},
      // Chosen while they run: no tiles, or several formats.
      {WeightFormat::kQ5K, WeightFormat::kQ5K, WeightFormat::kQ5_0, 256, 96},
      {WeightFormat::kIQ4XS, WeightFormat::kQ4K, WeightFormat::kIQ4NL, 256, 64},
      {WeightFormat::kIQ3XXS, WeightFormat::kMXFP4, WeightFormat::kNVFP4, 256, 128},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << quant::Traits(c.gate).name << " " << quant::Traits(c.up).name << " "
                                    << quant::Traits(c.down).name);
    ExpectLayer(
        {.gate = c.gate, .up = c.up, .down = c.down, .experts = 11, .used = 3, .hidden = c.hidden, .inner = c.inner});
  }
}

// More work than blocks and warps of any GPU: they go from tile to tile and from expert to expert.
TEST_F(ExpertsTest, BlocksWalkFromExpertToExpert) {
  ExpectLayer({.gate = WeightFormat::kQ4_0,
               .up = WeightFormat::kQ4_0,
               .down = WeightFormat::kQ4_0,
               .experts = 64,
               .used = 8,
               .hidden = 1568,
               .inner = 288});
}

TEST_F(ExpertsTest, BiasesFactorsAndActivations) {
  LayerShape shape{.gate = WeightFormat::kMXFP4,
                   .up = WeightFormat::kMXFP4,
                   .down = WeightFormat::kMXFP4,
                   .experts = 8,
                   .used = 4,
                   .hidden = 192,
                   .inner = 96,
                   .biases = true,
                   .activation = DeviceActivation::kSwiGlu,
                   .alpha = 1.702f,
                   .beta = 1,
                   .limit = 1.5f};
  ExpectLayer(shape);
  shape.limit = 0;
  shape.factors = true;
  shape.port_scale = 0.5f;
  ExpectLayer(shape);
  shape.activation = DeviceActivation::kGeGlu;
  ExpectLayer(shape);
  shape.biases = false;
  ExpectLayer(shape);
}

// A shared expert in front, which does not complete the residual; its rows have weights of their own, or none.
TEST_F(ExpertsTest, AllRowsOfOneFeedForwardPart) {
  constexpr int32_t kRows = 13;
  const LayerShape shape{.gate = WeightFormat::kQ4_0,
                         .up = WeightFormat::kQ4_0,
                         .down = WeightFormat::kQ8_0,
                         .experts = 1,
                         .used = 1,
                         .hidden = 160,
                         .inner = 64,
                         .biases = true,
                         .port_scale = 0.75f};
  MakeNorms(shape.hidden);
  const HostExperts expert = RandomExperts(shape, 5);
  const ExpertBank bank = MakeBank(rig(), expert, {0}, 1);
  const auto values = Normal(Size(kRows * shape.hidden), 0.01f, 6);
  const auto weights = Normal(kRows, 1, 7);
  const auto exact = Normalised(values, norm_, kRows, kEpsilon);
  for (const bool shared : {false, true}) {
    for (const bool completes : {false, true}) {
      SCOPED_TRACE(testing::Message() << shared << completes);
      HostRoutes routes{.rows = kRows,
                        .used = 1,
                        .ids = std::vector<int32_t>(kRows),
                        .slots = std::vector<int32_t>(kRows),
                        .weights = shared ? weights : std::vector<float>(kRows, 1.0f)};
      ExpertArgs args = LayerArgs(rig(), expert, bank, kRows, 2);
      args.max_groups = 1;
      args.all_rows = true;
      args.use_shared_weights = shared;
      args.completes = completes;
      args.routes.shared_weights = rig().Upload(weights);
      args.x = UploadResidual(rig(), values, norm_, kRows, kEpsilon, 2);
      args.next = NextResidual(rig(), args.x, next_norm_, kRows);
      ASSERT_EQ(LaunchExpertFc1(args, 16, rig().queue()), cudaSuccess);
      ASSERT_EQ(LaunchExpertFc2(args, 16, rig().queue()), cudaSuccess);
      const auto got = rig().Download(args.x.values, values.size());
      EXPECT_LE(RelativeL2(got, LayerResult(expert, routes, values, exact)), 2 * Tolerance(2));
      if (completes) ExpectResidual(rig(), args.next, next_norm_, kRows);
    }
  }
}

// What is added, and to which rows, where the CPU was faster and where it is waited for.
TEST_F(ExpertsTest, SumsOfTheMissesAreAddedOnce) {
  struct Case {
    int32_t rows, bucket;
    bool some_hit, late;
  };
  const LayerShape shape{.gate = WeightFormat::kQ4_0,
                         .up = WeightFormat::kQ4_0,
                         .down = WeightFormat::kQ4_0,
                         .experts = 6,
                         .used = 2,
                         .hidden = 352,
                         .inner = 32,
                         .port_scale = 0.5f};
  MakeNorms(shape.hidden);
  const HostExperts experts = RandomExperts(shape, 8);
  for (const Case& c :
       {Case{5, 8, true, false}, Case{5, 8, false, true}, Case{5, 8, true, true}, Case{1, 1, true, false},
        Case{1, 1, true, true}, Case{1, 1, false, true}, Case{32, 32, true, true}, Case{23, 32, true, false}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows, hits " << c.some_hit << ", late " << c.late);
    const auto values = Normal(Size(c.rows * shape.hidden), 1, 9);
    const std::vector<int32_t> slot_of =
        c.some_hit ? std::vector<int32_t>{0, 1, -1, 2, -1, -1} : std::vector<int32_t>(6, -1);
    const ExpertBank bank = MakeBank(rig(), experts, slot_of, 3);
    const HostRoutes routes = RandomRoutes(c.rows, shape, slot_of, 10);
    const Outcome hits = Run(experts, bank, routes, values, 0, c.bucket, 2);

    constexpr uint64_t kSeq = 6;
    const cuda::DoorbellChannel channel = MakeChannel(rig(), shape.used, shape.hidden);
    cuda::DoorbellSums answers(channel);
    const MatView<uint32_t> sums = answers.Of(kSeq, c.rows);
    cuda::DoorbellState state;
    state.rings = state.pending = kSeq;
    state.completed = kSeq - 1;
    state.deadline_ns = 5'000'000'000;
    std::vector<float> want = hits.values;
    std::vector<std::vector<float>> rows(Size(c.rows));
    for (int32_t m = 0; m < c.rows; ++m) {
      if (m == 3) continue;  // has no miss
      state.pending_rows |= 1u << m;
      if (m == 2) continue;  // has failed
      rows[Size(m)] = Normal(Size(shape.hidden), 1, 20 + static_cast<uint64_t>(m));
      for (int32_t i = 0; i < shape.hidden; ++i)
        want[Size(m * shape.hidden + i)] += shape.port_scale * rows[Size(m)][Size(i)];
    }
    const auto publish = [&](RowRange columns) {
      for (int32_t m = 0; m < c.rows; ++m) {
        if (m == 2) cuda::PublishMark(cuda::kFailedMark, columns.size(), sums.Row(m) + columns.begin);
        if (rows[Size(m)].empty()) continue;
        cuda::PublishSums(rows[Size(m)].data() + columns.begin, columns.size(), sums.Row(m) + columns.begin);
      }
    };
    if (!c.late) publish({0, shape.hidden});

    ExpertArgs args = LayerArgs(rig(), experts, bank, c.rows, 2);
    args.routes = UploadRoutes(rig(), routes, experts);
    args.x = UploadResidual(rig(), values, norm_, c.rows, kEpsilon, 2);
    args.next = NextResidual(rig(), args.x, next_norm_, c.rows);
    args.waits = true;
    args.channel = channel;
    args.doorbell = rig().Upload(std::vector<cuda::DoorbellState>{state});
    ASSERT_EQ(LaunchExpertFc1(args, c.bucket, rig().queue()), cudaSuccess);
    ASSERT_EQ(LaunchExpertFc2(args, c.bucket, rig().queue()), cudaSuccess);
    if (c.late) {
      for (const RowRange columns : {RowRange{320, shape.hidden}, RowRange{0, 48}, RowRange{48, 320}}) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        publish(columns);
      }
    }
    const auto got = rig().Download(args.next.values, want.size());
    EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
    ExpectResidual(rig(), args.next, next_norm_, c.rows);
    const auto after = rig().Download(args.doorbell, 1)[0];
    EXPECT_EQ(after.completed, kSeq);
    EXPECT_EQ(after.error.code, cuda::DeviceErrorCode::kNone);
    for (int32_t m = 0; m < c.rows; ++m) {
      EXPECT_EQ(after.rows[m].code, m == 2 ? cuda::RowErrorCode::kExpert : cuda::RowErrorCode::kNone) << m;
    }
    rig().FreeMemory();
  }
}

// Neither a refusal nor a deadline leaves anybody waiting; both are errors that the host finds in the channel.
TEST_F(ExpertsTest, NobodyWaitsForSumsThatDoNotCome) {
  const LayerShape shape{.gate = WeightFormat::kQ4_0,
                         .up = WeightFormat::kQ4_0,
                         .down = WeightFormat::kQ4_0,
                         .experts = 4,
                         .used = 2,
                         .hidden = 352,
                         .inner = 32};
  MakeNorms(shape.hidden);
  const HostExperts experts = RandomExperts(shape, 8);
  for (const int32_t rows : {1, 6}) {
    for (const bool refused : {false, true}) {
      const int32_t bucket = rows == 1 ? 1 : 8;
      const auto values = Normal(Size(rows * shape.hidden), 1, 9);
      const std::vector<int32_t> slot_of{0, -1, 1, -1};
      const ExpertBank bank = MakeBank(rig(), experts, slot_of, 2);
      const HostRoutes routes = RandomRoutes(rows, shape, slot_of, 10);
      const cuda::DoorbellChannel channel = MakeChannel(rig(), shape.used, shape.hidden);
      cuda::DoorbellSums answers(channel);
      if (refused) answers.Refuse(1, cuda::ServiceError::kBadRequest);
      cuda::DoorbellState state;
      state.rings = state.pending = 1;
      state.pending_rows = (1u << rows) - 1;
      state.deadline_ns = 2'000'000;
      ExpertArgs args = LayerArgs(rig(), experts, bank, rows, 2);
      args.layer = 7;
      args.routes = UploadRoutes(rig(), routes, experts);
      args.x = UploadResidual(rig(), values, norm_, rows, kEpsilon, 2);
      args.next = NextResidual(rig(), args.x, next_norm_, rows);
      args.waits = true;
      args.channel = channel;
      args.doorbell = rig().Upload(std::vector<cuda::DoorbellState>{state});
      ASSERT_EQ(LaunchExpertFc1(args, bucket, rig().queue()), cudaSuccess);
      ASSERT_EQ(LaunchExpertFc2(args, bucket, rig().queue()), cudaSuccess);
      const auto after = rig().Download(args.doorbell, 1)[0];
      EXPECT_EQ(after.error.code, refused ? cuda::DeviceErrorCode::kService : cuda::DeviceErrorCode::kDeadline);
      EXPECT_EQ(after.error.layer, 7);
      EXPECT_EQ(cuda::DoorbellDeviceStatus(channel).code(), refused ? StatusCode::kInternal : StatusCode::kCuda);
      rig().FreeMemory();
    }
  }
}

}  // namespace
}  // namespace bellhop::kernels
