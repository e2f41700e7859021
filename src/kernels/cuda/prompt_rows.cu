// What is done with rows of a prompt's chunk between matrix products.
#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kHeldColumns = 4;  // quads of columns of a thread that are read once

// A quad's squares, with those of the other three quads of 16 columns, in the order of SumOf16. All lanes take part.
__device__ __forceinline__ float SumOfQuads(const float4& v) {
  float square[4] = {v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w};
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) {
#pragma unroll
    for (float& s : square) s += __shfl_xor_sync(~0u, s, mask);
  }
  return (square[0] + square[2]) + (square[1] + square[3]);
}

__device__ __forceinline__ void WriteQuad(const PromptNormArgs& args, int64_t row, int c, const float4& read,
                                          float inverse) {
  float4 v = read;
  if (args.norm != nullptr && c < args.hidden) {
    const float4 w = __ldg(reinterpret_cast<const float4*>(args.norm + c));
    v = make_float4(v.x * w.x * inverse, v.y * w.y * inverse, v.z * w.z * inverse, v.w * w.w * inverse);
  }
  const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
  uint16_t* const to = args.x.data + row * args.x.stride;
  *reinterpret_cast<uint32_t*>(to + PromptPosition(c)) = Bits(low);
  *reinterpret_cast<uint32_t*>(to + PromptPosition(c + 2)) = Bits(high);
  float sum = __bfloat162float(low.x) + __bfloat162float(low.y) + __bfloat162float(high.x) + __bfloat162float(high.y);
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (c % 16 == 0) args.x.sums[row * (args.x.stride / 16) + c / 16] = sum;
}

// A block a row, four columns a thread at a time. Strides are whole warps of columns, so warps stay together. 1 / rms
// has the bits that a decode step's router makes of the same row.
__global__ void __launch_bounds__(kThreads) NormKernel(PromptNormArgs args) {
  extern __shared__ float squares[];  // [hidden / 16, rounded up]
  LetNextStart();
  AwaitPrevious();
  const int thread = static_cast<int>(threadIdx.x), stride = args.x.stride;
  const int64_t row = blockIdx.x;
  const float* const values = args.values + row * args.hidden;
  auto load = [&](int c) {
    return c < args.hidden ? *reinterpret_cast<const float4*>(values + c) : make_float4(0, 0, 0, 0);
  };
  auto add = [&](int c, const float4& v) {
    const float sum = SumOfQuads(v);
    if (c % 16 == 0 && c < args.hidden) squares[c / 16] = sum;
  };
  float4 held[kHeldColumns];
#pragma unroll
  for (int i = 0; i < kHeldColumns; ++i) held[i] = load(4 * (thread + i * kThreads));
  float inverse = 1;
  if (args.norm != nullptr) {
#pragma unroll
    for (int i = 0; i < kHeldColumns; ++i) {
      const int c = 4 * (thread + i * kThreads);
      if (c < stride) add(c, held[i]);
    }
    for (int c = 4 * (thread + kHeldColumns * kThreads); c < stride; c += 4 * kThreads) add(c, load(c));
    __syncthreads();
    const RowNorm norm = {
        .squares = squares, .count = (args.hidden + 15) / 16, .hidden = args.hidden, .epsilon = args.epsilon};
    inverse = RowScale(norm, 0, thread % 32);
  }
  if (thread == 0 && args.inverse_rms != nullptr) args.inverse_rms[row] = inverse;
#pragma unroll
  for (int i = 0; i < kHeldColumns; ++i) {
    const int c = 4 * (thread + i * kThreads);
    if (c < stride) WriteQuad(args, row, c, held[i], inverse);
  }
  for (int c = 4 * (thread + kHeldColumns * kThreads); c < stride; c += 4 * kThreads) {
    WriteQuad(args, row, c, load(c), inverse);
  }
}

constexpr int kCombineThreads = 128;
constexpr int kMaxUsed = 32;

template <int kColumns>
struct Columns {
  float v[kColumns];
};
// What nobody reads again. Volatile: loads stay where they are, ahead of all sums.
template <int kColumns>
__device__ __forceinline__ Columns<kColumns> LoadLast(const float* p) {
  Columns<kColumns> got;
  if constexpr (kColumns == 1) {
    asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(got.v[0]) : "l"(p));
  } else {
    asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(got.v[0]), "=f"(got.v[1]), "=f"(got.v[2]), "=f"(got.v[3])
                 : "l"(p));
  }
  return got;
}

// Grid: columns, rows. Order and roundings are those of a decode step's fc2.
template <int kColumns>
__global__ void __launch_bounds__(kCombineThreads) CombineKernel(PromptExpertArgs args) {
  constexpr int kAtOnce = 10;
  __shared__ int32_t slots[kMaxUsed];
  __shared__ float weights[kMaxUsed];
  LetNextStart();
  AwaitPrevious();
  const int width = args.bank.down.rows, row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const int column = kColumns * (static_cast<int>(blockIdx.x) * kCombineThreads + thread);
  const int64_t at = int64_t{row} * width + column, first_route = int64_t{row} * args.used;
  if (thread < args.used) {
    slots[thread] = args.routes.slots[first_route + thread];
    weights[thread] = args.routes.weights[first_route + thread];
  }
  __syncthreads();
  if (column >= width) return;
  Columns<kColumns> value = LoadLast<kColumns>(args.residual + at), sum = {};
#pragma unroll 1
  for (int base = 0; base < args.used; base += kAtOnce) {
    Columns<kColumns> part[kAtOnce];
    // All under way at once: what is not there is read as the row's first route, and not used.
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int u = base + i < args.used && slots[base + i] >= 0 ? base + i : 0;
      part[i] = LoadLast<kColumns>(args.partial + (first_route + u) * width + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + i >= args.used || slots[base + i] < 0) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum.v[c] = __fmaf_rn(weights[base + i], part[i].v[c], sum.v[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) value.v[c] = value.v[c] + args.port_scale * sum.v[c];
  if (args.misses != nullptr) {
    const Columns<kColumns> misses = LoadLast<kColumns>(args.misses + at);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) value.v[c] = value.v[c] + args.port_scale * misses.v[c];
  }
  if constexpr (kColumns == 1)
    args.residual[at] = value.v[0];
  else
    *reinterpret_cast<float4*>(args.residual + at) = make_float4(value.v[0], value.v[1], value.v[2], value.v[3]);
}

template <int kColumns>
cudaError_t LaunchCombine(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  const auto width = static_cast<uint64_t>(args.bank.down.rows), rows = static_cast<uint64_t>(args.rows);
  constexpr uint64_t kBlockColumns = kColumns * kCombineThreads;
  return cuda::Launch(
      queue, {.name = "prompt combine", .bytes = rows * width * 4 * static_cast<uint64_t>(args.used + 2)},
      {.grid =
           dim3(static_cast<unsigned>((width + kBlockColumns - 1) / kBlockColumns), static_cast<unsigned>(args.rows)),
       .block = dim3(kCombineThreads),
       .overlap = true},
      CombineKernel<kColumns>, args);
}

}  // namespace

cudaError_t LaunchPromptNorm(const PromptNormArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows <= 0 || args.hidden <= 0 || args.hidden % 4 != 0 || args.x.terms != 1 || args.x.stride < args.hidden ||
      args.x.stride % kTermPadding != 0) {
    return cudaErrorInvalidValue;
  }
  const auto rows = static_cast<uint64_t>(args.rows);
  return cuda::Launch(
      queue,
      {.name = "prompt norm",
       .bytes = rows * (static_cast<uint64_t>(args.hidden) * 4 + static_cast<uint64_t>(args.x.stride) * 2)},
      {.grid = dim3(static_cast<unsigned>(args.rows)),
       .block = dim3(kThreads),
       .shared_bytes = static_cast<uint32_t>((args.hidden + 15) / 16 * static_cast<int>(sizeof(float))),
       .overlap = true},
      NormKernel, args);
}

cudaError_t LaunchPromptCombine(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows <= 0 || args.all_rows || args.used > kMaxUsed) return cudaErrorInvalidValue;
  return args.bank.down.rows % 4 == 0 ? LaunchCombine<4>(args, queue) : LaunchCombine<1>(args, queue);
}

}  // namespace bellhop::kernels
