#include "cuda/memory_ledger.h"

#include <algorithm>

namespace bellhop::cuda {

uint64_t MemoryLedger::bytes(DeviceId device, MemoryKind kind, MemoryTag tag) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = accounts_.find({device, kind});
  return found == accounts_.end() ? 0 : found->second.bytes[static_cast<size_t>(tag)];
}

uint64_t MemoryLedger::bytes(DeviceId device, MemoryKind kind) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = accounts_.find({device, kind});
  return found == accounts_.end() ? 0 : found->second.sum;
}

uint64_t MemoryLedger::peak_bytes(DeviceId device, MemoryKind kind) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = accounts_.find({device, kind});
  return found == accounts_.end() ? 0 : found->second.peak;
}

uint64_t MemoryLedger::charges() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return charges_;
}

std::vector<MemoryLedger::Line> MemoryLedger::lines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Line> lines;
  for (const auto& [key, account] : accounts_) {
    for (size_t tag = 0; tag < kTags; ++tag) {
      if (account.bytes[tag] == 0) continue;
      lines.push_back({key.first, key.second, static_cast<MemoryTag>(tag), account.bytes[tag]});
    }
  }
  return lines;
}

void MemoryLedger::Add(const Line& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Account& account = accounts_[{line.device, line.kind}];
  account.bytes[static_cast<size_t>(line.tag)] += line.bytes;
  account.sum += line.bytes;
  account.peak = std::max(account.peak, account.sum);
  ++charges_;
}

void MemoryLedger::Remove(const Line& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Account& account = accounts_[{line.device, line.kind}];
  account.bytes[static_cast<size_t>(line.tag)] -= line.bytes;
  account.sum -= line.bytes;
}

MemoryCharge::MemoryCharge(MemoryLedger* ledger, DeviceId device, MemoryKind kind, MemoryTag tag, uint64_t bytes)
    : ledger_(ledger), line_{device, kind, tag, bytes} {
  ledger_->Add(line_);
}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(line_, other.line_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (ledger_ != nullptr) ledger_->Remove(line_);
}

}  // namespace bellhop::cuda
