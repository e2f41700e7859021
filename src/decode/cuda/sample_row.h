// The device sampler's two steps, for a group of threads: chunks of a row, then the row. The same tokens as Sampler.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda/signal_ops.h"
#include "decode/cuda/device_sampling.h"
#include "decode/cuda/group_ops.h"
#include "decode/cuda/prefix_select.h"
#include "decode/cuda/row_view.h"

namespace bellhop::decode {

constexpr int32_t kChunkLanes = 256;
constexpr int32_t kMaxSampledChunks = 512;
static_assert(SampleChunks(kMaxSampledVocab) <= kMaxSampledChunks && kMaxSampledChunks <= kSampleLanes);
// A larger top_k is found by histograms: fewer maxima of lanes would bound it well.
constexpr uint32_t kMaxSortedTopK = 512;

// Bits of ChunkStats::flags and SampleScratch::flags.
constexpr uint32_t kRowFault = 1;      // NaN or +Inf
constexpr uint32_t kAllowedFault = 2;  // of an allowed token
constexpr uint32_t kAnyAllowed = 4;

struct ChunkScratch {
  uint64_t best[kChunkLanes];
  double sum[kChunkLanes];
  float max[kChunkLanes];
  uint32_t flags;
};

BELLHOP_HOST_DEVICE inline void Look(const RowView& row, int32_t i, uint64_t* best, uint32_t* flags) {
  const float logit = row.logits[i];
  const bool fault = IsFaulty(logit);
  if (fault) *flags |= kRowFault;
  if (!row.Allows(i)) return;
  *flags |= fault ? kAnyAllowed | kAllowedFault : kAnyAllowed;
  const uint64_t entry = MakeEntry(CandidateKey(logit), i);
  if (entry > *best) *best = entry;
}

template <typename Group>
BELLHOP_HOST_DEVICE void ScanChunk(const Group& group, const RowView& row, int32_t chunk, ChunkScratch* scratch,
                                   ChunkStats* stats) {
  const int32_t begin = chunk * kSampleChunk;
  const int32_t end = row.vocab - begin < kSampleChunk ? row.vocab : begin + kSampleChunk;
  if (group.rank() == 0) scratch->flags = 0;
  group.Sync();
  uint32_t flags = 0;
  for (int32_t lane = group.rank(); lane < kChunkLanes; lane += group.size()) {
    uint64_t best = 0;
    float max = -std::numeric_limits<float>::infinity();
    for (int32_t i = begin + lane; i < end; i += kChunkLanes) {
      Look(row, i, &best, &flags);
      if (row.logits[i] > max) max = row.logits[i];
    }
    scratch->best[lane] = best;
    scratch->max[lane] = max;
  }
  if (flags != 0) cuda::OrInGroup(&scratch->flags, flags);
  group.Sync();
  ReduceMax(group, scratch->best, kChunkLanes);
  ReduceMax(group, scratch->max, kChunkLanes);
  const float max = scratch->max[0];
  for (int32_t lane = group.rank(); lane < kChunkLanes; lane += group.size()) {
    double sum = 0;
    if (CandidateKey(max) != 0 && !IsFaulty(max)) {
      for (int32_t i = begin + lane; i < end; i += kChunkLanes) sum += std::exp(row.logits[i] - max);
    }
    scratch->sum[lane] = sum;
  }
  group.Sync();
  ReduceSum(group, scratch->sum, kChunkLanes);
  if (group.rank() == 0) *stats = {scratch->best[0], scratch->sum[0], max, scratch->flags};
}

// What all chunks of a row say together.
struct RowStats {
  uint64_t best;
  double log_total;  // log of the sum of exp(logit); meaningless with kRowFault or without a finite logit
  bool any_finite;
  uint32_t flags;
};

template <typename Group>
BELLHOP_HOST_DEVICE RowStats JoinChunks(const Group& group, const ChunkStats* stats, int32_t chunks,
                                        SampleScratch* scratch) {
  if (group.rank() == 0) scratch->flags = 0;
  group.Sync();
  for (int32_t c = group.rank(); c < kMaxSampledChunks; c += group.size()) {
    scratch->entries[c] = c < chunks ? stats[c].best : 0;
    scratch->sums[c] = c < chunks ? CandidateKey(stats[c].max) : 0;
    if (c < chunks && stats[c].flags != 0) cuda::OrInGroup(&scratch->flags, stats[c].flags);
  }
  group.Sync();
  ReduceMax(group, scratch->entries, kMaxSampledChunks);
  ReduceMax(group, scratch->sums, kMaxSampledChunks);
  RowStats row{scratch->entries[0], 0, scratch->sums[0] != 0, scratch->flags};
  const double max = LogitOfKey(static_cast<uint32_t>(scratch->sums[0]));
  for (int32_t c = group.rank(); c < kMaxSampledChunks; c += group.size()) {
    const bool counts = c < chunks && CandidateKey(stats[c].max) != 0;
    scratch->parts[c] = counts ? stats[c].sum * std::exp(stats[c].max - max) : 0.0;
  }
  group.Sync();
  ReduceSum(group, scratch->parts, kMaxSampledChunks);
  row.log_total = max + std::log(scratch->parts[0]);
  return row;
}

// Best candidate and flags again, of an edited row.
template <typename Group>
BELLHOP_HOST_DEVICE void RescanRow(const Group& group, const RowView& row, SampleScratch* scratch, RowStats* stats) {
  group.Sync();
  if (group.rank() == 0) scratch->flags = 0;
  group.Sync();
  uint32_t flags = 0;
  for (int32_t lane = group.rank(); lane < kSampleLanes; lane += group.size()) {
    uint64_t best = 0;
    for (int32_t i = lane; i < row.vocab; i += kSampleLanes) Look(row, i, &best, &flags);
    scratch->entries[lane] = best;
  }
  if (flags != 0) cuda::OrInGroup(&scratch->flags, flags);
  group.Sync();
  ReduceMax(group, scratch->entries, kSampleLanes);
  stats->best = scratch->entries[0];
  stats->flags = (stats->flags & kRowFault) | (scratch->flags & ~kRowFault);
}

// The top_k candidates, sorted, as the first scratch->used entries. False when too many look like candidates.
template <typename Group>
BELLHOP_HOST_DEVICE bool CollectTopK(const Group& group, const RowView& row, uint32_t k, SampleScratch* scratch) {
  group.Sync();
  for (int32_t lane = group.rank(); lane < kSampleLanes; lane += group.size()) {
    uint32_t best = 0;
    for (int32_t i = lane; i < row.vocab; i += kSampleLanes) {
      const uint32_t key = row.Key(i);
      if (key > best) best = key;
    }
    scratch->entries[lane] = best;
  }
  if (group.rank() == 0) scratch->used = 0;
  group.Sync();
  SortDescending(group, scratch->entries, kSampleLanes);
  // At least k candidates are not below the k-th maximum of a lane. 0: there are fewer such lanes, so take everything.
  const auto bound = static_cast<uint32_t>(scratch->entries[k - 1]);
  group.Sync();
  ForEachCandidate(group, row, [&](int32_t i, uint32_t key) {
    if (key < bound) return;
    const uint32_t at = TakeInGroup(&scratch->used);
    if (at < kSampleBins) scratch->entries[at] = MakeEntry(key, i);
  });
  group.Sync();
  const uint32_t found = scratch->used;
  group.Sync();
  if (found > kSampleBins) return false;
  const int32_t size = PowerOfTwoFrom(static_cast<int32_t>(found));
  for (int32_t i = static_cast<int32_t>(found) + group.rank(); i < size; i += group.size()) scratch->entries[i] = 0;
  if (group.rank() == 0) scratch->used = found < k ? found : k;
  group.Sync();
  SortDescending(group, scratch->entries, size);
  return true;
}

// top_p, min_p and the draw among the first scratch->used entries, which are sorted.
template <typename Group>
BELLHOP_HOST_DEVICE int32_t DrawFromSorted(const Group& group, const DeviceSampling& params, float max,
                                           SampleScratch* scratch) {
  uint64_t* const entries = scratch->entries;
  uint64_t* const sums = scratch->sums;
  auto used = static_cast<int32_t>(scratch->used);
  const int32_t size = PowerOfTwoFrom(used);
  if (params.top_p < 1.0f) {
    for (int32_t i = group.rank(); i < size; i += group.size()) {
      sums[i] = i < used ? SampleWeight(static_cast<double>(EntryLogit(entries[i])) - max) : 0;
    }
    group.Sync();
    InclusiveScan(group, sums, size);
    const uint64_t needed = NeededWeight(params.top_p, sums[size - 1]);
    for (int32_t i = group.rank(); i < used; i += group.size()) {
      if (sums[i] >= needed && (i == 0 || sums[i - 1] < needed)) scratch->used = static_cast<uint32_t>(i + 1);
    }
    group.Sync();
    used = static_cast<int32_t>(scratch->used);
  }
  // Into id order, without what min_p removes.
  for (int32_t i = group.rank(); i < size; i += group.size()) {
    const bool kept = i < used && !(EntryLogit(entries[i]) < max + params.log_min_p);
    entries[i] = kept ? entries[i] << 32 | entries[i] >> 32 : 0;
  }
  group.Sync();
  SortDescending(group, entries, size);
  for (int32_t i = group.rank(); i < size; i += group.size()) {
    const float logit = LogitOfKey(static_cast<uint32_t>(entries[i]));
    sums[i] = entries[i] != 0 ? SampleWeight((static_cast<double>(logit) - max) / params.temperature) : 0;
  }
  group.Sync();
  InclusiveScan(group, sums, size);
  const uint64_t target = DrawTarget(UniformAt(params.seed, params.sequence, params.position), sums[size - 1]);
  for (int32_t i = group.rank(); i < size; i += group.size()) {
    if (sums[i] > target && (i == 0 || sums[i - 1] <= target)) scratch->chosen = EntryId(entries[i] >> 32);
  }
  group.Sync();
  return scratch->chosen;
}

template <typename Group>
BELLHOP_HOST_DEVICE int32_t Choose(const Group& group, const RowView& row, const DeviceSampling& params, float max,
                                   SampleScratch* scratch) {
  const auto k = params.top_k > 0 ? static_cast<uint32_t>(params.top_k) : 0u;
  if (k > 0 && k <= kMaxSortedTopK && CollectTopK(group, row, k, scratch)) {
    return DrawFromSorted(group, params, max, scratch);
  }
  group.Sync();
  RowPrefix prefix = kWholeRow;
  if (k > 0 && k < static_cast<uint32_t>(row.vocab)) {
    prefix = SelectPrefix(group, row, max, prefix, {true, k, 1}, scratch);
    group.Sync();
  }
  if (params.top_p < 1.0f) {
    prefix = SelectPrefix(group, row, max, prefix, {false, 0, params.top_p}, scratch);
    group.Sync();
  }
  return DrawFromPrefix(group, row, params, max, prefix, scratch);
}

// Behind ScanChunk of all of the row's chunks.
template <typename Group>
BELLHOP_HOST_DEVICE void SampleRow(const Group& group, const SampleArgs& args, int32_t index, const ChunkStats* stats,
                                   float* saved, SampleScratch* scratch) {
  const DeviceSampling& params = args.params[index];
  const RowView row{args.logits + index * args.stride, params.allow, args.vocab};
  RowStats seen = JoinChunks(group, stats, SampleChunks(args.vocab), scratch);
  DeviceSample result;
  if ((seen.flags & kRowFault) != 0 || !seen.any_finite) result.flags |= kSampleNoLogprob;
  const int32_t edits = params.biases_used + params.penalized_used;
  if (edits > args.max_edits) {
    result.flags |= kSampleTooManyEdits;
  } else {
    if (edits > 0) {
      ApplyEdits(group, params, row, saved);
      RescanRow(group, row, scratch, &seen);
    }
    if ((seen.flags & kAnyAllowed) == 0) {
      result.flags |= kSampleNothingAllowed;
    } else if ((seen.flags & kAllowedFault) != 0 || seen.best == 0) {
      result.flags |= kSampleFault;
    } else {
      result.id = params.greedy != 0 ? EntryId(seen.best) : Choose(group, row, params, EntryLogit(seen.best), scratch);
    }
    if (edits > 0) UndoEdits(group, params, row, saved);
  }
  if (group.rank() != 0) return;
  if (result.id >= 0 && (result.flags & kSampleNoLogprob) == 0) {
    result.logprob = static_cast<float>(static_cast<double>(row.logits[result.id]) - seen.log_total);
  }
  args.results[index] = result;
}

}  // namespace bellhop::decode
