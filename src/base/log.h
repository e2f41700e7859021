// The sink that library code reports to. The library never prints: a front end decides where lines go.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace bellhop {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

std::string_view LogLevelName(LogLevel level);

// Thread-safe implementations only; never called in a steady decode step.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLevel level, std::string_view message) = 0;

  template <typename... Args>
  void Debug(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    Write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
};

// Drops everything.
LogSink& NullLogSink();

}  // namespace bellhop
