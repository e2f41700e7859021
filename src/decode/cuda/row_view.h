// A row of logits as the device sampler sees it: keys that order as logits do, and biases and penalties in place.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/signal_ops.h"
#include "decode/cuda/device_sampling.h"

namespace bellhop::decode {

BELLHOP_HOST_DEVICE inline uint32_t FloatBits(float value) {
  union {
    float f;
    uint32_t u;
  } bits;
  bits.f = value;
  return bits.u;
}
BELLHOP_HOST_DEVICE inline float FloatOfBits(uint32_t value) {
  union {
    uint32_t u;
    float f;
  } bits;
  bits.u = value;
  return bits.f;
}

// Larger for larger logits, the same for both zeros; 0 for -Inf and NaN, which are no candidates.
BELLHOP_HOST_DEVICE inline uint32_t CandidateKey(float logit) {
  constexpr uint32_t kSign = 0x80000000u;
  if (!(logit > -std::numeric_limits<float>::infinity())) return 0;
  if (logit == 0.0f) return kSign;
  const uint32_t bits = FloatBits(logit);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
BELLHOP_HOST_DEVICE inline float LogitOfKey(uint32_t key) {
  constexpr uint32_t kSign = 0x80000000u;
  return FloatOfBits((key & kSign) != 0 ? key & ~kSign : ~key);
}

// Key and id in one word: larger words come first, among equal keys the lower id. 0: none.
BELLHOP_HOST_DEVICE inline uint64_t MakeEntry(uint32_t key, int32_t id) {
  return key == 0 ? 0 : static_cast<uint64_t>(key) << 32 | ~static_cast<uint32_t>(id);
}
BELLHOP_HOST_DEVICE inline int32_t EntryId(uint64_t entry) {
  return static_cast<int32_t>(~static_cast<uint32_t>(entry));
}
BELLHOP_HOST_DEVICE inline float EntryLogit(uint64_t entry) { return LogitOfKey(static_cast<uint32_t>(entry >> 32)); }

struct RowView {
  float* logits;
  const uint64_t* allow;
  int32_t vocab;

  BELLHOP_HOST_DEVICE bool Allows(int32_t i) const { return allow == nullptr || (allow[i / 64] >> (i % 64) & 1) != 0; }
  BELLHOP_HOST_DEVICE uint32_t Key(int32_t i) const { return Allows(i) ? CandidateKey(logits[i]) : 0; }
};

// fn(id, key) for every candidate, in no order. Loads go ahead in batches: fn writes, and they would wait for that.
template <typename Group, typename Fn>
BELLHOP_HOST_DEVICE void ForEachCandidate(const Group& group, const RowView& row, const Fn& fn) {
  constexpr int32_t kBatch = 8;
  for (int32_t first = group.rank(); first < row.vocab; first += kBatch * group.size()) {
    uint32_t keys[kBatch];
    for (int32_t b = 0; b < kBatch; ++b) {
      const int32_t i = first + b * group.size();
      keys[b] = i < row.vocab ? row.Key(i) : 0;
    }
    for (int32_t b = 0; b < kBatch; ++b) {
      if (keys[b] != 0) fn(first + b * group.size(), keys[b]);
    }
  }
}

// NaN and +Inf.
BELLHOP_HOST_DEVICE inline bool IsFaulty(float logit) { return !(logit < std::numeric_limits<float>::infinity()); }

BELLHOP_HOST_DEVICE inline float Penalized(float logit, int32_t count, const DeviceSampling& params) {
  logit = logit > 0 ? logit / params.repeat_penalty : logit * params.repeat_penalty;
  return logit - (static_cast<float>(count) * params.frequency_penalty + params.presence_penalty);
}

BELLHOP_HOST_DEVICE inline bool StartsToken(const DeviceSampling& params, int32_t i) {
  return i == 0 || params.biases[i - 1].id != params.biases[i].id;
}
BELLHOP_HOST_DEVICE inline bool InVocab(const RowView& row, TokenId id) { return id >= 0 && id < row.vocab; }

// Biases, then penalties; what was there goes to `saved`.
template <typename Group>
BELLHOP_HOST_DEVICE void ApplyEdits(const Group& group, const DeviceSampling& params, const RowView& row,
                                    float* saved) {
  for (int32_t i = group.rank(); i < params.biases_used; i += group.size()) {
    const TokenId id = params.biases[i].id;
    if (!InVocab(row, id) || !StartsToken(params, i)) continue;
    float logit = saved[i] = row.logits[id];
    for (int32_t j = i; j < params.biases_used && params.biases[j].id == id; ++j) logit += params.biases[j].bias;
    row.logits[id] = logit;
  }
  group.Sync();
  for (int32_t i = group.rank(); i < params.penalized_used; i += group.size()) {
    const TokenCount token = params.penalized[i];
    if (!InVocab(row, token.id)) continue;
    saved[params.biases_used + i] = row.logits[token.id];
    row.logits[token.id] = Penalized(row.logits[token.id], token.count, params);
  }
  group.Sync();
}

template <typename Group>
BELLHOP_HOST_DEVICE void UndoEdits(const Group& group, const DeviceSampling& params, const RowView& row,
                                   const float* saved) {
  group.Sync();
  for (int32_t i = group.rank(); i < params.penalized_used; i += group.size()) {
    const TokenId id = params.penalized[i].id;
    if (InVocab(row, id)) row.logits[id] = saved[params.biases_used + i];
  }
  group.Sync();
  for (int32_t i = group.rank(); i < params.biases_used; i += group.size()) {
    const TokenId id = params.biases[i].id;
    if (InVocab(row, id) && StartsToken(params, i)) row.logits[id] = saved[i];
  }
  group.Sync();
}

}  // namespace bellhop::decode
