#include "model/gpu_model.h"

namespace bellhop::model {

Result<GpuModelNeeds> PlanGpuModel(const manifest::Manifest&, const ModelSpec&, const store::ExpertStore&,
                                   const GpuModelOptions&) {
  return Unsupported("this build has no CUDA");
}

Result<std::unique_ptr<StepModel>> CreateGpuModel(const manifest::Manifest&, ModelSpec, const store::ExpertStore&,
                                                  const plan::GpuPlacement&, sys::WorkerPool*, const sys::CpuCaps&,
                                                  const GpuModelOptions&, std::vector<std::string>*) {
  return Unsupported("this build has no CUDA");
}

}  // namespace bellhop::model
