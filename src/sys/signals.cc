#include "sys/signals.h"

#include <utility>

namespace bellhop::sys {
namespace {

// A handler has no argument of ours, so the flag is the process's. Relaxed: it carries no data.
std::atomic<bool> interrupted_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set in a signal handler");

void OnSignal(int) { interrupted_flag.store(true, std::memory_order_relaxed); }

}  // namespace

InterruptScope::InterruptScope(std::vector<int> signals) : signals_(std::move(signals)), previous_(signals_.size()) {
  interrupted_flag.store(false, std::memory_order_relaxed);
  for (size_t i = 0; i < signals_.size(); ++i) sigaction(signals_[i], nullptr, &previous_[i]);
  Install();
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < signals_.size(); ++i) sigaction(signals_[i], &previous_[i], nullptr);
}

bool InterruptScope::interrupted() const { return interrupted_flag.load(std::memory_order_relaxed); }
const std::atomic<bool>& InterruptScope::flag() const { return interrupted_flag; }

void InterruptScope::Rearm() {
  Install();
  interrupted_flag.store(false, std::memory_order_relaxed);
}

void InterruptScope::Install() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESETHAND;  // no SA_RESTART: a blocked read must return
  sigemptyset(&action.sa_mask);
  for (const int number : signals_) sigaction(number, &action, nullptr);
}

}  // namespace bellhop::sys
