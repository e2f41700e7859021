// Who uses the memory: bytes by device, kind and tag, charged by the buffers that own them. An object that engines
// share, not a global. From any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/memory_tag.h"

namespace bellhop::cuda {

enum class MemoryKind : uint8_t {
  kDevice,
  kPinned,      // host memory of our own that the device reads
  kRegistered,  // host memory of others, such as mapped files, that the device reads
};

class MemoryLedger {
 public:
  struct Line {
    DeviceId device;
    MemoryKind kind = MemoryKind::kDevice;
    MemoryTag tag = MemoryTag::kOther;
    uint64_t bytes = 0;
  };

  // Bytes that are charged now, for a tag or for all.
  uint64_t bytes(DeviceId device, MemoryKind kind, MemoryTag tag) const;
  uint64_t bytes(DeviceId device, MemoryKind kind) const;
  // The most that all tags together have been.
  uint64_t peak_bytes(DeviceId device, MemoryKind kind) const;
  // Charges made so far: a steady step makes none.
  uint64_t charges() const;
  // What is in use, in order of device, kind and tag.
  std::vector<Line> lines() const;

 private:
  friend class MemoryCharge;
  static constexpr size_t kTags = static_cast<size_t>(MemoryTag::kOther) + 1;
  struct Account {
    std::array<uint64_t, kTags> bytes{};
    uint64_t sum = 0, peak = 0;
  };
  using Key = std::pair<DeviceId, MemoryKind>;

  void Add(const Line& line);
  void Remove(const Line& line);

  mutable std::mutex mutex_;
  std::map<Key, Account> accounts_;
  uint64_t charges_ = 0;
};

// Bytes on a ledger for as long as it lives. The ledger must outlive it.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(MemoryLedger* ledger, DeviceId device, MemoryKind kind, MemoryTag tag, uint64_t bytes);
  MemoryCharge(MemoryCharge&& other) noexcept : ledger_(std::exchange(other.ledger_, nullptr)), line_(other.line_) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

  MemoryTag tag() const { return line_.tag; }

 private:
  MemoryLedger* ledger_ = nullptr;
  MemoryLedger::Line line_;
};

}  // namespace bellhop::cuda
