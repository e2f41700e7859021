// How the block that chooses a step's experts asks the CPU for the misses (cuda/doorbell_protocol.h).
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace router {

// `count` threads of the block from `first` on, whole warps.
struct RingThreads {
  int first, count;
  __device__ int32_t rank() const { return static_cast<int32_t>(threadIdx.x) - first; }
  __device__ int32_t size() const { return count; }
  __device__ void Sync() const { asm volatile("bar.sync 1, %0;" ::"r"(count) : "memory"); }
};

// Those threads, after Classify has said so: the experts' input goes from the residual straight to the channel. One of
// them then waits until it is there; nobody else does. norms: 1 / rms of the rows.
__device__ __forceinline__ void RingMisses(const RouterArgs& args, const cuda::ClassifyArgs& classified,
                                           const cuda::ClassifyScratch& classify, const float* norms,
                                           const RingThreads& threads) {
  constexpr int kAtOnce = 8;
  const int quads = args.x.hidden / 4, size = threads.size();
  cuda::Ring(threads, classified, args.channel, *args.doorbell, classify, [&](uint32_t mask) {
    for (int base = threads.rank(); base < classified.rows * quads; base += kAtOnce * size) {
      const auto has = [&](int at) { return at < classified.rows * quads && (mask >> (at / quads) & 1u) != 0; };
      float4 x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = base + i * size;
        if (has(at)) x[i] = reinterpret_cast<const float4*>(args.x.values)[at];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = base + i * size, m = at / quads, quad = at % quads;
        if (!has(at)) continue;
        const float4 gain = reinterpret_cast<const float4*>(args.x.norm)[quad];
        const float scale = norms[m];
        reinterpret_cast<float4*>(args.channel.x + m * args.channel.stride)[quad] = make_float4(
            x[i].x * gain.x * scale, x[i].y * gain.y * scale, x[i].z * gain.z * scale, x[i].w * gain.w * scale);
      }
    }
  });
}

}  // namespace router
}  // namespace bellhop::kernels
