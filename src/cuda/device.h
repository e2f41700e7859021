// One GPU as one engine uses it: what its calls are charged to, and the error after which they all fail. Headers of
// this folder that end in .h and name no kernel compile without CUDA; without it, Open returns kUnsupported.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/status.h"
#include "cuda/launch_queue.h"
#include "cuda/memory_ledger.h"
#include "cuda/poison.h"

namespace bellhop::cuda {

class Device {
 public:
  // Creates the device's context and makes it the calling thread's device. The ledger must outlive the device, and the
  // device everything made on it. kNotFound, kUnsupported (built without CUDA), kInvalidArgument (no such device).
  static Result<std::unique_ptr<Device>> Open(DeviceId id, MemoryLedger* ledger);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // For another thread that makes calls. Calls of this folder use the current device.
  Status MakeCurrent();

  DeviceId id() const { return id_; }
  MemoryLedger* ledger() const { return ledger_; }
  // Read-only files can be registered.
  bool registers_read_only() const { return registers_read_only_; }

  // The first error after which the device's memory and context are lost. Calls made later return it untried.
  Poison& poison() { return poison_; }

  LaunchTotals& launch_totals() { return totals_; }

 private:
  Device(DeviceId id, MemoryLedger* ledger) : id_(id), ledger_(ledger) {}

  DeviceId id_;
  MemoryLedger* ledger_;
  bool registers_read_only_ = false;
  Poison poison_;
  LaunchTotals totals_;
};

}  // namespace bellhop::cuda
