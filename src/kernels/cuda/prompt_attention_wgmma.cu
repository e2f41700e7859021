#include "kernels/cuda/prompt_attention_wgmma.cuh"

#include "kernels/cuda/prompt_attention_wgmma.h"

namespace bellhop::kernels {
namespace prompt_attention_wgmma {
namespace {

template <typename S>
cudaError_t LaunchAs(const PromptAttendArgs& args, const cuda::LaunchCost& cost, const cuda::LaunchQueue& queue) {
  constexpr int kBytes = kSharedBytes<S>;
  static_assert(kBytes <= 227 * 1024);
  const cudaError_t error =
      cudaFuncSetAttribute(WgmmaAttention<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t rows = int64_t{args.rows} * (args.heads / args.kv.kv_heads);
  const int64_t items = (rows + kRows - 1) / kRows * args.kv.kv_heads;
  return cuda::Launch(
      queue, cost,
      {.grid = dim3(static_cast<unsigned>(items < args.device.multiprocessors ? items : args.device.multiprocessors)),
       .block = dim3(kThreads),
       .shared_bytes = kBytes,
       .overlap = true,
       .shared_carveout = 100},
      WgmmaAttention<S>, args);
}

template <typename T>
cudaError_t LaunchOfType(const PromptAttendArgs& args, const cuda::LaunchCost& cost, const cuda::LaunchQueue& queue) {
  switch (args.kv.key_dim) {
    case 64: return LaunchAs<Shape<T, 64>>(args, cost, queue);
    case 128: return LaunchAs<Shape<T, 128>>(args, cost, queue);
    case 256: return LaunchAs<Shape<T, 256>>(args, cost, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace prompt_attention_wgmma

cudaError_t LaunchWgmmaAttention(const PromptAttendArgs& args, const cuda::LaunchCost& cost,
                                 const cuda::LaunchQueue& queue) {
  using namespace prompt_attention_wgmma;
  if (!AttendsWithWgmma(args) || args.device.multiprocessors <= 0) return cudaErrorInvalidValue;
  return args.kv.type == KvType::kF16 ? LaunchOfType<__half>(args, cost, queue)
                                      : LaunchOfType<__nv_bfloat16>(args, cost, queue);
}

}  // namespace bellhop::kernels
