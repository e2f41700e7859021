// The sums of misses in a doorbell channel. A word says itself whether it is there: until the CPU has written it, it is
// kNoSum. So those who wait for a sum look at the sum, and there is no flag to be seen first, and nothing to be fenced.
//
// A request has one of kSumSlots places, by its number. Before the CPU answers request n, the place of request n - 2 is
// clear again (nobody reads it: the GPU had its sums before it asked for n - 1), so those of n + 1 and n + 2 are.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "cuda/doorbell_protocol.h"

namespace bellhop::cuda {

// Writes each word once, for a GPU that may be reading it. NaNs that would be marks become another NaN.
void PublishSums(const float* sums, int64_t n, uint32_t* words);
// A mark in place of sums.
void PublishMark(uint32_t mark, int64_t n, uint32_t* words);

// The CPU's side, by one thread but for the words themselves.
class DoorbellSums {
 public:
  // Clears all of it.
  explicit DoorbellSums(const DoorbellChannel& channel);

  // [rows, hidden]: where the sums of a request go. Rows without a miss may stay as they are.
  MatView<uint32_t> Of(uint64_t seq, int32_t rows);
  // What is not there yet will not come, and the device is told so.
  void Refuse(uint64_t seq, ServiceError error);
  // After the sums of a request are published.
  void Answered(uint64_t seq);

 private:
  uint32_t* Slot(uint64_t seq) const { return channel_.sums + SumSlot(channel_, seq); }
  void Clear(uint64_t seq);

  const DoorbellChannel channel_;
  int32_t written_[kSumSlots] = {};  // rows that may hold words
};

}  // namespace bellhop::cuda
