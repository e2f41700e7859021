// What is done with rows of a prompt's chunk between matrix products.
#include "cuda/launch.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float WarpSum(float v) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
  return v;
}

// A block a row, four columns a thread at a time.
__global__ void __launch_bounds__(kThreads) NormKernel(PromptNormArgs args) {
  __shared__ float sums[kThreads / 32];
  LetNextStart();
  AwaitPrevious();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const float* const values = args.values + row * args.hidden;
  float inverse = 1;
  if (args.norm != nullptr) {
    float sum = 0;
    for (int c = 4 * thread; c < args.hidden; c += 4 * kThreads) {
      const float4 v = *reinterpret_cast<const float4*>(values + c);
      sum = __fmaf_rn(v.x, v.x, sum);
      sum = __fmaf_rn(v.y, v.y, sum);
      sum = __fmaf_rn(v.z, v.z, sum);
      sum = __fmaf_rn(v.w, v.w, sum);
    }
    sum = WarpSum(sum);
    if (thread % 32 == 0) sums[thread / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (const float s : sums) sum += s;
    inverse = 1.0f / sqrtf(sum / static_cast<float>(args.hidden) + args.epsilon);
  }
  if (thread == 0 && args.inverse_rms != nullptr) args.inverse_rms[row] = inverse;
  // Strides are whole warps of columns.
  for (int c = 4 * thread; c < args.x.stride; c += 4 * kThreads) {
    float4 v = make_float4(0, 0, 0, 0);
    if (c < args.hidden) {
      v = *reinterpret_cast<const float4*>(values + c);
      if (args.norm != nullptr) {
        const float4 w = __ldg(reinterpret_cast<const float4*>(args.norm + c));
        v = make_float4(v.x * w.x * inverse, v.y * w.y * inverse, v.z * w.z * inverse, v.w * w.w * inverse);
      }
    }
    const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    uint16_t* const to = args.x.data + row * args.x.stride;
    *reinterpret_cast<uint32_t*>(to + PromptPosition(c)) = Bits(low);
    *reinterpret_cast<uint32_t*>(to + PromptPosition(c + 2)) = Bits(high);
    float sum = __bfloat162float(low.x) + __bfloat162float(low.y) + __bfloat162float(high.x) + __bfloat162float(high.y);
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (thread % 4 == 0) args.x.sums[row * (args.x.stride / 16) + c / 16] = sum;
  }
}

// Grid: columns, rows. Order and roundings are those of a decode step's fc2.
__global__ void __launch_bounds__(kThreads) CombineKernel(PromptExpertArgs args) {
  LetNextStart();
  AwaitPrevious();
  const int width = args.bank.down.rows, row = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= width) return;
  const int64_t at = int64_t{row} * width + column;
  float sum = 0;
  for (int u = 0; u < args.used; ++u) {
    const int64_t route = int64_t{row} * args.used + u;
    if (args.routes.slots[route] < 0) continue;
    sum = __fmaf_rn(args.routes.weights[route], args.partial[route * width + column], sum);
  }
  float value = args.residual[at] + args.port_scale * sum;
  if (args.misses != nullptr) value = value + args.port_scale * args.misses[at];
  args.residual[at] = value;
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
      {.grid = dim3(static_cast<unsigned>(args.rows)), .block = dim3(kThreads), .overlap = true}, NormKernel, args);
}

cudaError_t LaunchPromptCombine(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows <= 0 || args.all_rows) return cudaErrorInvalidValue;
  const auto width = static_cast<uint64_t>(args.bank.down.rows), rows = static_cast<uint64_t>(args.rows);
  return cuda::Launch(
      queue, {.name = "prompt combine", .bytes = rows * width * 4 * static_cast<uint64_t>(args.used + 2)},
      {.grid = dim3(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(args.rows)),
       .block = dim3(kThreads),
       .overlap = true},
      CombineKernel, args);
}

}  // namespace bellhop::kernels
