// The router of prompts: scores against exact products, selection against that of the decode router. Routes by expert.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/expert_layer_for_test.h"
#include "kernels/cuda/prompt_rig_for_test.h"

namespace bellhop::kernels {
namespace {

constexpr float kEpsilon = 1e-5f;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct RouterCase {
  int32_t experts = 8, used = 2, hidden = 64, rows = 77;
  DeviceGating gating = DeviceGating::kSoftmax;
  bool normalise = false, shared_gate = false, bias = false, selection_bias = false;
  float weights_scale = 0;
  int32_t groups = 1, groups_used = 1;
  int32_t bad_row = -1;  // has a NaN
  int32_t missing = 0;   // each so-manieth expert has no slot
};

class PromptRouterTest : public GpuTest {
 protected:
  void Run(const RouterCase& c) {
    SCOPED_TRACE(testing::Message() << c.experts << " experts, " << c.used << " used, gating "
                                    << static_cast<int>(c.gating) << ", " << c.rows << " rows");
    const int32_t outputs = c.experts + (c.shared_gate ? 1 : 0);
    const auto weights = Normal(Size(outputs * c.hidden), 1 / std::sqrt(static_cast<float>(c.hidden)), 1);
    auto values = Normal(Size(c.rows * c.hidden), 1, 4);
    if (c.bad_row >= 0) values[Size(c.bad_row * c.hidden + 5)] = NAN;
    const auto norm = Normal(Size(c.hidden), 1, 5), bias = Normal(Size(c.experts), 0.5f, 3);
    std::vector<int32_t> slot_of;
    for (int32_t e = 0; e < c.experts; ++e) {
      slot_of.push_back(c.missing > 0 && e % c.missing == 0 ? -5 : (e + 3) % c.experts);
    }
    const int32_t bucket = std::min(c.rows, kMaxStepRows);
    RouterArgs router =
        MakeRouter(rig(), {.experts = c.experts, .used = c.used, .rows = bucket, .bucket = bucket},
                   UploadResidual(rig(), values, norm, c.rows, kEpsilon, 2), TimesNorm(weights, norm), slot_of);
    if (c.bias) router.bias = rig().Upload(bias);
    if (c.selection_bias) router.selection_bias = rig().Upload(Normal(Size(c.experts), 0.5f, 2));
    router.shared_gate = c.shared_gate;
    router.gating = c.gating;
    router.normalise = c.normalise;
    router.weights_scale = c.weights_scale;
    router.groups = c.groups;
    router.groups_used = c.groups_used;

    PromptNormArgs rms;
    rms.values = router.x.values;
    rms.norm = router.x.norm;
    rms.epsilon = kEpsilon;
    rms.rows = c.rows;
    rms.hidden = c.hidden;
    rms.x = PoisonedPromptRows(rig(), c.rows, c.hidden);
    rms.inverse_rms = rig().Poisoned<float>(Size(c.rows));
    ASSERT_EQ(LaunchPromptNorm(rms, rig().queue()), cudaSuccess);

    const Results all = Route(c, router, rms.inverse_rms, 0, c.rows);
    CheckScores(c, all, weights, bias, Normalised(values, norm, c.rows, kEpsilon));
    CheckSlots(c, all, slot_of);
    CheckSelection(c, all, router);
    // Other bounds, the same bits.
    for (const int32_t first : {c.rows / 3, c.rows - 1}) {
      const Results some = Route(c, router, rms.inverse_rms, first, c.rows - first);
      EXPECT_TRUE(std::equal(some.ids.begin(), some.ids.end(), all.ids.begin() + first * c.used)) << first;
      EXPECT_TRUE(SameBits(some.weights.data(), all.weights.data() + first * c.used, some.weights.size())) << first;
    }
    rig().FreeMemory();
  }

 private:
  struct Results {
    std::vector<float> logits, weights, shared;
    std::vector<int32_t> ids, slots;
  };

  Results Route(const RouterCase& c, const RouterArgs& router, const float* inverse, int32_t first, int32_t rows) {
    PromptRouterArgs args;
    args.router = router;
    args.router.x.values += int64_t{first} * c.hidden;
    args.router.logits = rig().Poisoned<float>(Size((rows + 1) * (c.experts + 1)));
    args.router.routes.ids = rig().Poisoned<int32_t>(Size(rows * c.used + 1));
    args.router.routes.slots = rig().Poisoned<int32_t>(Size(rows * c.used + 1));
    args.router.routes.weights = rig().Poisoned<float>(Size(rows * c.used + 1));
    args.router.routes.shared_weights = rig().Poisoned<float>(Size(rows + 1));
    args.rows = rows;
    args.inverse_rms = inverse + first;
    args.bad_row = rig().Zeroed<uint32_t>(1);
    EXPECT_EQ(LaunchPromptRouter(args, rig().queue()), cudaSuccess);
    Results r;
    r.logits = rig().Download(args.router.logits, Size((rows + 1) * (c.experts + 1)));
    r.ids = rig().Download(args.router.routes.ids, Size(rows * c.used + 1));
    r.slots = rig().Download(args.router.routes.slots, Size(rows * c.used + 1));
    r.weights = rig().Download(args.router.routes.weights, Size(rows * c.used + 1));
    r.shared = rig().Download(args.router.routes.shared_weights, Size(rows + 1));
    EXPECT_EQ(r.ids.back(), -1);
    EXPECT_EQ(r.slots.back(), -1);
    EXPECT_TRUE(std::isnan(r.weights.back()));
    EXPECT_TRUE(std::isnan(r.shared.back()));
    for (int32_t e = 0; e <= c.experts; ++e) EXPECT_TRUE(std::isnan(r.logits[Size(rows * (c.experts + 1) + e)]));
    r.ids.pop_back(), r.slots.pop_back(), r.weights.pop_back();
    const bool has_bad = c.bad_row >= first && c.bad_row < first + rows;
    EXPECT_EQ(rig().Download(args.bad_row, 1)[0], has_bad ? ~static_cast<uint32_t>(c.bad_row - first) : 0u);
    return r;
  }

  static void CheckScores(const RouterCase& c, const Results& r, const std::vector<float>& weights,
                          const std::vector<float>& bias, const std::vector<double>& x) {
    std::vector<float> got;
    std::vector<double> want;
    for (int32_t m = 0; m < c.rows; ++m) {
      if (m == c.bad_row) continue;
      for (int32_t e = 0; e < c.experts + (c.shared_gate ? 1 : 0); ++e) {
        double sum = c.bias && e < c.experts ? bias[Size(e)] : 0.0f;
        for (int32_t i = 0; i < c.hidden; ++i)
          sum += double{weights[Size(e * c.hidden + i)]} * x[Size(m * c.hidden + i)];
        got.push_back(r.logits[Size(m * (c.experts + 1) + e)]);
        want.push_back(sum);
      }
      if (!c.shared_gate) continue;
      ASSERT_NEAR(r.shared[Size(m)], 1 / (1 + std::exp(-want.back())), 1e-5) << "row " << m;
    }
    EXPECT_LE(RelativeL2(got, want), 1e-6);
  }

  static void CheckSlots(const RouterCase& c, const Results& r, const std::vector<int32_t>& slot_of) {
    for (int32_t i = 0; i < c.rows * c.used; ++i) {
      if (i / c.used == c.bad_row) {
        ASSERT_EQ(r.slots[Size(i)], cuda::kDroppedRoute);
        ASSERT_TRUE(std::isnan(r.weights[Size(i)]));
        continue;
      }
      ASSERT_FALSE(std::isnan(r.weights[Size(i)])) << "route " << i;
      const int32_t slot = slot_of[Size(r.ids[Size(i)])];
      ASSERT_EQ(r.slots[Size(i)], slot < 0 ? cuda::kMissRoute : slot) << "route " << i;
    }
  }

  // router_test.cc knows what is right; prompts have the bits of a decode step, whatever rows that has.
  void CheckSelection(const RouterCase& c, const Results& r, const RouterArgs& router) {
    const int32_t most = std::min<int32_t>(c.rows, kMaxStepRows);
    for (const int32_t rows : {1, 2, 7, most}) {
      if (rows > most) continue;
      SCOPED_TRACE(testing::Message() << "step of " << rows << " rows");
      RouterArgs args = router;
      args.rows = rig().Upload(std::vector<int32_t>{rows});
      ASSERT_EQ(LaunchRouter(args, rows == 7 ? std::min(8, most) : rows, rig().queue()), cudaSuccess);
      const auto logits = rig().Download(args.logits, Size(rows * (c.experts + 1)));
      const auto ids = rig().Download(args.routes.ids, Size(rows * c.used));
      const auto weights = rig().Download(args.routes.weights, Size(rows * c.used));
      for (int32_t m = 0; m < rows; ++m) {
        if (m == c.bad_row) continue;
        const size_t first = Size(m * (c.experts + 1)), routes = Size(m * c.used);
        ASSERT_TRUE(SameBits(&logits[first], &r.logits[first], Size(c.experts + (c.shared_gate ? 1 : 0)))) << m;
        ASSERT_TRUE(std::equal(&ids[routes], &ids[routes] + c.used, &r.ids[routes])) << m;
        ASSERT_TRUE(SameBits(&weights[routes], &r.weights[routes], Size(c.used))) << m;
      }
    }
  }
};

TEST_F(PromptRouterTest, ScoresAndRoutes) {
  RouterCase c;
  Run(c);
  c.rows = 1;
  Run(c);
  c = {.experts = 128, .used = 8, .hidden = 1028, .rows = 70, .normalise = true, .missing = 3};
  Run(c);
  c = {.experts = 65, .used = 6, .hidden = 256, .rows = 33, .shared_gate = true, .bias = true, .bad_row = 9};
  c.gating = DeviceGating::kSoftmaxSelected;
  Run(c);
  c = {.experts = 256, .used = 8, .hidden = 128, .rows = 40, .selection_bias = true, .weights_scale = 2.5f};
  c.gating = DeviceGating::kSigmoid;
  c.normalise = true;
  c.groups = 8;
  c.groups_used = 4;
  Run(c);
  c = {.experts = 1024, .used = 32, .hidden = 64, .rows = 35, .missing = 2};
  Run(c);
}

// Tiles of both sizes; all ways to cut a row into what is loaded at once.
TEST_F(PromptRouterTest, WidthsAndTiles) {
  for (const int32_t hidden : {2048, 2560, 3072, 3588, 4100, 4608, 5632}) {
    Run({.experts = 72, .used = 4, .hidden = hidden, .rows = 37, .normalise = true});
  }
  Run({.experts = 512, .used = 10, .hidden = 2560, .rows = 40, .normalise = true, .shared_gate = true});
  Run({.experts = 1024, .used = 8, .hidden = 1036, .rows = 405, .shared_gate = true, .bias = true, .bad_row = 301});
  Run({.experts = 960, .used = 8, .hidden = 516, .rows = 384});
}

TEST_F(PromptRouterTest, ManyRoutesAreSortedInTheirOrder) {
  constexpr int32_t kRows = 2125, kUsed = 32, kExperts = 1024;
  std::mt19937 random(3);
  std::vector<int32_t> ids, slots, slot_of, want;
  for (int32_t e = 0; e < kExperts; ++e)
    slot_of.push_back(random() % 4 == 0 ? -1 : static_cast<int32_t>(random() % 9999));
  while (ids.size() < Size(kRows * kUsed)) {
    const auto wide = static_cast<int32_t>(random() % kExperts);
    const int32_t id = random() % 3 == 0 ? wide % 7 : wide;
    const auto row = ids.end() - static_cast<int64_t>(ids.size() % Size(kUsed));
    if (std::find(row, ids.end(), id) != ids.end()) continue;
    ids.push_back(id);
    slots.push_back(random() % 50 == 0 ? cuda::kDroppedRoute : slot_of[Size(id)]);
  }
  for (int32_t e = 0; e < kExperts; ++e) {
    if (slot_of[Size(e)] < 0) continue;
    for (int32_t r = 0; r < kRows * kUsed; ++r) {
      if (ids[Size(r)] == e && slots[Size(r)] >= 0) want.push_back(r);
    }
  }
  PromptSortArgs sort;
  sort.rows = kRows;
  sort.used = kUsed;
  sort.experts = kExperts;
  sort.routes.ids = rig().Upload(ids);
  sort.routes.slots = rig().Upload(slots);
  sort.routes.order = rig().Poisoned<int32_t>(Size(kRows * kUsed));
  const int32_t most = PromptTiles(int64_t{kRows} * kUsed, kExperts);
  sort.routes.tiles = rig().Poisoned<ExpertGroup>(Size(most));
  sort.routes.tile_count = rig().Poisoned<int32_t>(1);
  sort.offsets = rig().Poisoned<int32_t>(kExperts + 1);
  sort.span_counts = rig().Poisoned<int32_t>(Size((PromptSortSpans(kRows) + 1) * kExperts));
  ASSERT_EQ(LaunchPromptSort(sort, rig().queue()), cudaSuccess);
  EXPECT_EQ(rig().Download(sort.routes.order, want.size()), want);
  const int32_t count = rig().Download(sort.routes.tile_count, 1)[0];
  ASSERT_LE(count, most);
  int32_t next = 0;
  for (const ExpertGroup& t : rig().Download(sort.routes.tiles, Size(count))) {
    ASSERT_EQ(t.first, next);
    ASSERT_EQ(t.slot, slot_of[Size(t.expert)]);
    for (int32_t i = 0; i < t.count; ++i) ASSERT_EQ(ids[Size(want[Size(t.first + i)])], t.expert);
    next += t.count;
  }
  EXPECT_EQ(Size(next), want.size());
}

}  // namespace
}  // namespace bellhop::kernels
