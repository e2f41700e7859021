#include "plan/gpu_placement.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/prediction.h"

namespace bellhop::plan {
namespace {

constexpr MachineConstants kMachine{.hbm_gbps = 4625,
                                    .dram_gbps = 90,
                                    .pcie_gbps = 52,
                                    .both_dram_gbps = 80,
                                    .both_pcie_gbps = 47,
                                    .sync_us = 4,
                                    .cpu_us = 0,
                                    .fetch_us = 4};

struct Model {
  std::vector<ExpertLayerInfo> layers;
  Popularity popularity;

  uint64_t slot_bytes() const {
    uint64_t sum = 0;
    for (const ExpertLayerInfo& layer : layers) {
      uint64_t most = 0;
      for (const uint64_t b : layer.expert_bytes) most = std::max(most, b);
      sum += (most + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment * layer.expert_bytes.size();
    }
    return sum;
  }
  Result<GpuPlacement> Place(uint64_t budget) const {
    return PlaceExperts({.layers = layers, .popularity = popularity, .machine = kMachine, .budget_bytes = budget});
  }
  DecodePrediction Predict(const GpuPlacement& placed, uint64_t dense = 0) const {
    return PredictDecode({.layers = layers,
                          .popularity = popularity,
                          .placement = placed.placement,
                          .dense_bytes = dense,
                          .machine = kMachine});
  }
};

// Layers of different sizes, some without experts, and counts without any order.
Model RandomModel(uint32_t seed, bool uneven) {
  std::mt19937 random(seed);
  Model model;
  std::vector<std::vector<uint64_t>> counts;
  const size_t layers = 1 + random() % 6;
  for (size_t l = 0; l < layers; ++l) {
    const size_t experts = random() % 5 == 0 ? 0 : 1 + random() % 20;
    const uint64_t bytes = 1000 + random() % 100000;
    ExpertLayerInfo layer{.used = static_cast<int32_t>(experts == 0 ? 0 : 1 + random() % experts), .expert_bytes = {}};
    counts.emplace_back();
    for (size_t e = 0; e < experts; ++e) {
      layer.expert_bytes.push_back(uneven ? bytes + random() % 5000 : bytes);
      counts.back().push_back(random() % 3 == 0 ? 0 : random() % 1000);
    }
    model.layers.push_back(layer);
  }
  model.popularity = random() % 4 == 0 ? EvenPopularity(model.layers) : *PopularityFromCounts(model.layers, counts);
  return model;
}

// Slots 0, 1, … hold distinct experts, and the tables agree with the banks.
void CheckTables(const Model& model, const GpuPlacement& placed) {
  uint64_t bytes = 0;
  ASSERT_EQ(placed.banks.size(), model.layers.size());
  for (size_t l = 0; l < placed.banks.size(); ++l) {
    const Bank& bank = placed.banks[l];
    bytes += bank.bytes();
    const std::vector<int32_t> table = placed.placement.ExpertToSlot(LayerId(static_cast<int32_t>(l)));
    ASSERT_EQ(table.size(), model.layers[l].expert_bytes.size());
    EXPECT_EQ(static_cast<size_t>(std::count_if(table.begin(), table.end(), [](int32_t s) { return s >= 0; })),
              bank.experts.size());
    for (size_t s = 0; s < bank.experts.size(); ++s) {
      EXPECT_EQ(table[bank.experts[s].index()], static_cast<int32_t>(s));
      EXPECT_GE(bank.slot_bytes, model.layers[l].expert_bytes[bank.experts[s].index()]);
    }
    EXPECT_EQ(bank.slot_bytes % kSlotAlignment, 0u);
  }
  EXPECT_EQ(bytes, placed.bank_bytes);
}

TEST(GpuPlacementTest, MoreBudgetAddsExpertsAndTakesNoneAway) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Model model = RandomModel(seed, seed % 2 == 0);
    const uint64_t all = model.slot_bytes();
    GpuPlacement before;
    double hit_rate = -1, ms = 1e9;
    for (int step = 0; step <= 24; ++step) {
      const uint64_t budget = all * static_cast<uint64_t>(step) / 24;
      const auto placed = model.Place(budget);
      ASSERT_TRUE(placed.ok()) << placed.status().ToString();
      CheckTables(model, *placed);
      EXPECT_LE(placed->bank_bytes, budget);
      const DecodePrediction prediction = model.Predict(*placed);
      EXPECT_GE(prediction.hit_rate, hit_rate - 1e-12);
      EXPECT_LE(prediction.ms_per_token(), ms * (1 + 1e-9) + 1e-12);
      for (size_t l = 0; step > 0 && l < before.banks.size(); ++l) {
        for (const ExpertId expert : before.banks[l].experts) {
          EXPECT_TRUE(placed->placement.IsHit(LayerId(static_cast<int32_t>(l)), expert));
        }
      }
      hit_rate = prediction.hit_rate;
      ms = prediction.ms_per_token();
      before = *placed;
    }
    EXPECT_EQ(before.placement.resident(), before.placement.total());  // the whole budget holds everything
    EXPECT_DOUBLE_EQ(hit_rate, 1);
  }
}

TEST(GpuPlacementTest, IsDeterministic) {
  const Model model = RandomModel(7, true);
  const auto a = model.Place(model.slot_bytes() / 2), b = model.Place(model.slot_bytes() / 2);
  ASSERT_TRUE(a.ok() && b.ok());
  for (size_t l = 0; l < a->banks.size(); ++l) EXPECT_EQ(a->banks[l].experts, b->banks[l].experts);
}

TEST(GpuPlacementTest, PopularExpertsOfAllLayersComeFirst) {
  Model model;
  model.layers.assign(2, {.used = 1, .expert_bytes = std::vector<uint64_t>(4, 4096)});
  model.popularity = *PopularityFromCounts(model.layers, {{1, 96, 2, 1}, {10, 20, 30, 40}});
  const auto placed = model.Place(3 * 4096 + 4095);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(placed->banks[0].experts, std::vector<ExpertId>{ExpertId(1)});
  EXPECT_EQ(placed->banks[1].experts, (std::vector<ExpertId>{ExpertId(2), ExpertId(3)}));
  EXPECT_EQ(placed->bank_bytes, 3u * 4096);
  EXPECT_DOUBLE_EQ(placed->residency, 3.0 / 8);
  EXPECT_NEAR(model.Predict(*placed).hit_rate, (0.96 + 0.7) / 2, 1e-9);
}

// The last expert of layer 0 is chosen by 2 % of the rows, each of layer 1 by 2.5 %. But with it layer 0 never rings.
TEST(GpuPlacementTest, AWholeLayerIsWorthItsDoorbell) {
  Model model;
  model.layers = {{.used = 1, .expert_bytes = std::vector<uint64_t>(4, 4096)},
                  {.used = 1, .expert_bytes = std::vector<uint64_t>(40, 4096)}};
  model.popularity = *PopularityFromCounts(model.layers, {{98, 98, 98, 6}, std::vector<uint64_t>(40, 10)});
  const auto resident = [&](double sync_us) {
    MachineConstants machine = kMachine;
    machine.sync_us = sync_us;
    const auto placed = PlaceExperts(
        {.layers = model.layers, .popularity = model.popularity, .machine = machine, .budget_bytes = 4 * 4096});
    return placed.ok() ? placed->placement.resident(LayerId(0)) : -1;
  };
  EXPECT_EQ(resident(0), 3);
  EXPECT_EQ(resident(4), 4);
}

TEST(GpuPlacementTest, WithoutAProfileEveryLayerGetsTheSameShare) {
  Model model;
  model.layers.assign(6, {.used = 2, .expert_bytes = std::vector<uint64_t>(8, 512)});
  model.layers[3].expert_bytes.assign(4, 512);
  model.popularity = EvenPopularity(model.layers);
  const auto placed = model.Place(model.slot_bytes() / 2);
  ASSERT_TRUE(placed.ok());
  for (int32_t l = 0; l < 6; ++l) EXPECT_EQ(placed->placement.resident(LayerId(l)), l == 3 ? 2 : 4) << l;
  EXPECT_EQ(placed->banks[0].experts.front(), ExpertId(0));
}

TEST(GpuPlacementTest, ANumberOfExpertsPerLayerOrAShare) {
  Model model;
  model.layers = {{.used = 1, .expert_bytes = {300, 200, 100}},
                  {.used = 0, .expert_bytes = {}},
                  {.used = 1, .expert_bytes = {500, 500}}};
  model.popularity = *PopularityFromCounts(model.layers, {{1, 1, 9}, {}, {1, 2}});
  auto place = [&](std::optional<uint32_t> per_layer, std::optional<double> percent, uint64_t budget) {
    return PlaceExperts({.layers = model.layers,
                         .popularity = model.popularity,
                         .machine = kMachine,
                         .budget_bytes = budget,
                         .per_layer = per_layer,
                         .percent = percent});
  };
  const uint64_t all = 5 * 512;
  auto placed = place(1, {}, all);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(placed->banks[0].experts, std::vector<ExpertId>{ExpertId(2)});  // 9 × 100 bytes move most
  EXPECT_EQ(placed->banks[2].experts, std::vector<ExpertId>{ExpertId(1)});
  EXPECT_EQ(place(0, {}, all)->placement.resident(), 0);
  EXPECT_EQ(place(0, {}, 0)->placement.resident(), 0);
  EXPECT_EQ(place(100, {}, all)->placement.resident(), 5);
  EXPECT_EQ(place({}, 0.0, all)->placement.resident(), 0);
  EXPECT_EQ(place({}, 100.0, all)->placement.resident(), 5);
  EXPECT_EQ(place({}, 60.0, all)->placement.resident(), 3);
  for (const auto& refused : {place(1, {}, 2 * 512 - 1), place({}, 100.0, all - 1)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
    EXPECT_NE(refused.status().message().find("--gpu-experts"), std::string::npos);
  }
  EXPECT_EQ(place({}, 101.0, all).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(place({}, -1.0, all).status().code(), StatusCode::kInvalidArgument);
}

TEST(GpuPlacementTest, RefusesWhatDoesNotFitTogether) {
  Model model = RandomModel(3, false);
  EXPECT_FALSE(
      PlaceExperts({.layers = model.layers, .popularity = model.popularity, .machine = {}, .budget_bytes = 1}).ok());
  model.popularity.routes.pop_back();
  EXPECT_EQ(model.Place(1 << 20).status().code(), StatusCode::kInvalidArgument);
  model.layers = {{.used = 1, .expert_bytes = {UINT64_MAX / 2, UINT64_MAX / 2, UINT64_MAX / 2}}};
  model.popularity = EvenPopularity(model.layers);
  EXPECT_EQ(model.Place(1 << 20).status().code(), StatusCode::kInvalidArgument);
  model.layers.clear();
  model.popularity = EvenPopularity(model.layers);
  const auto nothing = model.Place(1 << 20);
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->bank_bytes, 0u);
  EXPECT_DOUBLE_EQ(model.Predict(*nothing).hit_rate, 1);
}

TEST(GpuPlacementTest, OtherMemoryIsChargedFirst) {
  const VramCharges charges{.dense_bytes = 100, .kv_bytes = 20, .workspace_bytes = 3, .graph_bytes = 1};
  EXPECT_EQ(*ExpertBudget(1000, charges), 876u);
  EXPECT_EQ(*ExpertBudget(124, charges), 0u);
  const auto refused = ExpertBudget(123, charges);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("--ctx-size"), std::string::npos);
  EXPECT_FALSE(ExpertBudget(UINT64_MAX, {.dense_bytes = UINT64_MAX, .kv_bytes = 1}).ok());
}

// The bound of a model of 48 layers with 128 experts each of 2.65 MB, top-8, at the rates of one H200 host.
TEST(PredictionTest, AgreesWithTheBoundByHand) {
  Model model;
  model.layers.assign(48, {.used = 8, .expert_bytes = std::vector<uint64_t>(128, 2654208)});
  ExpertProfile profile{.layers = 48, .experts = 128, .ranked = {}};
  for (int32_t e = 0; e < 128; ++e) {
    for (int32_t l = 0; l < 48; ++l) profile.ranked.push_back({LayerId(l), ExpertId(e)});
  }
  model.popularity = *PopularityFromProfile(model.layers, profile);
  const std::pair<double, double> bounds[] = {{0.25, 3.9}, {0.5, 2.4}, {0.75, 1.3}};
  for (const auto& [share, ms] : bounds) {
    const auto placed = model.Place(static_cast<uint64_t>(share * static_cast<double>(model.slot_bytes())));
    ASSERT_TRUE(placed.ok());
    EXPECT_NEAR(placed->residency, share, 1e-3);
    const DecodePrediction prediction = model.Predict(*placed, 700'000'000);
    EXPECT_NEAR(prediction.ms_per_token(), ms, 0.2) << share;
    EXPECT_EQ(prediction.bound, "host memory and PCIe");
    EXPECT_LE(prediction.ringing_layers, 48);
  }
  const auto whole = model.Predict(*model.Place(model.slot_bytes()), 700'000'000);
  EXPECT_EQ(whole.bound, "GPU memory");
  EXPECT_DOUBLE_EQ(whole.ringing_layers, 0);
  EXPECT_NEAR(whole.gpu_ms, (0.7 + 48 * 8 * 2.654208e-3) / 4625 * 1e3, 0.01);
}

TEST(PredictionTest, TheDeadlineGrowsWithTheStep) {
  EXPECT_EQ(DoorbellDeadlineNs(0), 10'000'000'000u);
  EXPECT_EQ(DoorbellDeadlineNs(5), 10'000'000'000u);
  EXPECT_EQ(DoorbellDeadlineNs(250), 25'000'000'000u);
  EXPECT_EQ(DoorbellDeadlineNs(1e12), 3'600'000'000'000u);
}

TEST(PredictionTest, TheLaneDecidesTheRateAndTheBound) {
  Model model;
  model.layers.assign(1, {.used = 1, .expert_bytes = std::vector<uint64_t>(1, 1'000'000'000)});
  model.popularity = EvenPopularity(model.layers);
  const auto cold = model.Place(0);
  ASSERT_TRUE(cold.ok());
  const std::tuple<config::MissLane, double, const char*> lanes[] = {
      {config::MissLane::kCpu, 90, "host memory"},
      {config::MissLane::kPcie, 52, "PCIe"},
      {config::MissLane::kSplit, 127, "host memory and PCIe"},
      {config::MissLane::kAuto, 127, "host memory and PCIe"}};
  for (const auto& [lane, rate, bound] : lanes) {
    const DecodePrediction prediction = PredictDecode({.layers = model.layers,
                                                       .popularity = model.popularity,
                                                       .placement = cold->placement,
                                                       .machine = kMachine,
                                                       .lane = lane});
    EXPECT_DOUBLE_EQ(prediction.miss_ms, 1000 / rate);
    EXPECT_EQ(prediction.bound, bound);
    EXPECT_DOUBLE_EQ(prediction.hit_rate, 0);
    EXPECT_DOUBLE_EQ(prediction.sync_ms, 0.004);
  }
  model.layers[0].expert_bytes[0] = 1;
  EXPECT_EQ(model.Predict(*model.Place(0)).bound, "synchronisation");
}

}  // namespace
}  // namespace bellhop::plan
