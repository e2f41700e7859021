#include "kernels/cuda/prompt_gemm.cuh"

namespace bellhop::kernels {

cudaError_t LaunchKProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  switch (p.w.format) {
    case TileQ4K::kFormat: return prompt_gemm::LaunchAs<TileQ4K>(p, queue);
    case TileQ6K::kFormat: return prompt_gemm::LaunchAs<TileQ6K>(p, queue);
    case TileIq3Xxs::kFormat: return prompt_gemm::LaunchAs<TileIq3Xxs>(p, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bellhop::kernels
