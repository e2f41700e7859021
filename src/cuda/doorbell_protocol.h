// The doorbell's device half: how a decode step on the GPU hands the misses of a layer to the CPU and takes the sums
// back. Kernels and the fake GPU of tests execute these functions; the host half is moe/doorbell_service.h, and
// cuda/doorbell_channel.h makes the memory. docs/decisions/0011-doorbell-and-placement.md says why it is as it is.
//
// Per layer, in stream order: ClassifyAndRing (which rings at most once), the hits, and whoever completes the rows
// takes the sums that it needs (doorbell_wait.h).
//
//   GPU                                        CPU
//   payload and header, req_seq = n       ->   sees n, computes
//   waits for each word that it adds      <-   sums, word by word (doorbell_sums.h)
//
// One request is outstanding at a time. Sequence numbers count rings; they live in device memory and so go on over
// replays of a graph. Whether a layer rang is decided once, by ClassifyAndRing, and stands in DoorbellState::pending
// (rule D2). A layer without misses touches no memory of the channel.
#pragma once

#include <cstdint>

#include "cuda/signal_ops.h"

namespace bellhop::cuda {

constexpr int32_t kDoorbellMaxRows = 32;  // rows of a step, one bit each in row masks

// What a route's entry says where it names no slot.
constexpr int32_t kMissRoute = -1;
constexpr int32_t kDroppedRoute = -2;  // of a row that has failed: nobody computes it

// Ends the step; the engine is poisoned.
enum class DeviceErrorCode : uint32_t {
  kNone = 0,
  kDeadline,  // the CPU did not answer in time
  kAborted,   // the host asked to stop
  kOverflow,  // more rows or routes than the channel holds, or a ring while another is outstanding
  kService,   // the CPU refused the request; detail: ServiceError
};

// Ends one row's sequence; the step goes on.
enum class RowErrorCode : uint32_t {
  kNone = 0,
  kRouter,  // a routing weight that is no number, or an expert id that the layer does not have
  kExpert,  // an expert that the row needs could not be read
};

enum class ServiceError : uint32_t { kNone = 0, kBadRequest, kFailed };

// Words of sums are the bits of a float or one of these marks, which are NaNs that no arithmetic makes.
constexpr uint32_t kFirstMark = 0xFFFFFFF0u;
constexpr uint32_t kFailedMark = 0xFFFFFFFEu;  // an expert of the row could not be read
constexpr uint32_t kNoSum = 0xFFFFFFFFu;       // not written yet
constexpr uint32_t RefusedMark(ServiceError error) { return kFirstMark + static_cast<uint32_t>(error); }
// Places for the sums of so many requests, one after the other: at least three (doorbell_sums.h).
constexpr uint32_t kSumSlots = 4;

struct DeviceError {
  DeviceErrorCode code = DeviceErrorCode::kNone;
  int32_t layer = -1;
  uint32_t detail = 0;
  uint64_t seq = 0;
  uint64_t waited_ns = 0;
};

struct RowError {
  RowErrorCode code = RowErrorCode::kNone;
  int32_t layer = -1;
};

// Always on, read on demand. In device memory, never in the channel.
struct DoorbellCounters {
  uint64_t hits = 0, misses = 0;  // routes
  uint64_t experts = 0;           // distinct ones of each step and layer, where ClassifyArgs::last_steps is given
  uint64_t dropped = 0;           // routes of rows that had failed
  uint64_t rings = 0;             // layers that asked for misses
  uint64_t zero_cold = 0;         // layers without
  uint64_t wait_ns = 0;           // if DoorbellState::timers
};

// One per stream, in device memory; zeroed once.
struct DoorbellState {
  uint64_t steps = 0;
  uint64_t rings = 0;         // sequence number of the last ring
  uint64_t completed = 0;     // of the last one that was waited for
  uint64_t pending = 0;       // what waits of the last classified layer have to wait for; 0: nothing
  uint64_t seen = 0;          // the last one of which sums have been seen
  uint32_t pending_rows = 0;  // rows with a miss
  uint32_t timers = 0;
  uint64_t deadline_ns = 0;  // of one wait; 0: none
  DeviceError error;         // the first one; no ring and no wait after it
  RowError rows[kDoorbellMaxRows];
  DoorbellCounters counters;
};

// Written by the GPU before req_seq.
struct alignas(kSignalLineBytes) DoorbellRequest {
  uint64_t seq = 0;
  uint64_t placement = 0;  // version that the routes were classified with
  int32_t layer = -1;
  int32_t rows = 0;
  int32_t used = 0;  // routes of a row
  uint32_t miss_rows = 0;
  uint32_t misses = 0;
};

struct DoorbellHeader {
  SignalLine req_seq;   // GPU → CPU
  SignalLine done_seq;  // the last one answered, for a later service
  SignalLine abort;     // CPU → GPU: not 0: stop waiting
  SignalLine failed;    // GPU → CPU: not 0: `error` is valid
  DoorbellRequest request;
  DeviceError error;
};

// Where the parts of a channel are, in pinned host memory that both sides see at these addresses.
struct DoorbellChannel {
  DoorbellHeader* header = nullptr;
  int32_t* ids = nullptr;    // [max_rows * max_used], row m begins at m * used of the request; negative: no miss
  float* weights = nullptr;  // alike
  float* x = nullptr;        // [max_rows][stride]: rows with a miss
  uint32_t* sums = nullptr;  // [kSumSlots][max_rows][stride]: their sums
  int32_t max_rows = 0, max_used = 0;
  int64_t hidden = 0, stride = 0;
};

// Where the sums of a request begin in DoorbellChannel::sums.
BELLHOP_HOST_DEVICE inline int64_t SumSlot(const DoorbellChannel& channel, uint64_t seq) {
  return static_cast<int64_t>(seq % kSumSlots) * channel.max_rows * channel.stride;
}

// rows * used routes; all pointers are device memory.
struct ClassifyArgs {
  int32_t layer = 0, rows = 0, used = 0, experts = 0;
  const int32_t* ids = nullptr;             // [rows][used]
  const float* weights = nullptr;           // [rows][used]
  const int32_t* expert_to_slot = nullptr;  // [experts], negative: a miss
  uint64_t placement = 0;                   // version of that table
  const float* x = nullptr;                 // [rows][x_stride]
  int64_t x_stride = 0;
  int32_t* route_slots = nullptr;    // out [rows][used]: slot, kMissRoute or kDroppedRoute
  uint32_t* route_counts = nullptr;  // [experts], += 1 for each route; null: none
  uint32_t* last_steps = nullptr;    // [experts], zeroed once: the step that chose it last; null: not counted
  bool ring_misses = true;           // false: the GPU computes them, nobody is asked
};

struct ClassifyScratch {
  uint32_t hits, misses, experts, miss_rows, bad_rows, ring;
};

namespace doorbell_detail {

struct alignas(16) Quad {
  float v[4];
};
BELLHOP_HOST_DEVICE inline bool QuadAligned(const void* a, const void* b) {
  return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) & (alignof(Quad) - 1)) == 0;
}
// to = from in stores of 16 bytes where both allow it.
template <typename Group>
BELLHOP_HOST_DEVICE void CopyRow(const Group& group, const float* from, int64_t n, float* to) {
  const int64_t quads = QuadAligned(from, to) ? n / 4 : 0;
  for (int64_t i = group.rank(); i < quads; i += group.size()) {
    reinterpret_cast<Quad*>(to)[i] = reinterpret_cast<const Quad*>(from)[i];
  }
  for (int64_t i = 4 * quads + group.rank(); i < n; i += group.size()) to[i] = from[i];
}

BELLHOP_HOST_DEVICE inline bool IsNumber(float v) { return v - v == 0.0f; }

// Any thread. Only the first error counts; the host's copy follows in the channel.
BELLHOP_HOST_DEVICE inline void RecordError(const DeviceError& error, DoorbellState* state, DoorbellHeader* header) {
  if (!ClaimWord(&state->error.code, DeviceErrorCode::kNone, error.code)) return;
  state->error.layer = error.layer;
  state->error.detail = error.detail;
  state->error.seq = error.seq;
  state->error.waited_ns = error.waited_ns;
  header->error = error;
  StoreReleaseSystem(&header->failed, 1);
}

// Any thread.
BELLHOP_HOST_DEVICE inline void FailRow(int32_t row, RowErrorCode code, int32_t layer, DoorbellState* state) {
  if (ClaimWord(&state->rows[row].code, RowErrorCode::kNone, code)) state->rows[row].layer = layer;
}

BELLHOP_HOST_DEVICE inline void FailRows(uint32_t mask, RowErrorCode code, int32_t layer, DoorbellState* state) {
  if (mask == 0) return;
  for (int32_t m = 0; m < kDoorbellMaxRows; ++m) {
    if ((mask >> m & 1u) != 0) FailRow(m, code, layer, state);
  }
}

// Rows whose routes cannot be used, earlier failures included, as bits of scratch->bad_rows.
template <typename Group>
BELLHOP_HOST_DEVICE void FindBadRows(const Group& group, const ClassifyArgs& args, const DoorbellState& state,
                                     ClassifyScratch* scratch) {
  for (int32_t r = group.rank(); r < args.rows * args.used; r += group.size()) {
    const int32_t id = args.ids[r];
    if (id < 0 || id >= args.experts || !IsNumber(args.weights[r])) OrInGroup(&scratch->bad_rows, 1u << r / args.used);
  }
  for (int32_t m = group.rank(); m < args.rows; m += group.size()) {
    if (state.rows[m].code != RowErrorCode::kNone) OrInGroup(&scratch->bad_rows, 1u << m);
  }
}

template <typename Group>
BELLHOP_HOST_DEVICE void Split(const Group& group, const ClassifyArgs& args, const DoorbellState& state,
                               ClassifyScratch* scratch) {
  const auto step = static_cast<uint32_t>(state.steps);
  uint32_t hits = 0, misses = 0, experts = 0, miss_rows = 0;
  for (int32_t r = group.rank(); r < args.rows * args.used; r += group.size()) {
    const int32_t row = r / args.used;
    if ((scratch->bad_rows >> row & 1u) != 0) {
      args.route_slots[r] = kDroppedRoute;
      continue;
    }
    const int32_t id = args.ids[r];
    const int32_t slot = args.expert_to_slot[id];
    args.route_slots[r] = slot >= 0 ? slot : kMissRoute;
    if (args.route_counts != nullptr) AddInGroup(&args.route_counts[id], 1);
    if (args.last_steps != nullptr && ExchangeInGroup(&args.last_steps[id], step) != step) ++experts;
    if (slot >= 0) {
      ++hits;
    } else {
      ++misses;
      miss_rows |= 1u << row;
    }
  }
  if (hits != 0) AddInGroup(&scratch->hits, hits);
  if (misses != 0) AddInGroup(&scratch->misses, misses);
  if (experts != 0) AddInGroup(&scratch->experts, experts);
  if (miss_rows != 0) OrInGroup(&scratch->miss_rows, miss_rows);
}

// Leader: whether to ring, and everything that says so.
BELLHOP_HOST_DEVICE inline void Decide(const ClassifyArgs& args, DoorbellState* state, const DoorbellChannel& channel,
                                       ClassifyScratch* scratch) {
  FailRows(scratch->bad_rows, RowErrorCode::kRouter, args.layer, state);
  DoorbellCounters& counters = state->counters;
  AddToTotal(&counters.hits, scratch->hits);
  AddToTotal(&counters.misses, scratch->misses);
  AddToTotal(&counters.experts, scratch->experts);
  AddToTotal(&counters.dropped, static_cast<uint32_t>(args.rows * args.used) - scratch->hits - scratch->misses);
  state->pending = 0;
  scratch->ring = 0;
  if (scratch->misses == 0) {
    AddToTotal(&counters.zero_cold, 1);
    return;
  }
  if (!args.ring_misses || state->error.code != DeviceErrorCode::kNone) return;
  if (state->completed != state->rings) {
    RecordError({DeviceErrorCode::kOverflow, args.layer, 0, state->rings, 0}, state, channel.header);
    return;
  }
  AddToTotal(&counters.rings, 1);
  ++state->rings;
  state->pending = state->rings;
  state->pending_rows = scratch->miss_rows;
  scratch->ring = 1;
}

template <typename Group, typename WriteRows>
BELLHOP_HOST_DEVICE void WritePayload(const Group& group, const ClassifyArgs& args, const DoorbellState& state,
                                      const DoorbellChannel& channel, const ClassifyScratch& scratch,
                                      const WriteRows& write_rows) {
  for (int32_t r = group.rank(); r < args.rows * args.used; r += group.size()) {
    channel.ids[r] = args.route_slots[r] == kMissRoute ? args.ids[r] : -1;
    channel.weights[r] = args.weights[r];
  }
  write_rows(scratch.miss_rows);
  if (group.rank() != 0) return;
  DoorbellRequest& request = channel.header->request;
  request.seq = state.rings;
  request.placement = args.placement;
  request.layer = args.layer;
  request.rows = args.rows;
  request.used = args.used;
  request.miss_rows = scratch.miss_rows;
  request.misses = scratch.misses;
}

}  // namespace doorbell_detail

// First thing in a step. Rows that failed in an earlier step belong to other sequences now.
template <typename Group>
BELLHOP_HOST_DEVICE void BeginDeviceStep(const Group& group, DoorbellState* state) {
  if (group.rank() == 0) ++state->steps;
  for (int32_t m = group.rank(); m < kDoorbellMaxRows; m += group.size()) state->rows[m] = RowError{};
  group.Sync();
}

// Splits the routes of a layer into hits and misses. True: the layer must ring, and everything but the payload says so.
// One group; every thread of it calls this with the same arguments and gets the same answer.
template <typename Group>
BELLHOP_HOST_DEVICE bool Classify(const Group& group, const ClassifyArgs& args, const DoorbellChannel& channel,
                                  DoorbellState* state, ClassifyScratch* scratch) {
  namespace detail = doorbell_detail;
  const bool fits = args.rows <= channel.max_rows && args.used <= channel.max_used;
  if (group.rank() == 0) {
    *scratch = ClassifyScratch{};
    if (!fits) {
      state->pending = 0;
      detail::RecordError({DeviceErrorCode::kOverflow, args.layer, 0, state->rings, 0}, state, channel.header);
    }
  }
  if (!fits) {
    for (int32_t r = group.rank(); r < args.rows * args.used; r += group.size()) args.route_slots[r] = kDroppedRoute;
    group.Sync();
    return false;
  }
  group.Sync();
  detail::FindBadRows(group, args, *state, scratch);
  group.Sync();
  detail::Split(group, args, *state, scratch);
  group.Sync();
  if (group.rank() == 0) detail::Decide(args, state, channel, scratch);
  group.Sync();
  return scratch->ring != 0;
}

// A group of the same block, after Classify has said so. write_rows(mask): writes these rows of the input to the
// channel, all threads of the group taking part.
template <typename Group, typename WriteRows>
BELLHOP_HOST_DEVICE void Ring(const Group& group, const ClassifyArgs& args, const DoorbellChannel& channel,
                              const DoorbellState& state, const ClassifyScratch& scratch, const WriteRows& write_rows) {
  doorbell_detail::WritePayload(group, args, state, channel, scratch, write_rows);
  group.Sync();
  if (group.rank() == 0) StoreReleaseSystem(&channel.header->req_seq, state.rings);
}

template <typename Group>
BELLHOP_HOST_DEVICE void ClassifyAndRing(const Group& group, const ClassifyArgs& args, const DoorbellChannel& channel,
                                         DoorbellState* state, ClassifyScratch* scratch) {
  if (!Classify(group, args, channel, state, scratch)) return;
  Ring(group, args, channel, *state, *scratch, [&](uint32_t mask) {
    for (int32_t m = 0; m < args.rows; ++m) {
      if ((mask >> m & 1u) == 0) continue;
      doorbell_detail::CopyRow(group, args.x + m * args.x_stride, channel.hidden, channel.x + m * channel.stride);
    }
  });
}

}  // namespace bellhop::cuda
