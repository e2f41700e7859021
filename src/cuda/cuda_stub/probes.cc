// The measuring kernels of a build without CUDA.
#include "cuda/cuda_stub/no_cuda.h"
#include "cuda/doorbell_probe.h"
#include "cuda/read_probe.h"

namespace bellhop::cuda {

Result<ReadProbe> ReadProbe::Create(Device* device) { return NoCuda(); }
Result<double> ReadProbe::Measure(DeviceSpan<const std::byte> memory, int passes) { return NoCuda(); }
Result<double> ReadProbe::Measure(PinnedSpan<const std::byte> memory, int passes) { return NoCuda(); }
Status ReadProbe::Start(PinnedSpan<const std::byte> memory, uint64_t piece_bytes, int pieces) { return NoCuda(); }
Result<bool> ReadProbe::Started() const { return NoCuda(); }
Result<std::vector<double>> ReadProbe::Finish() { return NoCuda(); }

Result<std::unique_ptr<DoorbellProbe>> DoorbellProbe::Create(Device* device, int32_t layers, int64_t hidden) {
  return NoCuda();
}
Status DoorbellProbe::SetRinging(bool rings) { return NoCuda(); }
Result<double> DoorbellProbe::Replay() { return NoCuda(); }

}  // namespace bellhop::cuda
