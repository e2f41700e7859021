// The first device error of an engine, which every later call returns: after it nothing that the device holds can be
// trusted.
#pragma once

#include <atomic>
#include <mutex>

#include "base/status.h"

namespace bellhop::cuda {

class Poison {
 public:
  // Keeps `status` if it is an error and the first one; returns `status`. From any thread.
  Status Set(Status status) {
    if (status.ok()) return status;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_.ok()) first_ = status;
    set_.store(true, std::memory_order_release);  // pairs with poisoned()
    return status;
  }
  bool poisoned() const { return set_.load(std::memory_order_acquire); }
  // OK, or the first error. Takes no lock while there is none.
  Status status() const {
    if (!poisoned()) return Status();
    const std::lock_guard<std::mutex> lock(mutex_);
    return first_;
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  Status first_;
};

}  // namespace bellhop::cuda
