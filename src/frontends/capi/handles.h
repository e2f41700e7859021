// What the C interface's opaque handles hold.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "bellhop/bellhop.h"
#include "engine/text_engine.h"

namespace bellhop::capi {

// Passes lines on, one at a time, to a C function that wants terminated strings.
class CallbackLog final : public LogSink {
 public:
  CallbackLog(bellhop_log_fn fn, void* user) : fn_(fn), user_(user) {}
  void Write(LogLevel level, std::string_view message) override {
    if (fn_ == nullptr) return;
    const std::string text(message);
    const std::lock_guard<std::mutex> lock(mutex_);
    fn_(user_, static_cast<int32_t>(level), text.c_str());
  }

 private:
  bellhop_log_fn fn_;
  void* user_;
  std::mutex mutex_;
};

}  // namespace bellhop::capi

struct bellhop_engine {
  bellhop_engine(bellhop_log_fn log_fn, void* log_user) : log(log_fn, log_user) {}

  bellhop::capi::CallbackLog log;  // outlives the engine, which writes to it
  std::unique_ptr<bellhop::engine::TextEngine> engine;
  std::atomic<bool> busy = false;  // a call runs; acquire on entry pairs with release on exit
  std::vector<bellhop::TokenId> generated_ids;
  std::string generated_text;
};

// The flags of the calls in flight: one request reaches all of them, and a call that its own callback stops leaves the
// others alone.
struct bellhop_cancel {
  void Attach(std::atomic<bool>* flag) {
    const std::lock_guard<std::mutex> lock(mutex);
    flags.push_back(flag);
    if (requested) flag->store(true, std::memory_order_relaxed);
  }
  void Detach(std::atomic<bool>* flag) {
    const std::lock_guard<std::mutex> lock(mutex);
    flags.erase(std::remove(flags.begin(), flags.end(), flag), flags.end());
  }
  void Request() {
    const std::lock_guard<std::mutex> lock(mutex);
    requested = true;
    for (std::atomic<bool>* flag : flags) flag->store(true, std::memory_order_relaxed);
  }
  void Reset() {
    const std::lock_guard<std::mutex> lock(mutex);
    requested = false;
  }

  std::mutex mutex;
  bool requested = false;
  std::vector<std::atomic<bool>*> flags;
};
