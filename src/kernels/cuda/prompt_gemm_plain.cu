#include "kernels/cuda/prompt_gemm.cuh"

namespace bellhop::kernels {

// f32 as two terms: its error is below that of the activations by far.
cudaError_t LaunchPlainProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  switch (p.w.format) {
    case TileF32::kFormat: return prompt_gemm::LaunchAs<TileTwoTermF32>(p, queue);
    case TileF16::kFormat: return prompt_gemm::LaunchAs<TileF16>(p, queue);
    case TileBF16::kFormat: return prompt_gemm::LaunchAs<TileBF16>(p, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bellhop::kernels
