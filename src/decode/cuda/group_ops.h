// Sorting, sums and maxima over arrays that a group of threads shares (cuda/signal_ops.h). Sizes are powers of two.
// Every function begins after the group has written its input and a Sync(), and ends with one.
#pragma once

#include <cstdint>

#include "cuda/signal_ops.h"

namespace bellhop::decode {

BELLHOP_HOST_DEVICE inline int32_t PowerOfTwoFrom(int32_t n) {
  int32_t size = 1;
  while (size < n) size *= 2;
  return size;
}

// The word's old value.
BELLHOP_HOST_DEVICE inline uint32_t TakeInGroup(uint32_t* word) {
#if defined(__CUDA_ARCH__)
  return atomicAdd_block(word, 1u);
#else
  return std::atomic_ref<uint32_t>(*word).fetch_add(1, std::memory_order_relaxed);
#endif
}
BELLHOP_HOST_DEVICE inline void AddWideInGroup(uint64_t* word, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd_block(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
  std::atomic_ref<uint64_t>(*word).fetch_add(value, std::memory_order_relaxed);
#endif
}

// a[0] becomes the largest.
template <typename Group, typename T>
BELLHOP_HOST_DEVICE void ReduceMax(const Group& group, T* a, int32_t n) {
  for (int32_t half = n / 2; half > 0; half /= 2) {
    for (int32_t i = group.rank(); i < half; i += group.size()) a[i] = a[i + half] > a[i] ? a[i + half] : a[i];
    group.Sync();
  }
}

// a[0] becomes the sum, always added in the same order.
template <typename Group>
BELLHOP_HOST_DEVICE void ReduceSum(const Group& group, double* a, int32_t n) {
  for (int32_t half = n / 2; half > 0; half /= 2) {
    for (int32_t i = group.rank(); i < half; i += group.size()) a[i] += a[i + half];
    group.Sync();
  }
}

// a[i] becomes a[0] + ... + a[i] (Brent and Kung).
template <typename Group>
BELLHOP_HOST_DEVICE void InclusiveScan(const Group& group, uint64_t* a, int32_t n) {
  for (int32_t stride = 1; stride < n; stride *= 2) {
    for (int32_t i = group.rank(); (i + 1) * 2 * stride <= n; i += group.size()) {
      const int32_t at = (i + 1) * 2 * stride - 1;
      a[at] += a[at - stride];
    }
    group.Sync();
  }
  for (int32_t stride = n / 4; stride > 0; stride /= 2) {
    for (int32_t i = group.rank(); (i + 1) * 2 * stride + stride <= n; i += group.size()) {
      const int32_t at = (i + 1) * 2 * stride - 1;
      a[at + stride] += a[at];
    }
    group.Sync();
  }
}

// Bitonic, largest first.
template <typename Group>
BELLHOP_HOST_DEVICE void SortDescending(const Group& group, uint64_t* a, int32_t n) {
  for (int32_t run = 2; run <= n; run *= 2) {
    for (int32_t stride = run / 2; stride > 0; stride /= 2) {
      for (int32_t i = group.rank(); i < n / 2; i += group.size()) {
        const int32_t low = 2 * i - (i & (stride - 1)), high = low + stride;
        const bool descending = (low & run) == 0;
        if ((a[low] < a[high]) == descending) {
          const uint64_t swapped = a[low];
          a[low] = a[high];
          a[high] = swapped;
        }
      }
      group.Sync();
    }
  }
}

}  // namespace bellhop::decode
