// Rows and settings on which the device sampler is compared with Sampler, in memory that the caller provides.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "decode/cuda/device_sampling.h"
#include "decode/sampler.h"

namespace bellhop::decode {

constexpr int32_t kCaseMaxEdits = 700;

enum class RowShape { kNormal, kTies, kTwoValues, kFlat, kNarrow, kPeaked, kBanned, kAscending };
constexpr int kRowShapes = 8;

inline std::vector<float> RowOfShape(RowShape shape, int32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(-1, 3);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& l : row) {
    l = normal(random);
    if (shape == RowShape::kTies) l = std::round(l);
    if (shape == RowShape::kTwoValues) l = l > 3 ? 0.0f : -0.5f;
    if (shape == RowShape::kFlat) l = random() % 2 == 0 ? 0.0f : -0.0f;
    if (shape == RowShape::kNarrow) l = 20 + l * 1e-5f;
    if (shape == RowShape::kBanned && random() % 3 != 0) l = -std::numeric_limits<float>::infinity();
  }
  if (shape == RowShape::kPeaked) row[random() % row.size()] = 60;
  if (shape == RowShape::kAscending) std::sort(row.begin(), row.end());
  return row;
}

struct SampleSetting {
  std::string name;
  SamplingParams params;
  bool masked = false;
  std::vector<TokenId> history = {};
};

// Every option alone, and together.
inline std::vector<SampleSetting> SampleSettings(int32_t vocab, uint32_t seed) {
  const SamplingParams plain{
      .temperature = 1, .top_p = 1, .min_p = 0, .top_k = 0, .repeat_last_n = 0, .seed = seed * uint64_t{0x123456789}};
  std::mt19937 random(seed);
  const auto token = [&] { return static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)); };
  std::vector<SampleSetting> settings;
  const auto add = [&](std::string name, auto change) {
    settings.push_back({std::move(name), plain});
    change(settings.back(), settings.back().params);
  };
  using S = SampleSetting&;
  using P = SamplingParams&;
  const auto edit = [&](S s, P p) {
    p.repeat_penalty = 1.3f;
    p.frequency_penalty = 0.2f;
    p.presence_penalty = 0.1f;
    p.repeat_last_n = 300;
    for (int i = 0; i < 400; ++i) s.history.push_back(i % 3 == 0 ? 7 : token());
    p.logit_bias = {{3, 5.5f}, {7, -2}, {3, 1.0f / 3}, {1, -std::numeric_limits<float>::infinity()}, {3, 1e-3f}};
    for (int i = 0; i < 100; ++i) p.logit_bias.push_back({token(), static_cast<float>(i) * 0.07f});
  };
  add("greedy", [](S, P p) { p.greedy = true; });
  add("greedy masked", [](S s, P p) { p.greedy = s.masked = true; });
  add("greedy edited", [&](S s, P p) { p.greedy = true, edit(s, p); });
  add("plain", [](S, P) {});
  add("masked", [](S s, P) { s.masked = true; });
  add("edited", [&](S s, P p) { edit(s, p); });
  for (float t : {0.3f, 2.5f, 1e-30f, 1e30f}) {
    add("temperature " + std::to_string(t), [t](S, P p) { p.temperature = t; });
  }
  for (int32_t k : {1, 40, 512, 513, 999, 5000, 1 << 30}) {
    add("top_k " + std::to_string(k), [k](S, P p) { p.top_k = k, p.temperature = 3; });
  }
  for (float top_p : {0.0f, 0.1f, 0.5f, 0.9f, 0.999f, 0x1.fffffep-1f}) {
    add("top_p " + std::to_string(top_p), [top_p](S, P p) { p.top_p = top_p; });
  }
  for (float min_p : {0.001f, 0.05f, 0.7f, 1.0f}) {
    add("min_p " + std::to_string(min_p), [min_p](S, P p) { p.min_p = min_p, p.temperature = 2; });
  }
  for (int32_t k : {20, 400, 700, 3000, 0}) {
    for (float top_p : {0.5f, 0.95f}) {
      add("together, top_k " + std::to_string(k), [&](S s, P p) {
        p.top_k = k, p.top_p = top_p, p.min_p = 0.002f, p.temperature = 1.2f;
        s.masked = k % 3 == 0;
        if (top_p > 0.9f) edit(s, p);
      });
    }
  }
  add("defaults", [](S, P p) { p = SamplingParams(); });
  return settings;
}

// Every second token or so; all words in use.
inline std::vector<uint64_t> MaskFor(int32_t vocab, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> mask((static_cast<size_t>(vocab) + 63) / 64);
  for (uint64_t& word : mask) word = random() % 8 == 0 ? ~uint64_t{0} : random();
  mask[0] |= 8;
  return mask;
}

// What Sampler::Reset leaves of the history.
inline std::vector<TokenCount> PenaltyWindow(const SamplingParams& params, const std::vector<TokenId>& history) {
  std::vector<TokenCount> window;
  if (!params.HasPenalties()) return window;
  const auto last = params.repeat_last_n < 0 ? history.size() : static_cast<size_t>(params.repeat_last_n);
  std::map<TokenId, int32_t> counts;
  for (size_t i = history.size() - std::min(last, history.size()); i < history.size(); ++i) ++counts[history[i]];
  for (const auto& [id, count] : counts) window.push_back({id, count});
  return window;
}

// Memory of one row's settings.
struct SampleRowMemory {
  DeviceSampling* params;
  TokenBias* biases;      // [kCaseMaxEdits]
  TokenCount* penalized;  // [kCaseMaxEdits]
  uint64_t* mask;
};

inline void WriteSetting(const SampleSetting& setting, uint64_t sequence, uint64_t position,
                         const std::vector<uint64_t>& mask, const SampleRowMemory& to) {
  const std::vector<TokenCount> window = PenaltyWindow(setting.params, setting.history);
  *to.params = MakeDeviceSampling(setting.params, sequence, position);
  to.params->biases_used = CopyBiases(setting.params, to.biases);
  std::copy(window.begin(), window.end(), to.penalized);
  std::copy(mask.begin(), mask.end(), to.mask);
  to.params->biases = to.biases;
  to.params->penalized = to.penalized;
  to.params->penalized_used = static_cast<int32_t>(window.size());
  to.params->allow = setting.masked ? to.mask : nullptr;
}

// The token of Sampler, or why there is none.
inline Result<TokenId> HostToken(const SampleSetting& setting, std::vector<float> logits, uint64_t sequence,
                                 uint64_t position, const std::vector<uint64_t>& mask) {
  BELLHOP_TRY_ASSIGN(Sampler sampler, Sampler::Create(setting.params, static_cast<int32_t>(logits.size())));
  sampler.Reset(setting.history);
  return sampler.Sample(logits, sequence, position,
                        setting.masked ? HostSpan<const uint64_t>(mask) : HostSpan<const uint64_t>());
}

}  // namespace bellhop::decode
