#include "kernels/cuda/prompt_gemm.cuh"
#include "kernels/cuda/prompt_wgmma.h"

namespace bellhop::kernels {
namespace {

bool Fits(const PromptProduct& p) {
  auto reads = [&](const DeviceMatrix& w) { return w.rows > 0 && w.cols > 0 && p.x.stride >= w.cols; };
  if (!reads(p.w) || p.rows <= 0 || p.x.terms != 1 || p.x.stride % kTermPadding != 0) return false;
  if (!p.activates) return p.y != nullptr;
  return reads(p.up) && p.up.rows == p.w.rows && p.up.cols == p.w.cols && p.hidden.terms == 1 &&
         p.hidden.stride % kTermPadding == 0 && p.hidden.stride >= p.w.rows;
}

}  // namespace

cudaError_t LaunchPromptProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  if (!Fits(p)) return cudaErrorInvalidValue;
  const bool one = !p.activates || (p.up.format == p.w.format && p.up.layout == p.w.layout);
  if (!one || p.w.layout != MatrixLayout::kTiles) return LaunchAnyProduct(p, queue);
  if (p.device.math == PromptMath::kWgmma) return LaunchWgmmaProduct(p, queue);
  switch (p.w.format) {
    case quant::WeightFormat::kF32:
    case quant::WeightFormat::kF16:
    case quant::WeightFormat::kBF16: return LaunchPlainProduct(p, queue);
    case quant::WeightFormat::kQ4K:
    case quant::WeightFormat::kQ6K:
    case quant::WeightFormat::kIQ3XXS: return LaunchKProduct(p, queue);
    default: return LaunchSimpleProduct(p, queue);
  }
}

cudaError_t LaunchPromptGemm(const PromptGemmArgs& args, const cuda::LaunchQueue& queue) {
  PromptProduct p;
  p.w = args.matrix;
  p.w_bias = args.matrix.bias;
  p.x = args.x;
  p.rows = args.rows;
  p.books = args.books;
  p.y = args.y;
  p.y_stride = args.y_stride;
  p.adds = args.adds;
  p.port_scale = args.port_scale;
  p.device = args.device;
  return LaunchPromptProduct(p, queue);
}

cudaError_t LaunchSimpleProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  switch (p.w.format) {
    case TileQ4_0::kFormat: return prompt_gemm::LaunchAs<TileQ4_0>(p, queue);
    case TileQ8_0::kFormat: return prompt_gemm::LaunchAs<TileQ8_0>(p, queue);
    case TileMxfp4::kFormat: return prompt_gemm::LaunchAs<TileMxfp4>(p, queue);
    case TileInt3::kFormat: return prompt_gemm::LaunchAs<TileInt3>(p, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bellhop::kernels
