// fc1 and fc2 of a decode step with routes made by hand, against exact results of the decoded weights.
#include <cmath>

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

// The CPU's answer is there already: what is tested is what is added, and to which rows.
TEST_F(ExpertsTest, SumsOfTheMissesAreAddedOnce) {
  constexpr int32_t kRows = 5;
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
  const auto values = Normal(Size(kRows * shape.hidden), 1, 9);
  for (const bool some_hit : {true, false}) {
    const std::vector<int32_t> slot_of =
        some_hit ? std::vector<int32_t>{0, 1, -1, 2, -1, -1} : std::vector<int32_t>(6, -1);
    const ExpertBank bank = MakeBank(rig(), experts, slot_of, 3);
    const HostRoutes routes = RandomRoutes(kRows, shape, slot_of, 10);
    const Outcome hits = Run(experts, bank, routes, values, 0, 8, 2);

    const cuda::DoorbellChannel channel = MakeChannel(rig(), shape.used, shape.hidden);
    cuda::DoorbellState state;
    state.rings = state.pending = 1;
    std::vector<float> want = hits.values;
    for (int32_t m = 0; m < kRows; ++m) {
      if (m == 3) continue;
      state.pending_rows |= 1u << m;
      const auto sums = Normal(Size(shape.hidden), 1, 20 + static_cast<uint64_t>(m));
      for (int32_t c = 0; c < shape.hidden; ++c) {
        channel.y[m * channel.stride + c] = sums[Size(c)];
        want[Size(m * shape.hidden + c)] += shape.port_scale * sums[Size(c)];
      }
    }
    channel.header->response = {.seq = 1};
    channel.header->done_seq.value = 1;

    ExpertArgs args = LayerArgs(rig(), experts, bank, kRows, 2);
    args.routes = UploadRoutes(rig(), routes, experts);
    args.x = UploadResidual(rig(), values, norm_, kRows, kEpsilon, 2);
    args.next = NextResidual(rig(), args.x, next_norm_, kRows);
    args.waits = true;
    args.channel = channel;
    args.doorbell = rig().Upload(std::vector<cuda::DoorbellState>{state});
    ASSERT_EQ(LaunchExpertFc1(args, 8, rig().queue()), cudaSuccess);
    ASSERT_EQ(LaunchExpertFc2(args, 8, rig().queue()), cudaSuccess);
    const auto got = rig().Download(args.next.values, want.size());
    EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
    ExpectResidual(rig(), args.next, next_norm_, kRows);
    EXPECT_EQ(rig().Download(args.doorbell, 1)[0].completed, 1u);
    EXPECT_EQ(rig().Download(args.layer_arrivals, 1)[0], 0u);
  }
}

}  // namespace
}  // namespace bellhop::kernels
