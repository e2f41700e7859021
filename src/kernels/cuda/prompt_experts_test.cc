// Experts of a prompt's chunk: the sorted routes against the definition, each stage of the products against exact ones
// of what the stage before has left.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/prompt_rig_for_test.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

constexpr int32_t kFirstStaging = 1 << 20;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct ExpertsCase {
  std::string name;
  WeightFormat gate = WeightFormat::kQ4_0, up = gate, down = gate;
  int32_t rows = 100, used = 4, experts = 12, hidden = 512, inner = 288;
  bool all_rows = false, files = false;
  int32_t missing = 0;    // each so-manieth expert has no slot
  int32_t staged = -1;    // this one is in a staging slot
  int32_t favourite = 0;  // each so-manieth row does not choose expert 0, all others do; 0: evenly
  bool biases = false, factors = false, shared_weights = false, misses = false;
  DeviceActivation activation = DeviceActivation::kSwiGlu;
  float alpha = 1, beta = 0, limit = 0;
};

struct Routes {
  std::vector<int32_t> ids, slots;
  std::vector<float> weights;
};

double Activated(const ExpertsCase& c, double gate, double up) {
  if (c.activation == DeviceActivation::kGeGlu) {
    return 0.5 * gate * (1 + std::tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
  }
  if (c.limit > 0) {
    gate = std::min(gate, double{c.limit});
    up = std::clamp(up, -double{c.limit}, double{c.limit});
  }
  return gate / (1 + std::exp(-c.alpha * gate)) * (up + c.beta);
}

class PromptExpertsTest : public GpuTest {
 protected:
  void Run(const ExpertsCase& c) {
    SCOPED_TRACE(c.name);
    for (const PromptDevice& device : PromptDevices()) Run(c, device);
  }

 private:
  void Run(const ExpertsCase& c, const PromptDevice& device) {
    SCOPED_TRACE(PromptMathName(device.math));
    Prepare(c);
    args_.device = device;
    args_.routes.tile_rows = PromptTileRows(device.math);
    if (!c.all_rows) CheckSort(c);
    ASSERT_EQ(LaunchPromptFc1(args_, rig().queue()), cudaSuccess);
    CheckFc1(c);
    ASSERT_EQ(LaunchPromptFc2(args_, rig().queue()), cudaSuccess);
    CheckFc2(c);
    if (!c.all_rows) {
      const auto partial = rig().Download(args_.partial, Size(int64_t{c.rows} * c.used * c.hidden));
      ASSERT_EQ(LaunchPromptCombine(args_, rig().queue()), cudaSuccess);
      CheckCombine(c, partial);
    }
    if (HasFailure()) return;
    CheckBounds(c);
    rig().FreeMemory();
  }

  int32_t route_count(const ExpertsCase& c) const { return c.rows * c.used; }

  Routes RandomRoutes(const ExpertsCase& c) {
    std::mt19937 random(7);
    Routes r;
    for (int32_t m = 0; m < c.rows; ++m) {
      std::vector<int32_t> all(Size(c.experts));
      for (int32_t e = 0; e < c.experts; ++e) all[Size(e)] = e;
      std::shuffle(all.begin(), all.end(), random);
      if (c.favourite > 0) {
        // Expert 0 last for some rows, first for the others; expert 1 for row 5 alone.
        auto move = [&](int32_t e, bool front) {
          all.erase(std::find(all.begin(), all.end(), e));
          all.insert(front ? all.begin() + std::min<int32_t>(c.used - 1, 1) : all.end(), e);
        };
        move(0, m % c.favourite != 0);
        move(1, m == 5);
      }
      for (int32_t u = 0; u < c.used; ++u) {
        const int32_t id = all[Size(u)];
        r.ids.push_back(id);
        const bool dropped = m == 3 && c.rows > 50;
        r.slots.push_back(dropped ? cuda::kDroppedRoute : slot_of_[Size(id)]);
        r.weights.push_back(dropped ? NAN : 0.1f + static_cast<float>(random() % 1000) / 1000);
      }
    }
    return r;
  }

  DeviceMatrix PlaceAll(const ExpertsCase& c, WeightFormat format, int32_t rows, int32_t cols, uint64_t seed,
                        int64_t offset, std::vector<HostMatrix>* host) {
    const MatrixLayout layout = c.files ? MatrixLayout::kFile : UsualLayout(format);
    for (int32_t e = 0; e < c.experts; ++e) {
      host->push_back(RandomHostMatrix(format, rows, cols, seed + static_cast<uint64_t>(e)));
    }
    DeviceMatrix w = Describe(host->front(), layout);
    w.scale = 1.25f;
    if (slots_ == nullptr) return w;  // for its size alone
    for (int32_t e = 0; e < c.experts; ++e) {
      const int32_t slot = slot_of_[Size(e)];
      if (slot < 0) continue;
      uint8_t* const at =
          slot >= kFirstStaging ? staging_ + (slot - kFirstStaging) * slot_bytes_ : slots_ + slot * slot_bytes_;
      Place(rig(), host->at(Size(e)), layout, at + offset);
    }
    w.data = slots_ + offset;
    return w;
  }

  const float* Optional(bool wanted, int64_t count, float sigma, uint64_t seed, float base, std::vector<float>* host) {
    host->assign(Size(count), base);
    if (!wanted) return nullptr;
    const auto noise = Normal(Size(count), sigma, seed);
    for (size_t i = 0; i < noise.size(); ++i) (*host)[i] += noise[i];
    return rig().Upload(*host);
  }

  void Prepare(const ExpertsCase& c) {
    slot_of_.clear();
    for (int32_t e = 0; e < c.experts; ++e) {
      const bool missing = c.missing > 0 && e % c.missing == c.missing - 1;
      slot_of_.push_back(missing         ? cuda::kMissRoute
                         : e == c.staged ? kFirstStaging + 1
                                         : (2 * e + 3) % (2 * c.experts + 1));
    }
    args_ = {};
    gate_.clear(), up_.clear(), down_.clear();
    slots_ = nullptr;
    int64_t offsets[4] = {};
    for (int pass = 0; pass < 2; ++pass) {
      gate_.clear(), up_.clear(), down_.clear();
      ExpertBank& bank = args_.bank;
      bank.gate = PlaceAll(c, c.gate, c.inner, c.hidden, 100, offsets[0], &gate_);
      bank.up = PlaceAll(c, c.up, c.inner, c.hidden, 200, offsets[1], &up_);
      bank.down = PlaceAll(c, c.down, c.hidden, c.inner, 300, offsets[2], &down_);
      const DeviceMatrix* const matrices[3] = {&bank.gate, &bank.up, &bank.down};
      for (int i = 0; i < 3; ++i)
        offsets[i + 1] = offsets[i] + static_cast<int64_t>((BytesOf(*matrices[i]) + 255) / 256 * 256);
      slot_bytes_ = offsets[3];
      if (pass == 1) break;
      slots_ = rig().PoisonedBytes(static_cast<uint64_t>(slot_bytes_ * (2 * c.experts + 1)));
      staging_ = rig().PoisonedBytes(static_cast<uint64_t>(slot_bytes_ * 2));
    }
    ExpertBank& bank = args_.bank;
    if (c.all_rows) {  // slot 0, wherever expert 0 was put
      for (DeviceMatrix* w : {&bank.gate, &bank.up, &bank.down}) w->data += slot_of_[0] * slot_bytes_;
    }
    bank.slot_bytes = slot_bytes_;
    bank.staging = {staging_, slot_bytes_, offsets[0], offsets[1], offsets[2], kFirstStaging};
    bank.gate_bias = Optional(c.biases, int64_t{c.experts} * c.inner, 0.5f, 11, 0, &gate_bias_);
    bank.up_bias = Optional(c.biases, int64_t{c.experts} * c.inner, 0.5f, 12, 0, &up_bias_);
    bank.down_bias = Optional(c.biases, int64_t{c.experts} * c.hidden, 5, 13, 0, &down_bias_);
    bank.gate_scale = Optional(c.factors, c.experts, 0.2f, 14, 1, &gate_factor_);
    bank.up_scale = Optional(c.factors, c.experts, 0.2f, 15, 1, &up_factor_);
    bank.down_scale = Optional(c.factors, c.experts, 0.2f, 16, 1, &down_factor_);

    const int32_t routes = route_count(c);
    x_ = RoundedToBf16(Normal(Size(int64_t{c.rows} * c.hidden), 0.3f, 21));
    residual_ = Normal(Size(int64_t{c.rows} * c.hidden), 3, 22);
    misses_ = Normal(Size(int64_t{c.rows} * c.hidden), 3, 23);
    shared_weights_ = Normal(Size(c.rows), 1, 24);
    args_.rows = c.rows;
    args_.used = c.used;
    args_.experts = c.experts;
    args_.all_rows = c.all_rows;
    args_.books = rig().books();
    args_.x = UploadPromptRows(rig(), x_, c.rows, c.hidden);
    args_.hidden = PoisonedPromptRows(rig(), routes, c.inner);
    args_.activation = c.activation;
    args_.alpha = c.alpha;
    args_.beta = c.beta;
    args_.limit = c.limit;
    args_.partial = rig().Poisoned<float>(Size(int64_t{routes} * c.hidden));
    args_.residual = rig().Upload(residual_);
    args_.port_scale = 0.5f;
    args_.shared_weights = c.shared_weights ? rig().Upload(shared_weights_) : nullptr;
    args_.misses = c.misses ? rig().Upload(misses_) : nullptr;
    if (c.all_rows) {
      order_.resize(Size(c.rows));
      for (int32_t m = 0; m < c.rows; ++m) order_[Size(m)] = m;
      routes_.ids.assign(Size(c.rows), 0);
      return;
    }
    routes_ = RandomRoutes(c);
    args_.routes.ids = rig().Upload(routes_.ids);
    args_.routes.slots = rig().Upload(routes_.slots);
    args_.routes.weights = rig().Upload(routes_.weights);
    args_.routes.order = rig().Poisoned<int32_t>(Size(routes));
    args_.routes.tiles = rig().Poisoned<ExpertGroup>(Size(PromptTiles(routes, c.experts)));
    args_.routes.tile_count = rig().Poisoned<int32_t>(1);
  }

  void CheckSort(const ExpertsCase& c) {
    const int32_t routes = route_count(c);
    PromptSortArgs sort;
    sort.routes = args_.routes;
    sort.rows = c.rows;
    sort.used = c.used;
    sort.experts = c.experts;
    sort.offsets = rig().Poisoned<int32_t>(Size(c.experts + 1));
    sort.span_counts = rig().Poisoned<int32_t>(Size((PromptSortSpans(c.rows) + 1) * c.experts));
    sort.route_counts = rig().Upload(std::vector<uint32_t>(Size(c.experts), 1000));
    sort.distinct = rig().Upload(std::vector<uint64_t>{20, 30});
    sort.first_staging = kFirstStaging;
    ASSERT_EQ(LaunchPromptSort(sort, rig().queue()), cudaSuccess);
    order_.clear();
    std::vector<ExpertGroup> tiles;
    std::vector<uint32_t> counts(Size(c.experts), 1000);
    std::vector<uint64_t> distinct = {20, 30};
    for (int32_t e = 0; e < c.experts; ++e) {
      const auto first = static_cast<int32_t>(order_.size());
      for (int32_t r = 0; r < routes; ++r) {
        if (routes_.ids[Size(r)] != e) continue;
        counts[Size(e)] += routes_.slots[Size(r)] != cuda::kDroppedRoute ? 1 : 0;
        if (routes_.slots[Size(r)] >= 0) order_.push_back(r);
      }
      if (counts[Size(e)] > 1000) ++distinct[slot_of_[Size(e)] >= 0 && slot_of_[Size(e)] < kFirstStaging ? 0 : 1];
      const auto end = static_cast<int32_t>(order_.size());
      // As few tiles as hold the routes, about equal, all but the last of whole eights.
      const int32_t most = sort.routes.tile_rows, count = (end - first + most - 1) / most;
      const int32_t each = count == 0 ? 0 : ((end - first + count - 1) / count + 7) / 8 * 8;
      for (int32_t at = first; at < end; at += each) {
        tiles.push_back({slot_of_[Size(e)], e, at, std::min(each, end - at)});
      }
    }
    EXPECT_LE(static_cast<int32_t>(tiles.size()), PromptTiles(routes, c.experts));
    EXPECT_EQ(rig().Download(sort.route_counts, Size(c.experts)), counts);
    EXPECT_EQ(rig().Download(sort.distinct, 2), distinct);
    ASSERT_EQ(Size(rig().Download(args_.routes.tile_count, 1)[0]), tiles.size());
    const auto got_tiles = rig().Download(args_.routes.tiles, tiles.size());
    for (size_t i = 0; i < tiles.size(); ++i) {
      ASSERT_EQ(got_tiles[i].slot, tiles[i].slot) << "tile " << i;
      ASSERT_EQ(got_tiles[i].expert, tiles[i].expert) << "tile " << i;
      ASSERT_EQ(got_tiles[i].first, tiles[i].first) << "tile " << i;
      ASSERT_EQ(got_tiles[i].count, tiles[i].count) << "tile " << i;
    }
    const auto got = rig().Download(args_.routes.order, Size(routes));
    for (size_t i = 0; i < Size(routes); ++i) ASSERT_EQ(got[i], i < order_.size() ? order_[i] : -1) << "place " << i;
  }

  // Products of one place, each output r: (W x)[r] * scales + bias.
  static std::vector<double> Project(const DeviceMatrix& w, const HostMatrix& host, const float* bias, float factor,
                                     const std::vector<double>& x) {
    auto y = ExactProduct(host, x, 1);
    for (int32_t r = 0; r < host.rows; ++r) y[Size(r)] = y[Size(r)] * w.scale * factor + bias[r];
    return y;
  }

  void CheckFc1(const ExpertsCase& c) {
    const int32_t routes = route_count(c);
    std::vector<bool> skipped(Size(routes), true);
    for (size_t i = 0; i < order_.size(); ++i) skipped[i] = false;
    hidden_ = DownloadPromptRows(rig(), args_.hidden, routes, c.inner, skipped);
    std::vector<float> got;
    std::vector<double> want;
    for (size_t place = 0; place < order_.size(); ++place) {
      const int32_t route = order_[place], row = route / c.used;
      const size_t e = Size(routes_.ids[Size(route)]);
      const std::vector<double> x(x_.begin() + int64_t{row} * c.hidden, x_.begin() + int64_t{row + 1} * c.hidden);
      const auto gate = Project(args_.bank.gate, gate_[e], gate_bias_.data() + e * Size(c.inner), gate_factor_[e], x);
      const auto up = Project(args_.bank.up, up_[e], up_bias_.data() + e * Size(c.inner), up_factor_[e], x);
      for (int32_t i = 0; i < c.inner; ++i) {
        want.push_back(Activated(c, gate[Size(i)], up[Size(i)]));
        got.push_back(hidden_[place * Size(c.inner) + Size(i)]);
      }
    }
    if (want.empty()) return;
    EXPECT_LE(RelativeL2(got, want), kPromptTolerance) << "activations";
  }

  void CheckFc2(const ExpertsCase& c) {
    std::vector<double> want;
    std::vector<float> got;
    const int32_t routes = route_count(c);
    const auto result = rig().Download(c.all_rows ? args_.residual : args_.partial, Size(int64_t{routes} * c.hidden));
    std::vector<bool> computed(Size(routes));
    for (size_t place = 0; place < order_.size(); ++place) {
      const size_t route = Size(order_[place]), e = Size(routes_.ids[route]);
      const std::vector<double> h(hidden_.begin() + static_cast<std::ptrdiff_t>(place * Size(c.inner)),
                                  hidden_.begin() + static_cast<std::ptrdiff_t>((place + 1) * Size(c.inner)));
      const auto y = Project(args_.bank.down, down_[e], down_bias_.data() + e * Size(c.hidden), down_factor_[e], h);
      computed[route] = true;
      for (int32_t i = 0; i < c.hidden; ++i) {
        const size_t at = route * Size(c.hidden) + Size(i);
        const double factor = c.shared_weights ? shared_weights_[route] : 1;
        want.push_back(c.all_rows ? residual_[at] + 0.5 * factor * y[Size(i)] : y[Size(i)]);
        got.push_back(result[at]);
      }
    }
    if (!want.empty()) {
      EXPECT_LE(RelativeL2(got, want), kSumTolerance) << "fc2";
    }
    int touched = 0;
    for (size_t i = 0; i < result.size(); ++i)
      touched += !computed[i / Size(c.hidden)] && !std::isnan(result[i]) ? 1 : 0;
    EXPECT_EQ(touched, 0) << "results of routes that have no slot";
  }

  void CheckCombine(const ExpertsCase& c, const std::vector<float>& partial) {
    std::vector<double> want;
    for (int32_t m = 0; m < c.rows; ++m) {
      for (int32_t i = 0; i < c.hidden; ++i) {
        double sum = 0;
        for (int32_t u = 0; u < c.used; ++u) {
          const size_t r = Size(m * c.used + u);
          if (routes_.slots[r] >= 0) sum += double{routes_.weights[r]} * partial[r * Size(c.hidden) + Size(i)];
        }
        const size_t at = Size(int64_t{m} * c.hidden + i);
        want.push_back(residual_[at] + 0.5 * (sum + (c.misses ? misses_[at] : 0)));
      }
    }
    EXPECT_LE(RelativeL2(rig().Download(args_.residual, want.size()), want), 1e-6) << "combined";
  }

  // The same rows in two chunks, and slots in two launches: the same bits, although other rows share their experts'
  // tiles.
  void CheckBounds(const ExpertsCase& c) {
    if (c.rows < 2) return;
    const auto whole = rig().Download(args_.residual, Size(int64_t{c.rows} * c.hidden));
    const int32_t cut = c.rows * 3 / 8;
    const PromptExpertArgs all = args_;
    float* const residual = rig().Upload(residual_);
    for (const int32_t first : {0, cut}) {
      PromptExpertArgs args = all;
      args.rows = first == 0 ? cut : c.rows - cut;
      if (args.rows == 0) continue;
      args.x = RowsFrom(all.x, first);
      args.hidden = PoisonedPromptRows(rig(), args.rows * c.used, c.inner);
      args.residual = residual + int64_t{first} * c.hidden;
      if (args.misses != nullptr) args.misses += int64_t{first} * c.hidden;
      if (args.shared_weights != nullptr) args.shared_weights += first;
      if (!c.all_rows) {
        args.partial = rig().Poisoned<float>(Size(int64_t{args.rows} * c.used * c.hidden));
        args.routes.ids += first * c.used;
        args.routes.slots += first * c.used;
        args.routes.weights += first * c.used;
        PromptSortArgs sort;
        sort.routes = args.routes;
        sort.rows = args.rows;
        sort.used = c.used;
        sort.experts = c.experts;
        sort.offsets = rig().Poisoned<int32_t>(Size(c.experts + 1));
        sort.span_counts = rig().Poisoned<int32_t>(Size((PromptSortSpans(args.rows) + 1) * c.experts));
        ASSERT_EQ(LaunchPromptSort(sort, rig().queue()), cudaSuccess);
      }
      for (const bool second : {false, true}) {
        if (c.all_rows && second) break;
        args.first_slot = second ? c.experts : 0;
        args.end_slot = second ? INT32_MAX : c.experts;
        ASSERT_EQ(LaunchPromptFc1(args, rig().queue()), cudaSuccess);
        ASSERT_EQ(LaunchPromptFc2(args, rig().queue()), cudaSuccess);
      }
      if (c.all_rows) continue;
      ASSERT_EQ(LaunchPromptCombine(args, rig().queue()), cudaSuccess);
    }
    const auto parts = rig().Download(residual, whole.size());
    EXPECT_TRUE(SameBits(parts.data(), whole.data(), whole.size())) << "two chunks, cut at row " << cut;
  }

  PromptExpertArgs args_;
  std::vector<int32_t> slot_of_, order_;
  uint8_t *slots_ = nullptr, *staging_ = nullptr;
  int64_t slot_bytes_ = 0;
  std::vector<HostMatrix> gate_, up_, down_;
  std::vector<float> gate_bias_, up_bias_, down_bias_, gate_factor_, up_factor_, down_factor_;
  std::vector<float> x_, residual_, misses_, shared_weights_, hidden_;
  Routes routes_;
};

ExpertsCase Of(const char* name, WeightFormat format) {
  ExpertsCase c;
  c.name = name;
  c.gate = c.up = c.down = format;
  return c;
}

TEST_F(PromptExpertsTest, GroupsOfAllSizes) {
  ExpertsCase c = Of("even", WeightFormat::kQ4_0);
  Run(c);
  c.name = "one big group, one of a single route, some that nobody has";
  c.favourite = 9;
  c.rows = 150;
  c.missing = 5;
  c.misses = true;
  Run(c);
  c.name = "a single row";
  c.rows = 1;
  c.favourite = 0;
  Run(c);
  c.name = "nobody has anything";
  c.missing = 1;
  c.rows = 70;
  Run(c);
  c.name = "one expert";
  c.missing = 0;
  c.experts = c.used = 1;
  c.rows = 130;
  Run(c);
  c.name = "groups of more than one tile of any kernel";
  c.experts = 9;
  c.used = 3;
  c.rows = 420;
  c.hidden = 128;
  c.inner = 96;
  c.favourite = 40;
  Run(c);
  c.name = "many experts";
  c.favourite = 0;
  c.experts = 70;
  c.used = 8;
  c.rows = 40;
  c.hidden = 128;
  c.inner = 64;
  c.missing = 3;
  Run(c);
}

TEST_F(PromptExpertsTest, Formats) {
  ExpertsCase c = Of("minima, whose sums fc1 makes", WeightFormat::kQ4K);
  c.inner = 256;
  c.experts = 5;
  c.used = 2;
  Run(c);
  c = Of("biases, limits and factors", WeightFormat::kMXFP4);
  c.biases = c.factors = true;
  c.alpha = 1.7f;
  c.beta = 1;
  c.limit = 7;
  Run(c);
  c = Of("several formats, staged", WeightFormat::kQ6K);
  c.up = WeightFormat::kQ4K;
  c.down = WeightFormat::kQ8_0;
  c.experts = 5;
  c.used = 2;
  c.staged = 2;
  Run(c);
  c = Of("file rows", WeightFormat::kQ5_0);
  c.experts = 4;
  c.used = 2;
  c.staged = 1;
  c.activation = DeviceActivation::kGeGlu;
  Run(c);
  c = Of("planar", WeightFormat::kInt3);
  c.down = WeightFormat::kInt4;
  c.inner = 160;
  c.experts = 5;
  c.used = 2;
  c.staged = 1;
  Run(c);
  c = Of("halves with tails", WeightFormat::kF16);
  c.inner = 83;
  c.hidden = 212;
  c.experts = 4;
  c.used = 2;
  Run(c);
}

TEST_F(PromptExpertsTest, DensePart) {
  ExpertsCase c = Of("dense", WeightFormat::kQ4_0);
  c.all_rows = true;
  c.used = c.experts = 1;
  c.rows = 140;
  Run(c);
  c = Of("dense, minima, shared weights", WeightFormat::kQ4K);
  c.all_rows = c.shared_weights = c.biases = true;
  c.used = c.experts = 1;
  c.inner = 512;
  Run(c);
}

}  // namespace
}  // namespace bellhop::kernels
