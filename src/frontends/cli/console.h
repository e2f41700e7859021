// Where the program's words go: results to standard output, everything else to standard error or a log file.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/status.h"
#include "config/options.h"

namespace bellhop::cli {

// Exit codes of the contract: 0 done, 1 failed while running, 2 bad usage or bad input.
int ExitCode(const Status& status);

// `text` with control characters other than tab written as \xHH or \n: one line, whatever a file name holds.
std::string OneLine(std::string_view text);

// Indented, with lists of plain values on one line. Bytes that are not UTF-8 become U+FFFD.
std::string PrettyJson(const nlohmann::ordered_json& value);

class Console {
 public:
  static Result<std::unique_ptr<Console>> Create(const config::OutputOptions& options);

  // Results. Buffered until Flush or the end of the program.
  void Write(std::string_view text);
  template <typename... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) {
    Write(fmt::format(format, std::forward<Args>(args)...));
  }
  // One JSON value, pretty, and a line feed.
  void WriteJson(const nlohmann::ordered_json& value);
  void Flush();
  // The reader of standard output has gone: nothing more is written, and that is no error.
  bool reader_gone() const { return reader_gone_; }
  // The first failure to write, a reader that has gone excepted.
  Status Finish();

  // Words for people beside the results: plan, statistics. Not with --quiet or --json.
  void Say(std::string_view line);
  // The same, whatever the options say: the user asked for it.
  void SayAlways(std::string_view line);

  LogSink& log() { return *log_; }
  bool json() const { return options_.json; }
  bool quiet() const { return options_.quiet; }
  bool says() const { return !options_.quiet && !options_.json; }

 private:
  Console(const config::OutputOptions& options, std::unique_ptr<LogSink> log);
  void Fail();

  config::OutputOptions options_;
  std::unique_ptr<LogSink> log_;
  bool reader_gone_ = false;
  Status write_status_;
};

}  // namespace bellhop::cli
