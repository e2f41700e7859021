// The doorbell's device half, continued: waiting for the sums of misses (doorbell_protocol.h, doorbell_sums.h).
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/doorbell_protocol.h"

namespace bellhop::cuda {

// One thread's part in a layer's wait for its misses, later in the same stream. Every thread takes what it needs
// itself, but only few look for it again and again: looks of a whole grid would take memory and link from the CPU, just
// while it computes. Those few look for the word that most likely is written last, and then tell the others in device
// memory. The others do look by themselves now and then, so nobody depends on anybody.
class SumWait {
 public:
  SumWait() = default;  // for nothing
  BELLHOP_HOST_DEVICE SumWait(int32_t layer, const DoorbellChannel& channel, DoorbellState* state)
      : state_(state),
        header_(channel.header),
        stride_(channel.stride),
        seq_(state->pending),
        rows_(seq_ == 0 ? 0 : state->pending_rows),
        layer_(layer),
        last_column_(static_cast<int32_t>(channel.hidden) - 1) {
    words_ = channel.sums + SumSlot(channel, seq_);
  }

  // The thread, of some row that has a miss, looks for the others: a warp of the layer at most.
  BELLHOP_HOST_DEVICE void Lead(bool leads) { leads_ = leads; }
  // The first and the last row that have a miss; -1: none.
  BELLHOP_HOST_DEVICE int32_t first_row() const {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(rows_)) - 1;
#else
    return rows_ == 0 ? -1 : std::countr_zero(rows_);
#endif
  }
  BELLHOP_HOST_DEVICE int32_t last_row() const {
#if defined(__CUDA_ARCH__)
    return 31 - __clz(static_cast<int>(rows_));
#else
    return std::bit_width(rows_) - 1;
#endif
  }

  // Some row has a miss; this row has one.
  BELLHOP_HOST_DEVICE bool any() const { return rows_ != 0; }
  BELLHOP_HOST_DEVICE bool has(int32_t row) const { return (rows_ >> row & 1u) != 0; }

  // A look at a word, to be given to Take: several can be under way at once, and while there is other work.
  BELLHOP_HOST_DEVICE uint32_t Look(int32_t row, int32_t column) const { return LoadWord(At(row, column)); }
  // Of a row that has a miss; word: what Look gave, or kNoSum. Waits for the word. False: there is no sum to add,
  // because the row or the step has failed.
  BELLHOP_HOST_DEVICE bool Take(uint32_t word, int32_t row, int32_t column, float* sum) {
    if (word == kNoSum) word = Await(At(row, column));
    Tell();
    if (word < kFirstMark) {
      *sum = FloatOfBits(word);
      return true;
    }
    if (word == kFailedMark) {
      doorbell_detail::FailRow(row, RowErrorCode::kExpert, layer_, state_);
    } else if (word != kNoSum) {
      Record(DeviceErrorCode::kService, word - kFirstMark, 0);
    }
    return false;
  }
  // One thread of the layer, when it has all its sums.
  BELLHOP_HOST_DEVICE void Finish() {
    if (!any()) return;
    state_->completed = seq_;
    if (state_->timers != 0 && start_ != 0) state_->counters.wait_ns += SignalClockNs() - start_;
  }

 private:
  BELLHOP_HOST_DEVICE const uint32_t* At(int32_t row, int32_t column) const { return words_ + row * stride_ + column; }
  BELLHOP_HOST_DEVICE void Record(DeviceErrorCode code, uint32_t detail, uint64_t waited) const {
    doorbell_detail::RecordError({code, layer_, detail, seq_, waited}, state_, header_);
  }
  BELLHOP_HOST_DEVICE void Tell() {
    if (leads_) StoreInDevice(&state_->seen, seq_);
    leads_ = false;
  }
  // kNoSum: given up.
  BELLHOP_HOST_DEVICE uint32_t Await(const uint32_t* at) {
    if (start_ == 0) start_ = SignalClockNs();
    if (leads_ && Poll(At(last_row(), last_column_), false) == kNoSum) return kNoSum;
    const bool told = leads_;
    Tell();
    return Poll(at, !told);
  }
  BELLHOP_HOST_DEVICE uint32_t Poll(const uint32_t* at, bool listens) const {
    constexpr uint32_t kLooksPerCheck = 16;  // the abort word costs a transfer of its own
    constexpr uint32_t kPausesPerLook = 256;
    for (uint32_t look = 1;; ++look) {
      for (uint32_t pause = 0; listens && pause < kPausesPerLook; ++pause) {
        if (LoadInDevice(&state_->seen) >= seq_) break;
        PollPause();
      }
      const uint32_t word = LoadWord(at);
      if (word != kNoSum) return word;
      if (look % kLooksPerCheck == 0 && GivesUp()) return kNoSum;
      PollPause();
    }
  }
  BELLHOP_HOST_DEVICE bool GivesUp() const {
    if (LoadClaimed(&state_->error.code) != DeviceErrorCode::kNone) return true;  // another thread has
    const bool aborted = LoadAcquireSystem(header_->abort) != 0;
    const uint64_t waited = SignalClockNs() - start_;
    if (!aborted && (state_->deadline_ns == 0 || waited <= state_->deadline_ns)) return false;
    Record(aborted ? DeviceErrorCode::kAborted : DeviceErrorCode::kDeadline, 0, waited);
    return true;
  }

  DoorbellState* state_ = nullptr;
  DoorbellHeader* header_ = nullptr;
  const uint32_t* words_ = nullptr;
  int64_t stride_ = 0;
  uint64_t seq_ = 0;
  uint32_t rows_ = 0;
  int32_t layer_ = 0;
  int32_t last_column_ = 0;
  bool leads_ = false;  // and has not told yet
  uint64_t start_ = 0;  // of the first word that was not there
};

struct WaitArgs {
  int32_t layer = 0;
  float* y = nullptr;  // [rows][y_stride]: sums of the hits; those of the misses are added
  int64_t y_stride = 0;
};

// Waits for the layer's misses, if Classify has asked for some, and adds their sums to y, in one addition per element.
// The threads share the columns; they need no barrier.
template <typename Group>
BELLHOP_HOST_DEVICE void WaitAndAccumulate(const Group& group, const WaitArgs& args, const DoorbellChannel& channel,
                                           DoorbellState* state) {
  constexpr int kAtOnce = 8;
#if defined(__CUDA_ARCH__)
  constexpr int32_t kLeaders = 32;  // a warp
#else
  constexpr int32_t kLeaders = 1;
#endif
  SumWait wait(args.layer, channel, state);
  if (!wait.any()) return;
  const auto hidden = static_cast<int32_t>(channel.hidden);
  // Those who take the last columns of the last row.
  const int32_t last = (wait.last_row() + 1) * hidden - 1;
  wait.Lead((last + group.size() - group.rank()) % group.size() < kLeaders);
  for (int32_t base = group.rank(); base < channel.max_rows * hidden; base += kAtOnce * group.size()) {
    uint32_t words[kAtOnce] = {};
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t at = base + i * group.size(), m = at / hidden;
      if (m < channel.max_rows && wait.has(m)) words[i] = wait.Look(m, at % hidden);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t at = base + i * group.size(), m = at / hidden;
      float sum = 0;
      if (m < channel.max_rows && wait.has(m) && wait.Take(words[i], m, at % hidden, &sum)) {
        args.y[m * args.y_stride + at % hidden] += sum;
      }
    }
  }
  if (group.rank() == 0) wait.Finish();
}

}  // namespace bellhop::cuda
