// Devices, streams, graphs and memory of a build without CUDA: no device can be opened, so nothing else is reached.
#include "cuda/cuda_stub/no_cuda.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/nvtx.h"
#include "cuda/stream.h"

namespace bellhop::cuda {

Result<std::unique_ptr<Device>> Device::Open(DeviceId id, MemoryLedger* ledger) { return NoCuda(); }
Status Device::MakeCurrent() { return NoCuda(); }

void DestroyHandle(CUstream_st* handle) noexcept {}
void DestroyHandle(CUevent_st* handle) noexcept {}
void DestroyHandle(CUgraph_st* handle) noexcept {}
void DestroyHandle(CUgraphExec_st* handle) noexcept {}

Result<Stream> Stream::Create(Device* device, Priority priority) { return NoCuda(); }
Status Stream::WaitFor(const Event& event) const { return NoCuda(); }
Status Stream::Synchronize() const { return NoCuda(); }

Result<Event> Event::Create(Device* device, Kind kind) { return NoCuda(); }
Status Event::Record(const Stream& stream) const { return NoCuda(); }
Result<bool> Event::IsDone() const { return NoCuda(); }
Status Event::Synchronize() const { return NoCuda(); }
Result<double> Event::MillisecondsSince(const Event& start) const { return NoCuda(); }

Result<size_t> Graph::NodeCount() const { return NoCuda(); }
Status Graph::BeginCapture(const Stream& stream) { return NoCuda(); }
Result<Graph> Graph::EndCapture(const Stream& stream) { return NoCuda(); }
Result<GraphExec> GraphExec::Create(const Graph& graph, const Stream& stream) { return NoCuda(); }
Status GraphExec::Launch(const Stream& stream) const { return NoCuda(); }

void FreeDeviceMemory(void* data) noexcept {}
void FreePinnedMemory(void* data) noexcept {}
void UnregisterMemory(void* data) noexcept {}

Result<DeviceBuffer> DeviceBuffer::Create(Device* device, uint64_t bytes, MemoryTag tag) { return NoCuda(); }
Result<PinnedBuffer> PinnedBuffer::Create(Device* device, uint64_t bytes, MemoryTag tag) { return NoCuda(); }
Result<RegisteredHost> RegisteredHost::Create(Device* device, HostSpan<const std::byte> memory, MemoryTag tag,
                                              uint64_t piece_bytes) {
  return NoCuda();
}
Status CopyToDevice(DeviceSpan<std::byte> to, HostSpan<const std::byte> from, const Stream& stream) { return NoCuda(); }
Status CopyToHost(PinnedSpan<std::byte> to, DeviceSpan<const std::byte> from, const Stream& stream) { return NoCuda(); }
Status FillZero(DeviceSpan<std::byte> memory, const Stream& stream) { return NoCuda(); }

NvtxRange::NvtxRange(const char* name, uint64_t bytes) {}
NvtxRange::~NvtxRange() = default;

}  // namespace bellhop::cuda
