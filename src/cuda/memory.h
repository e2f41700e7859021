// Memory that a GPU reads: on the device, pinned on the host, or registered where it lies. Each buffer is charged to
// the device's ledger under its tag. None is made or freed while a step is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory_tag.h"
#include "base/span.h"
#include "base/status.h"
#include "cuda/device.h"
#include "cuda/memory_ledger.h"
#include "cuda/stream.h"

namespace bellhop::cuda {

void FreeDeviceMemory(void* data) noexcept;
void FreePinnedMemory(void* data) noexcept;
void UnregisterMemory(void* data) noexcept;

// What buffers that own their memory share.
template <MemorySpace kSpace, void (*kFree)(void*) noexcept>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(OwnedMemory&& other) noexcept { *this = std::move(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(charge_, other.charge_);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) kFree(data_);
  }
  TaggedSpan<std::byte, kSpace> bytes() const { return {static_cast<std::byte*>(data_), size_}; }
  template <typename T>
  TaggedSpan<T, kSpace> as() const {
    return {static_cast<T*>(data_), size_ / sizeof(T)};
  }
  size_t size() const { return size_; }
  MemoryTag tag() const { return charge_.tag(); }

 protected:
  void* data_ = nullptr;
  size_t size_ = 0;
  MemoryCharge charge_;
};

// Contents are indeterminate. Aligned to 256 bytes at least. Zero bytes give an empty buffer.
class DeviceBuffer : public OwnedMemory<MemorySpace::kDevice, FreeDeviceMemory> {
 public:
  // kOutOfMemory names tag and size.
  static Result<DeviceBuffer> Create(Device* device, uint64_t bytes, MemoryTag tag);
};

// Page-locked and mapped: kernels use the same address. Aligned to a page. Zeroed.
class PinnedBuffer : public OwnedMemory<MemorySpace::kPinned, FreePinnedMemory> {
 public:
  static Result<PinnedBuffer> Create(Device* device, uint64_t bytes, MemoryTag tag);
};

// Half-open range of addresses.
struct AddressRange {
  uintptr_t begin = 0, end = 0;
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};
// The pages of [begin, begin + bytes), cut into pieces of `piece_bytes` (a multiple of page_bytes) at most. Pure.
std::vector<AddressRange> RegistrationPieces(uintptr_t begin, uint64_t bytes, uint64_t piece_bytes,
                                             uint64_t page_bytes);

// The pages of all ranges, ascending, where ranges that share or touch a page are one: a page can be registered once.
// Pure.
std::vector<AddressRange> MergedPages(std::vector<AddressRange> ranges, uint64_t page_bytes);

// Existing host memory, registered read-only so that kernels and copies read it where it lies. The memory must stay
// mapped. Pieces, because a registration of many GiB cannot be interrupted or bounded.
class RegisteredHost {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 30;
  // All of it or nothing. kUnsupported when the device does not register read-only memory or uses other addresses;
  // errors name what is left: pinned copies, or the CPU lane.
  static Result<RegisteredHost> Create(Device* device, HostSpan<const std::byte> memory, MemoryTag tag,
                                       uint64_t piece_bytes = kPieceBytes);

  RegisteredHost() = default;
  RegisteredHost(RegisteredHost&& other) noexcept { *this = std::move(other); }
  RegisteredHost& operator=(RegisteredHost&& other) noexcept {
    std::swap(pieces_, other.pieces_);
    std::swap(memory_, other.memory_);
    std::swap(charge_, other.charge_);
    return *this;
  }
  ~RegisteredHost() {
    for (const AddressRange& piece : pieces_) UnregisterMemory(reinterpret_cast<void*>(piece.begin));
  }
  PinnedSpan<const std::byte> bytes() const { return {memory_.data(), memory_.size()}; }
  size_t pieces() const { return pieces_.size(); }

 private:
  std::vector<AddressRange> pieces_;  // registered
  HostSpan<const std::byte> memory_;
  MemoryCharge charge_;
};

// In stream order. Both sides must stay alive until an event recorded behind the copy is done (rule D6); a source that
// is not pinned or registered makes the host wait for its staging. Sizes must be equal.
Status CopyToDevice(DeviceSpan<std::byte> to, HostSpan<const std::byte> from, const Stream& stream);
Status CopyToHost(PinnedSpan<std::byte> to, DeviceSpan<const std::byte> from, const Stream& stream);
Status FillZero(DeviceSpan<std::byte> memory, const Stream& stream);

}  // namespace bellhop::cuda
