// The router: scores against exact products, then routes against the definition (moe/router.cc) applied to the scores
// that the device had, so that no rounding decides between experts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/expert_layer_for_test.h"

namespace bellhop::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kEpsilon = 1e-5f;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct RouterCase {
  int32_t experts = 8, used = 2, hidden = 64, rows = 32, bucket = 32;
  DeviceGating gating = DeviceGating::kSoftmax;
  bool normalise = false, shared_gate = false, bias = false, selection_bias = false;
  float weights_scale = 0;
  int32_t groups = 1, groups_used = 1;
  int32_t ties = 0;      // each expert of the first 2 * ties has a twin
  int32_t bad_row = -1;  // has a NaN
  int32_t missing = 0;   // each so-manieth expert has no slot
};

struct RowRoutes {
  std::vector<int32_t> ids;
  std::vector<double> weights, scores;
  bool clean = true;
};

void Softmax(std::vector<double>* v) {
  const double max = *std::max_element(v->begin(), v->end());
  double sum = 0;
  for (double& p : *v) sum += p = std::exp(p - max);
  for (double& p : *v) p /= sum;
}

// Which experts take part: those of the groups with the best sums of two.
std::vector<bool> OpenGroups(const RouterCase& c, const std::vector<double>& scores) {
  const int32_t size = c.experts / c.groups;
  std::vector<std::pair<double, int32_t>> groups;
  for (int32_t g = 0; g < c.groups; ++g) {
    std::vector<double> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.push_back({-(size > 1 ? own[0] + own[1] : own[0]), g});
  }
  std::sort(groups.begin(), groups.end());
  std::vector<bool> open(Size(c.experts), c.groups == 1);
  for (int32_t i = 0; i < c.groups_used; ++i) {
    std::fill_n(open.begin() + groups[Size(i)].second * size, size, true);
  }
  return open;
}

RowRoutes Expected(const RouterCase& c, const float* logits, const std::vector<float>& selection_bias) {
  RowRoutes row;
  std::vector<double> p(logits, logits + c.experts);
  row.clean = std::none_of(p.begin(), p.end(), [](double v) { return std::isnan(v); });
  if (!row.clean) return row;
  if (c.gating == DeviceGating::kSoftmax) Softmax(&p);
  if (c.gating == DeviceGating::kSigmoid) {
    for (double& v : p) v = 1 / (1 + std::exp(-v));
  }
  std::vector<double> scores = p;
  for (size_t e = 0; e < selection_bias.size(); ++e) scores[e] += selection_bias[e];
  const std::vector<bool> open = OpenGroups(c, scores);
  row.scores = scores;
  for (size_t e = 0; e < scores.size(); ++e) scores[e] = open[e] ? scores[e] : kNever;
  std::vector<int32_t> order(scores.size());
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[Size(a)] > scores[Size(b)]; });
  row.ids.assign(order.begin(), order.begin() + c.used);
  for (const int32_t id : row.ids) row.weights.push_back(p[Size(id)]);
  if (c.gating == DeviceGating::kSoftmaxSelected) Softmax(&row.weights);
  double sum = 0;
  for (const double w : row.weights) sum += w;
  for (double& w : row.weights) {
    if (c.normalise) w /= std::max(sum, 0x1p-14);
    if (c.weights_scale != 0) w *= c.weights_scale;
  }
  return row;
}

class RouterTest : public GpuTest {
 protected:
  void Run(const RouterCase& c) {
    const int32_t outputs = c.experts + (c.shared_gate ? 1 : 0);
    auto weights = Normal(Size(outputs * c.hidden), 1 / std::sqrt(static_cast<float>(c.hidden)), 1);
    auto selection_bias = c.selection_bias ? Normal(Size(c.experts), 0.5f, 2) : std::vector<float>();
    auto bias = c.bias ? Normal(Size(c.experts), 0.5f, 3) : std::vector<float>();
    for (int32_t e = 0; e < c.ties; ++e) MakeTwins(c, e, c.experts - 1 - e, &weights, &bias, &selection_bias);
    auto values = Normal(Size(c.rows * c.hidden), 1, 4);
    if (c.bad_row >= 0) values[Size(c.bad_row * c.hidden + 5)] = NAN;
    const auto norm = Normal(Size(c.hidden), 1, 5);

    std::vector<int32_t> slot_of;
    for (int32_t e = 0; e < c.experts; ++e) {
      slot_of.push_back(c.missing > 0 && e % c.missing == 0 ? -1 : (e + 3) % c.experts);
    }
    auto padded = values;
    padded.resize(Size(c.bucket * c.hidden), NAN);
    RouterArgs args =
        MakeRouter(rig(), {.experts = c.experts, .used = c.used, .rows = c.rows, .bucket = c.bucket},
                   UploadResidual(rig(), padded, norm, c.bucket, kEpsilon, 2), TimesNorm(weights, norm), slot_of);
    if (c.bias) args.bias = rig().Upload(bias);
    if (c.selection_bias) args.selection_bias = rig().Upload(selection_bias);
    args.shared_gate = c.shared_gate;
    args.gating = c.gating;
    args.normalise = c.normalise;
    args.weights_scale = c.weights_scale;
    args.groups = c.groups;
    args.groups_used = c.groups_used;
    ASSERT_EQ(LaunchRouter(args, c.bucket, rig().queue()), cudaSuccess);

    CheckLogits(c, args, weights, bias, Normalised(values, norm, c.rows, kEpsilon));
    CheckRoutes(c, args, selection_bias, slot_of);
    CheckRing(c, args, Normalised(values, norm, c.rows, kEpsilon));
    const auto words = rig().Download(args.words, Size(RouterWords(c.experts, c.used)));
    EXPECT_EQ(words, std::vector<uint64_t>(words.size()));
    rig().FreeMemory();
  }

 private:
  static void MakeTwins(const RouterCase& c, int32_t a, int32_t b, std::vector<float>* weights,
                        std::vector<float>* bias, std::vector<float>* selection_bias) {
    std::copy_n(weights->begin() + a * c.hidden, c.hidden, weights->begin() + b * c.hidden);
    if (!bias->empty()) (*bias)[Size(b)] = (*bias)[Size(a)];
    if (!selection_bias->empty()) (*selection_bias)[Size(b)] = (*selection_bias)[Size(a)];
  }

  void CheckLogits(const RouterCase& c, const RouterArgs& args, const std::vector<float>& weights,
                   const std::vector<float>& bias, const std::vector<double>& x) {
    logits_ = rig().Download(args.logits, Size(c.rows * (c.experts + 1)));
    const auto shared = rig().Download(args.routes.shared_weights, Size(c.rows));
    std::vector<float> got;
    std::vector<double> want;
    for (int32_t m = 0; m < c.rows; ++m) {
      if (m == c.bad_row) continue;
      for (int32_t e = 0; e < c.experts + (c.shared_gate ? 1 : 0); ++e) {
        double sum = !bias.empty() && e < c.experts ? bias[Size(e)] : 0.0f;
        for (int32_t i = 0; i < c.hidden; ++i)
          sum += double{weights[Size(e * c.hidden + i)]} * x[Size(m * c.hidden + i)];
        want.push_back(sum);
        got.push_back(logits_[Size(m * (c.experts + 1) + e)]);
      }
      if (!c.shared_gate) continue;
      EXPECT_NEAR(shared[Size(m)], 1 / (1 + std::exp(-want.back())), 1e-5);
    }
    if (!want.empty()) {
      EXPECT_LE(RelativeL2(got, want), 1e-6);
    }
  }

  // Another expert only where rounding decides; never between equal scores.
  static void ExpectChoice(const RowRoutes& row, int32_t want, int32_t got) {
    if (want == got) return;
    ASSERT_GE(got, 0);
    ASSERT_LT(got, static_cast<int32_t>(row.scores.size()));
    const double a = row.scores[Size(want)], b = row.scores[Size(got)];
    EXPECT_NE(a, b) << want << " " << got;
    EXPECT_NEAR(a, b, 1e-6 * std::fabs(a)) << want << " " << got;
  }

  void CheckRoutes(const RouterCase& c, const RouterArgs& args, const std::vector<float>& selection_bias,
                   const std::vector<int32_t>& slot_of) {
    const size_t routes = Size(c.rows * c.used);
    ids_ = rig().Download(args.routes.ids, routes);
    weights_ = rig().Download(args.routes.weights, routes);
    slots_ = rig().Download(args.routes.slots, routes);
    std::vector<uint32_t> counts(Size(c.experts));
    for (int32_t m = 0; m < c.rows; ++m) {
      SCOPED_TRACE(testing::Message() << "row " << m);
      const RowRoutes want = Expected(c, logits_.data() + m * (c.experts + 1), selection_bias);
      EXPECT_EQ(want.clean, m != c.bad_row);
      for (int32_t u = 0; u < c.used; ++u) {
        const size_t r = Size(m * c.used + u);
        if (!want.clean) {
          EXPECT_EQ(slots_[r], cuda::kDroppedRoute);
          EXPECT_TRUE(std::isnan(weights_[r]));
          continue;
        }
        ExpectChoice(want, want.ids[Size(u)], ids_[r]);
        EXPECT_NEAR(weights_[r], want.weights[Size(u)], 1e-5 * std::fabs(want.weights[Size(u)]) + 1e-12);
        EXPECT_EQ(slots_[r], slot_of[Size(ids_[r])]);  // -1 is kMissRoute
        ++counts[Size(ids_[r])];
      }
    }
    EXPECT_EQ(rig().Download(args.route_counts, Size(c.experts)), counts);
    std::vector<uint64_t> distinct = {100, 200};
    for (size_t e = 0; e < counts.size(); ++e) {
      if (counts[e] > 0) ++distinct[slot_of[e] >= 0 ? 0 : 1];
    }
    EXPECT_EQ(rig().Download(args.distinct, 2), distinct);
    CheckGroups(c, args, slot_of);
  }

  void CheckGroups(const RouterCase& c, const RouterArgs& args, const std::vector<int32_t>& slot_of) {
    std::vector<ExpertGroup> want;
    std::vector<int32_t> order;
    for (int32_t e = 0; e < c.experts; ++e) {
      ExpertGroup group{slot_of[Size(e)], e, static_cast<int32_t>(order.size()), 0};
      for (size_t r = 0; r < ids_.size(); ++r) {
        if (ids_[r] != e || slots_[r] < 0) continue;
        order.push_back(static_cast<int32_t>(r));
        ++group.count;
      }
      if (group.count > 0) want.push_back(group);
    }
    ASSERT_EQ(rig().Download(args.routes.group_count, 1)[0], static_cast<int32_t>(want.size()));
    const auto groups = rig().Download(args.routes.groups, want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(groups[i].slot, want[i].slot) << i;
      EXPECT_EQ(groups[i].expert, want[i].expert) << i;
      EXPECT_EQ(groups[i].first, want[i].first) << i;
      EXPECT_EQ(groups[i].count, want[i].count) << i;
    }
    EXPECT_EQ(rig().Download(args.routes.order, order.size()), order);
  }

  void CheckRing(const RouterCase& c, const RouterArgs& args, const std::vector<double>& x) {
    const auto state = rig().Download(args.doorbell, 1)[0];
    const auto dropped = static_cast<uint64_t>(std::count(slots_.begin(), slots_.end(), cuda::kDroppedRoute));
    const auto misses = static_cast<uint64_t>(std::count(slots_.begin(), slots_.end(), cuda::kMissRoute));
    EXPECT_EQ(state.counters.dropped, dropped);
    EXPECT_EQ(state.counters.misses, misses);
    EXPECT_EQ(state.counters.hits, slots_.size() - dropped - misses);
    EXPECT_EQ(state.error.code, cuda::DeviceErrorCode::kNone);
    for (int32_t m = 0; m < c.rows; ++m) {
      EXPECT_EQ(state.rows[m].code, m == c.bad_row ? cuda::RowErrorCode::kRouter : cuda::RowErrorCode::kNone);
    }
    EXPECT_EQ(args.channel.header->req_seq.value, misses > 0 ? 1u : 0u);
    if (misses == 0) return;
    const cuda::DoorbellRequest& request = args.channel.header->request;
    EXPECT_EQ(request.layer, 1);
    EXPECT_EQ(request.rows, c.rows);
    EXPECT_EQ(request.placement, 77u);
    EXPECT_EQ(request.misses, misses);
    for (size_t r = 0; r < slots_.size(); ++r) {
      EXPECT_EQ(args.channel.ids[r], slots_[r] == cuda::kMissRoute ? ids_[r] : -1);
      EXPECT_TRUE(SameBits(&args.channel.weights[r], &weights_[r], 1));
    }
    for (int32_t m = 0; m < c.rows; ++m) {
      if ((request.miss_rows >> m & 1u) == 0) continue;
      const float* const row = args.channel.x + m * args.channel.stride;
      EXPECT_LE(RelativeL2({row, row + c.hidden}, {x.begin() + m * c.hidden, x.begin() + (m + 1) * c.hidden}), 1e-6);
    }
  }

  std::vector<float> logits_, weights_;
  std::vector<int32_t> ids_, slots_;
};

TEST_F(RouterTest, GatingsAndWeights) {
  for (const auto gating : {DeviceGating::kSoftmax, DeviceGating::kSigmoid, DeviceGating::kSoftmaxSelected}) {
    for (const bool normalise : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(gating) << normalise);
      Run({.experts = 60, .used = 6, .hidden = 200, .gating = gating, .normalise = normalise});
      Run({.experts = 32,
           .used = 4,
           .hidden = 96,
           .rows = 3,
           .bucket = 4,
           .gating = gating,
           .normalise = normalise,
           .shared_gate = true,
           .bias = true,
           .selection_bias = true,
           .weights_scale = 2.5f});
    }
  }
}

TEST_F(RouterTest, ManyExpertsAndAllOfThem) {
  Run({.experts = 512, .used = 10, .hidden = 256, .normalise = true});
  Run({.experts = 1024, .used = 32, .hidden = 128, .gating = DeviceGating::kSigmoid});
  Run({.experts = 8, .used = 8, .hidden = 64, .gating = DeviceGating::kSoftmaxSelected});
  Run({.experts = 32, .used = 32, .hidden = 64});
  Run({.experts = 4, .used = 1, .hidden = 32, .rows = 1, .bucket = 1});
}

TEST_F(RouterTest, GroupsOfExperts) {
  Run({.experts = 64,
       .used = 8,
       .hidden = 128,
       .gating = DeviceGating::kSigmoid,
       .normalise = true,
       .selection_bias = true,
       .weights_scale = 2.5f,
       .groups = 8,
       .groups_used = 3});
  Run({.experts = 256, .used = 8, .hidden = 128, .gating = DeviceGating::kSigmoid, .groups = 32, .groups_used = 1});
  Run({.experts = 16, .used = 4, .hidden = 64, .groups = 16, .groups_used = 5});
}

TEST_F(RouterTest, TiesGoToTheLowestExpert) {
  for (const auto gating : {DeviceGating::kSoftmax, DeviceGating::kSigmoid, DeviceGating::kSoftmaxSelected}) {
    Run({.experts = 48, .used = 7, .hidden = 64, .gating = gating, .ties = 24});
    Run({.experts = 64, .used = 7, .hidden = 64, .gating = gating, .bias = true, .selection_bias = true, .ties = 32});
  }
}

TEST_F(RouterTest, ARowThatIsNoNumberIsDroppedAlone) {
  for (const auto gating : {DeviceGating::kSoftmax, DeviceGating::kSigmoid, DeviceGating::kSoftmaxSelected}) {
    Run({.experts = 48,
         .used = 5,
         .hidden = 64,
         .rows = 9,
         .bucket = 16,
         .gating = gating,
         .normalise = true,
         .bad_row = 4});
    Run({.experts = 48,
         .used = 48 / 2,
         .hidden = 64,
         .rows = 1,
         .bucket = 1,
         .gating = gating,
         .groups = 4,
         .groups_used = 2,
         .bad_row = 0});
  }
}

TEST_F(RouterTest, MissesRing) {
  Run({.experts = 64, .used = 6, .hidden = 200, .rows = 7, .bucket = 8, .missing = 3});
  Run({.experts = 64, .used = 6, .hidden = 64, .bad_row = 2, .missing = 2});
  Run({.experts = 16, .used = 2, .hidden = 64, .rows = 2, .bucket = 2, .missing = 1});
}

}  // namespace
}  // namespace bellhop::kernels
