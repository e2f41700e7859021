// How far long work has come: a bar on a terminal's standard error, otherwise a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "frontends/cli/console.h"

namespace bellhop::cli {

class Progress {
 public:
  // `what` names the work: "perplexity". Silent with --quiet, and with --json when there is no terminal.
  Progress(const Console& console, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` says what is in work, "blk.3.ffn_up_exps.weight"; may be empty.
  void Update(int64_t done, int64_t total, std::string_view detail = "");
  // Removes the bar before other words are written.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  void Draw(int64_t done, int64_t total, std::string_view detail);

  std::string what_;
  bool silent_ = false;
  bool terminal_ = false;
  bool drawn_ = false;
  int last_tenth_ = -1;
  Clock::time_point start_, last_draw_;
};

}  // namespace bellhop::cli
