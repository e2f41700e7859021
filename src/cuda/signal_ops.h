// What host and device need to signal each other through shared memory, with one spelling on both sides: system-scope
// flags, payload reads, a clock, and groups of threads. Compiled by nvcc for kernels and by the host compiler for the
// service and for the fake GPU of tests. No CUDA header: a build without CUDA has it too.
//
// Order (rule D1): payload writes, Sync() of the group and StoreReleaseSystem() by its leader; on the other side
// LoadAcquireSystem(), then payload reads. Or words that say themselves that they are there: LoadWord().
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>
#endif

#include "base/host_device.h"

namespace bellhop::cuda {

// Flags lie this far apart: two lines of a CPU that fetches lines in pairs, one line of a GPU's L2.
constexpr size_t kSignalLineBytes = 128;

struct alignas(kSignalLineBytes) SignalLine {
  uint64_t value = 0;
};

// Pairs with StoreReleaseSystem of the other side.
BELLHOP_HOST_DEVICE inline uint64_t LoadAcquireSystem(const SignalLine& line) {
#if defined(__CUDA_ARCH__)
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(&line.value) : "memory");
  return value;
#else
  return std::atomic_ref<uint64_t>(const_cast<SignalLine&>(line).value).load(std::memory_order_acquire);
#endif
}

// Pairs with LoadAcquireSystem of the other side.
BELLHOP_HOST_DEVICE inline void StoreReleaseSystem(SignalLine* line, uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(&line->value), "l"(value) : "memory");
#else
  std::atomic_ref<uint64_t>(line->value).store(value, std::memory_order_release);
#endif
}

// A word that the other side may be writing, past caches that may hold an older value. No order with other words is
// implied on a device; the host's acquire tells ThreadSanitizer what the writer did before.
BELLHOP_HOST_DEVICE inline uint32_t LoadWord(const uint32_t* p) {
#if defined(__CUDA_ARCH__)
  uint32_t value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(p));
  return value;
#else
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(*p)).load(std::memory_order_acquire);
#endif
}
// A word through which threads of one device tell each other where they are.
BELLHOP_HOST_DEVICE inline uint64_t LoadInDevice(const uint64_t* p) {
#if defined(__CUDA_ARCH__)
  uint64_t value;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(p));
  return value;
#else
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(*p)).load(std::memory_order_relaxed);
#endif
}
BELLHOP_HOST_DEVICE inline void StoreInDevice(uint64_t* p, uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
#else
  std::atomic_ref<uint64_t>(*p).store(value, std::memory_order_relaxed);
#endif
}
BELLHOP_HOST_DEVICE inline float FloatOfBits(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(word);
#else
  return std::bit_cast<float>(word);
#endif
}

// Nanoseconds since an arbitrary start, for deadlines. A GPU advances it in steps of up to a microsecond or so.
BELLHOP_HOST_DEVICE inline uint64_t SignalClockNs() {
#if defined(__CUDA_ARCH__)
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
#endif
}

// Between two looks at a flag.
BELLHOP_HOST_DEVICE inline void PollPause() {
#if defined(__CUDA_ARCH__)
  __nanosleep(64);
#else
  std::this_thread::yield();
#endif
}

// The word's value becomes `value` if it was `free`; true for the one thread of the device that did it.
template <typename T>
BELLHOP_HOST_DEVICE inline bool ClaimWord(T* word, T free, T value) {
  static_assert(sizeof(T) == sizeof(uint32_t));
#if defined(__CUDA_ARCH__)
  const auto before = static_cast<uint32_t>(free);
  return atomicCAS(reinterpret_cast<uint32_t*>(word), before, static_cast<uint32_t>(value)) == before;
#else
  return std::atomic_ref<T>(*word).compare_exchange_strong(free, value, std::memory_order_relaxed);
#endif
}
// A word that other threads may claim.
template <typename T>
BELLHOP_HOST_DEVICE inline T LoadClaimed(const T* word) {
#if defined(__CUDA_ARCH__)
  return static_cast<T>(*reinterpret_cast<const volatile uint32_t*>(word));
#else
  return std::atomic_ref<T>(const_cast<T&>(*word)).load(std::memory_order_relaxed);
#endif
}

// Words that the threads of one group share (shared memory in a kernel). Read them after Sync().
BELLHOP_HOST_DEVICE inline void AddInGroup(uint32_t* word, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd_block(word, value);
#else
  std::atomic_ref<uint32_t>(*word).fetch_add(value, std::memory_order_relaxed);
#endif
}
BELLHOP_HOST_DEVICE inline void OrInGroup(uint32_t* word, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicOr_block(word, value);
#else
  std::atomic_ref<uint32_t>(*word).fetch_or(value, std::memory_order_relaxed);
#endif
}
// A total that nobody reads while kernels run: the thread does not wait for the memory.
BELLHOP_HOST_DEVICE inline void AddToTotal(uint64_t* total, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(value));
#else
  *total += value;
#endif
}
// The word's old value.
BELLHOP_HOST_DEVICE inline uint32_t ExchangeInGroup(uint32_t* word, uint32_t value) {
#if defined(__CUDA_ARCH__)
  return atomicExch_block(word, value);
#else
  return std::atomic_ref<uint32_t>(*word).exchange(value, std::memory_order_relaxed);
#endif
}

// A group is a type with rank() in [0, size()), size() and Sync(): a barrier after which every thread sees what the
// others wrote before it. The leader is rank 0. This one is a thread by itself.
struct SoloGroup {
  BELLHOP_HOST_DEVICE int32_t rank() const { return 0; }
  BELLHOP_HOST_DEVICE int32_t size() const { return 1; }
  BELLHOP_HOST_DEVICE void Sync() const {}
};

#if defined(__CUDACC__)
// The threads of a warp.
struct WarpGroup {
  __device__ int32_t rank() const { return static_cast<int32_t>(threadIdx.x % 32); }
  __device__ int32_t size() const { return 32; }
  __device__ void Sync() const { __syncwarp(); }
};
// All threads of a one-dimensional block.
struct BlockGroup {
  __device__ int32_t rank() const { return static_cast<int32_t>(threadIdx.x); }
  __device__ int32_t size() const { return static_cast<int32_t>(blockDim.x); }
  __device__ void Sync() const { __syncthreads(); }
};
#endif

}  // namespace bellhop::cuda
