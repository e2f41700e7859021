#include "model/gpu_layer_bench.h"

namespace bellhop::model {

Result<std::unique_ptr<GpuLayerBench>> CreateGpuLayerBench(const store::ExpertStore&, const plan::GpuPlacement&,
                                                           cuda::Device*, sys::WorkerPool*, const sys::CpuCaps&,
                                                           const GpuLayerBenchOptions&, std::vector<std::string>*) {
  return Unsupported("this build has no CUDA");
}

}  // namespace bellhop::model
