// What top_k, top_p and min_p leave of a row that is too wide to sort: a prefix of the descending order, found digit by
// digit from histograms, and the draw from it. Every step reads the row once.
#pragma once

#include <cstdint>

#include "cuda/signal_ops.h"
#include "decode/cuda/group_ops.h"
#include "decode/cuda/row_view.h"
#include "decode/philox.h"
#include "decode/sampling_math.h"

namespace bellhop::decode {

constexpr int32_t kSampleLanes = 1024;
constexpr int32_t kSampleBins = 2048;

// Shared memory of the block that samples a row.
struct SampleScratch {
  uint64_t entries[kSampleBins];
  uint64_t sums[kSampleBins];
  double parts[kSampleLanes];
  uint32_t flags, used;
  int32_t chosen;
};

// Candidates with larger keys, and the `ties` lowest ids of those with this one.
struct RowPrefix {
  uint32_t key, ties;
};
constexpr RowPrefix kWholeRow = {0, 0};

struct PrefixGoal {
  bool by_count;
  uint32_t count;  // by_count: tokens
  float top_p;     // otherwise: share of the weight
};

namespace prefix_detail {

// A bin of a level holds a range of keys, the first bin the largest. Level 0 cuts at steps of 1/64 below the largest
// logit, which spreads a row better than its first bits; the others take 11, 11 and 10 bits of the key.
constexpr int32_t kLevels = 4;
BELLHOP_HOST_DEVICE inline int32_t DigitShift(int32_t level) { return level == 1 ? 21 : level == 2 ? 10 : 0; }
BELLHOP_HOST_DEVICE inline int32_t DigitBits(int32_t level) { return level == 3 ? 10 : 11; }

BELLHOP_HOST_DEVICE inline int32_t FirstBin(uint32_t key, float max) {
  const float steps = (max - LogitOfKey(key)) * 64.0f;  // rounding keeps the order
  return steps < kSampleBins - 1 ? static_cast<int32_t>(steps) : kSampleBins - 1;
}

// The range of keys that earlier levels have chosen.
struct Chosen {
  float max;
  int32_t level, first_bin;
  uint32_t digits;  // so far, of the key's first bits
};

// The bin of a key at this level; -1 for one outside the range.
BELLHOP_HOST_DEVICE inline int32_t BinOf(uint32_t key, const Chosen& chosen) {
  const int32_t first = FirstBin(key, chosen.max);
  if (chosen.level == 0) return first;
  const int32_t shift = DigitShift(chosen.level), bits = DigitBits(chosen.level);
  // In 64 bits, because before the first digit all 32 are shifted out.
  if (first != chosen.first_bin || static_cast<uint64_t>(key) >> (shift + bits) != chosen.digits) return -1;
  return kSampleBins - 1 - static_cast<int32_t>(key >> shift & ((1u << bits) - 1));
}

BELLHOP_HOST_DEVICE inline uint64_t UnitOf(uint32_t key, float max, const PrefixGoal& goal) {
  return goal.by_count ? 1 : SampleWeight(static_cast<double>(LogitOfKey(key)) - max);
}

BELLHOP_HOST_DEVICE inline void AddToBin(uint32_t key, uint32_t times, const Chosen& chosen, const PrefixGoal& goal,
                                         uint64_t* bins) {
  const int32_t bin = BinOf(key, chosen);
  if (bin < 0) return;
  const uint64_t unit = UnitOf(key, chosen.max, goal);
  if (unit != 0) AddWideInGroup(&bins[bin], unit * times);
}

}  // namespace prefix_detail

// The shortest prefix of `within` that reaches the goal, all of it when none does. `max`: the row's largest logit.
template <typename Group>
BELLHOP_HOST_DEVICE RowPrefix SelectPrefix(const Group& group, const RowView& row, float max, RowPrefix within,
                                           const PrefixGoal& goal, SampleScratch* scratch) {
  using prefix_detail::AddToBin;
  using prefix_detail::kLevels;
  uint64_t* const bins = scratch->sums;
  uint64_t needed = 0;
  prefix_detail::Chosen chosen = {max, 0, 0, 0};
  for (; chosen.level < kLevels; ++chosen.level) {
    for (int32_t b = group.rank(); b < kSampleBins; b += group.size()) bins[b] = 0;
    group.Sync();
    ForEachCandidate(group, row, [&](int32_t, uint32_t key) {
      if (key > within.key) AddToBin(key, 1, chosen, goal, bins);
    });
    if (group.rank() == 0 && within.ties > 0) AddToBin(within.key, within.ties, chosen, goal, bins);
    group.Sync();
    InclusiveScan(group, bins, kSampleBins);
    if (chosen.level == 0) {
      const uint64_t total = bins[kSampleBins - 1];
      needed = goal.by_count ? goal.count : NeededWeight(goal.top_p, total);
      if (total < needed) return within;
    }
    for (int32_t b = group.rank(); b < kSampleBins; b += group.size()) {
      if (bins[b] >= needed && (b == 0 || bins[b - 1] < needed)) scratch->chosen = b;
    }
    group.Sync();
    const int32_t bin = scratch->chosen;
    if (bin > 0) needed -= bins[bin - 1];
    group.Sync();
    if (chosen.level == 0) {
      chosen.first_bin = bin;
    } else {
      chosen.digits =
          chosen.digits << prefix_detail::DigitBits(chosen.level) | static_cast<uint32_t>(kSampleBins - 1 - bin);
    }
  }
  const uint64_t unit = prefix_detail::UnitOf(chosen.digits, max, goal);
  return {chosen.digits, static_cast<uint32_t>((needed + unit - 1) / unit)};
}

// One thread's walk along a segment in id order.
struct PrefixWalk {
  const RowView& row;
  const DeviceSampling& params;
  RowPrefix prefix;
  float max;
  uint64_t ties_before;  // of lower ids

  // The weight of the draw, 0 for tokens outside the prefix and below min_p.
  BELLHOP_HOST_DEVICE uint64_t WeightOf(int32_t i) {
    const uint32_t key = row.Key(i);
    if (key < prefix.key || key == 0) return 0;
    if (key == prefix.key && ties_before++ >= prefix.ties) return 0;
    const float logit = LogitOfKey(key);
    if (logit < max + params.log_min_p) return 0;
    return SampleWeight((static_cast<double>(logit) - max) / params.temperature);
  }
};

// The token drawn from the prefix.
template <typename Group>
BELLHOP_HOST_DEVICE int32_t DrawFromPrefix(const Group& group, const RowView& row, const DeviceSampling& params,
                                           float max, RowPrefix prefix, SampleScratch* scratch) {
  // Lanes own segments of neighbouring ids.
  const int32_t length = (row.vocab + kSampleLanes - 1) / kSampleLanes;
  const auto end_of = [&](int32_t lane) { return (lane + 1) * length < row.vocab ? (lane + 1) * length : row.vocab; };
  uint64_t* const ties = scratch->sums;
  uint64_t* const weights = scratch->entries;
  for (int32_t lane = group.rank(); lane < kSampleLanes; lane += group.size()) {
    uint64_t found = 0;
    if (prefix.ties > 0) {
      for (int32_t i = lane * length; i < end_of(lane); ++i) found += row.Key(i) == prefix.key ? 1 : 0;
    }
    ties[lane] = found;
  }
  group.Sync();
  InclusiveScan(group, ties, kSampleLanes);
  for (int32_t lane = group.rank(); lane < kSampleLanes; lane += group.size()) {
    PrefixWalk walk{row, params, prefix, max, lane > 0 ? ties[lane - 1] : 0};
    uint64_t sum = 0;
    for (int32_t i = lane * length; i < end_of(lane); ++i) sum += walk.WeightOf(i);
    weights[lane] = sum;
  }
  group.Sync();
  InclusiveScan(group, weights, kSampleLanes);
  const uint64_t target =
      DrawTarget(UniformAt(params.seed, params.sequence, params.position), weights[kSampleLanes - 1]);
  for (int32_t lane = group.rank(); lane < kSampleLanes; lane += group.size()) {
    uint64_t sum = lane > 0 ? weights[lane - 1] : 0;
    if (sum > target || weights[lane] <= target) continue;
    PrefixWalk walk{row, params, prefix, max, lane > 0 ? ties[lane - 1] : 0};
    int32_t i = lane * length;
    for (; (sum += walk.WeightOf(i)) <= target; ++i) {
    }
    scratch->chosen = i;
  }
  group.Sync();
  return scratch->chosen;
}

}  // namespace bellhop::decode
