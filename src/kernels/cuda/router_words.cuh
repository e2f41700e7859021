// How blocks of the router tell each other scores and routes: words that say themselves that they are there, so no
// fence, no counter and no second look. Upper half: not zero; lower half: a float. Who receives a word leaves a zero.
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace router {

__device__ __forceinline__ void SendWord(uint64_t* word, uint32_t upper, float lower) {
  *static_cast<volatile uint64_t*>(word) = uint64_t{upper} << 32 | __float_as_uint(lower);
}
__device__ __forceinline__ uint32_t UpperOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
__device__ __forceinline__ float LowerOf(uint64_t word) { return __uint_as_float(static_cast<uint32_t>(word)); }

// One warp, all lanes: waits for `count` words; take(index, word). None of them may be sent by this warp later.
template <int kAtOnce, typename Take>
__device__ __forceinline__ void ReceiveWords(uint64_t* words, int count, int lane, const Take& take) {
#pragma unroll 1
  for (int base = lane; base - lane < count; base += 32 * kAtOnce) {
    uint64_t got[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) got[i] = 0;
    bool all = false;
    while (!__all_sync(0xFFFFFFFFu, all)) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (base + 32 * i < count && got[i] == 0) got[i] = static_cast<const volatile uint64_t*>(words)[base + 32 * i];
      }
      all = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) all = all && (base + 32 * i >= count || got[i] != 0);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + 32 * i >= count) continue;
      words[base + 32 * i] = 0;
      take(base + 32 * i, got[i]);
    }
  }
}

// Scores of row m, before 1 / rms and bias.
__device__ __forceinline__ uint64_t* ScoreWords(const RouterArgs& args, int m) {
  return args.words + int64_t{m} * ScoreWordStride(args.experts);
}
// Of row m: `used` words of an expert plus 1 and its weight, and one of 1 / rms.
__device__ __forceinline__ uint64_t* RouteWords(const RouterArgs& args, int m) {
  return args.words + int64_t{kMaxStepRows} * ScoreWordStride(args.experts) + int64_t{m} * (args.used + 1);
}

}  // namespace router
}  // namespace bellhop::kernels
