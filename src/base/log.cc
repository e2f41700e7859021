#include "base/log.h"

namespace bellhop {

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "unknown";
}

namespace {
class NullSink final : public LogSink {
 public:
  void Write(LogLevel, std::string_view) override {}
};
}  // namespace

LogSink& NullLogSink() {
  static NullSink sink;
  return sink;
}

}  // namespace bellhop
