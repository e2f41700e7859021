// Ctrl-C as a flag that long work polls.
#pragma once

#include <signal.h>

#include <atomic>
#include <vector>

namespace bellhop::sys {

// While it lives, the first signal sets the flag and restores the default action, so a second one ends a process that
// does not listen. System calls that wait in the main thread return EINTR. Restores the earlier handlers when it goes.
// One at a time in a process: a second one sees the same flag.
class InterruptScope {
 public:
  explicit InterruptScope(std::vector<int> signals = {SIGINT});
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const;
  // For code that takes a cancel flag.
  const std::atomic<bool>& flag() const;
  // Clears the flag and listens again: a chat that one Ctrl-C stopped goes on.
  void Rearm();

 private:
  void Install();

  std::vector<int> signals_;
  std::vector<struct sigaction> previous_;
};

}  // namespace bellhop::sys
