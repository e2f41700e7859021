#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "base/units.h"
#include "cuda/cuda_try.h"

namespace bellhop::cuda {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Adds what the memory was for.
Status Describe(Status status, MemoryTag tag, uint64_t bytes) {
  return status.WithContext(fmt::format("{} of {}", FormatBytes(bytes), MemoryTagName(tag)));
}

// Kernels are given host addresses, so the device must use the same ones.
Status CheckSameAddress(Device* device, void* host) {
  void* seen = nullptr;
  BELLHOP_CUDA_CHECK(device, cudaHostGetDevicePointer(&seen, host, 0));
  if (seen == host) return Status();
  return Unsupported("GPU {} sees host memory at other addresses (no unified addressing); use --miss-lane cpu",
                     device->id().value);
}

Status CheckSizes(size_t to, size_t from) {
  if (to == from) return Status();
  return InvalidArgument("copy of {} bytes to {} bytes", from, to);
}

}  // namespace

void FreeDeviceMemory(void* data) noexcept { (void)cudaFree(data); }
void FreePinnedMemory(void* data) noexcept { (void)cudaFreeHost(data); }
void UnregisterMemory(void* data) noexcept { (void)cudaHostUnregister(data); }

Result<DeviceBuffer> DeviceBuffer::Create(Device* device, uint64_t bytes, MemoryTag tag) {
  BELLHOP_TRY(device->poison().status());
  DeviceBuffer buffer;
  if (bytes > 0) {
    const Status status = CheckCuda(device, cudaMalloc(&buffer.data_, bytes), "cudaMalloc");
    if (!status.ok()) return Describe(status, tag, bytes);
  }
  buffer.size_ = bytes;
  buffer.charge_ = MemoryCharge(device->ledger(), device->id(), MemoryKind::kDevice, tag, bytes);
  return buffer;
}

Result<PinnedBuffer> PinnedBuffer::Create(Device* device, uint64_t bytes, MemoryTag tag) {
  BELLHOP_TRY(device->poison().status());
  PinnedBuffer buffer;
  if (bytes > 0) {
    constexpr unsigned kFlags = cudaHostAllocMapped | cudaHostAllocPortable;
    const Status status = CheckCuda(device, cudaHostAlloc(&buffer.data_, bytes, kFlags), "cudaHostAlloc");
    if (!status.ok()) {
      return Describe(status, tag, bytes)
          .WithContext("pinned host memory (lower --ram, or raise the limit on locked memory: ulimit -l)");
    }
    BELLHOP_TRY(CheckSameAddress(device, buffer.data_));
    std::memset(buffer.data_, 0, bytes);
  }
  buffer.size_ = bytes;
  buffer.charge_ = MemoryCharge(device->ledger(), device->id(), MemoryKind::kPinned, tag, bytes);
  return buffer;
}

Result<RegisteredHost> RegisteredHost::Create(Device* device, HostSpan<const std::byte> memory, MemoryTag tag,
                                              uint64_t piece_bytes) {
  BELLHOP_TRY(device->poison().status());
  if (piece_bytes == 0 || piece_bytes % kPageBytes != 0) {
    return InvalidArgument("registration in pieces of {} bytes: expects a multiple of {}", piece_bytes, kPageBytes);
  }
  if (!device->registers_read_only()) {
    return Unsupported("GPU {} does not register read-only memory; use pinned copies or --miss-lane cpu",
                       device->id().value);
  }
  RegisteredHost registered;
  constexpr unsigned kFlags = cudaHostRegisterMapped | cudaHostRegisterPortable | cudaHostRegisterReadOnly;
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const auto pieces = RegistrationPieces(begin, memory.size(), piece_bytes, kPageBytes);
  registered.pieces_.reserve(pieces.size());
  for (const AddressRange& piece : pieces) {
    void* at = reinterpret_cast<void*>(piece.begin);
    const Status status = CheckCuda(device, cudaHostRegister(at, piece.end - piece.begin, kFlags), "cudaHostRegister");
    if (!status.ok()) {
      return Describe(status, tag, memory.size())
          .WithContext("memory cannot be registered (use pinned copies or --miss-lane cpu)");
    }
    registered.pieces_.push_back(piece);
    BELLHOP_TRY(CheckSameAddress(device, at));
  }
  registered.memory_ = memory;
  registered.charge_ = MemoryCharge(device->ledger(), device->id(), MemoryKind::kRegistered, tag, memory.size());
  return registered;
}

Status CopyToDevice(DeviceSpan<std::byte> to, HostSpan<const std::byte> from, const Stream& stream) {
  BELLHOP_TRY(CheckSizes(to.size(), from.size()));
  BELLHOP_CUDA_CHECK(&stream.device(),
                     cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice, stream.get()));
  return Status();
}

Status CopyToHost(PinnedSpan<std::byte> to, DeviceSpan<const std::byte> from, const Stream& stream) {
  BELLHOP_TRY(CheckSizes(to.size(), from.size()));
  BELLHOP_CUDA_CHECK(&stream.device(),
                     cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToHost, stream.get()));
  return Status();
}

Status FillZero(DeviceSpan<std::byte> memory, const Stream& stream) {
  BELLHOP_CUDA_CHECK(&stream.device(), cudaMemsetAsync(memory.data(), 0, memory.size(), stream.get()));
  return Status();
}

}  // namespace bellhop::cuda
