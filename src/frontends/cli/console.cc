#include "frontends/cli/console.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace bellhop::cli {
namespace {

// spdlog keeps lines of several threads apart and stamps those of a log file; standard error gets plain words.
class SpdlogSink final : public LogSink {
 public:
  explicit SpdlogSink(LogLevel lowest) : lowest_(lowest) {}

  Status OpenFile(const std::string& path) {
    // spdlog would make missing folders: a typing error is no wish for one.
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::error_code error;
    if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
      return NotFound("--log-file {}: there is no folder {}", OneLine(path), OneLine(folder.string()));
    }
    try {
      file_ = std::make_shared<spdlog::logger>("bellhop", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
      file_->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
      file_->set_level(spdlog::level::debug);
      file_->flush_on(spdlog::level::debug);
    } catch (const spdlog::spdlog_ex& failure) {
      return InvalidArgument("--log-file {}: {}", OneLine(path), OneLine(failure.what()));
    }
    return Status();
  }

  void Write(LogLevel level, std::string_view message) override {
    if (level < lowest_) return;
    const std::string line = OneLine(message);
    if (file_ != nullptr) {
      file_->log(ToSpdlog(level), "{}", line);
    } else if (level == LogLevel::kInfo) {
      std::fprintf(stderr, "%s\n", line.c_str());
    } else {
      std::fprintf(stderr, "bellhop: %s: %s\n", std::string(LogLevelName(level)).c_str(), line.c_str());
    }
  }

 private:
  static spdlog::level::level_enum ToSpdlog(LogLevel level) {
    switch (level) {
      case LogLevel::kDebug: return spdlog::level::debug;
      case LogLevel::kInfo: return spdlog::level::info;
      case LogLevel::kWarning: return spdlog::level::warn;
      case LogLevel::kError: return spdlog::level::err;
    }
    return spdlog::level::err;
  }

  LogLevel lowest_;
  std::shared_ptr<spdlog::logger> file_;  // shared: spdlog's own interface
};

std::string Dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool IsFlat(const nlohmann::ordered_json& value) {
  if (!value.is_structured()) return true;
  if (value.is_object()) return value.empty();
  return std::none_of(value.begin(), value.end(), [](const auto& item) { return item.is_structured(); });
}

void AppendPretty(const nlohmann::ordered_json& value, size_t indent, std::string* out) {
  if (IsFlat(value)) {
    *out += Dump(value);
    return;
  }
  const std::string inner(indent + 2, ' ');
  *out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& item : value.items()) {
    *out += (first ? "\n" : ",\n") + inner;
    if (value.is_object()) *out += Dump(item.key()) + ": ";
    AppendPretty(item.value(), indent + 2, out);
    first = false;
  }
  *out += "\n" + std::string(indent, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

std::string PrettyJson(const nlohmann::ordered_json& value) {
  std::string text;
  AppendPretty(value, 0, &text);
  return text;
}

int ExitCode(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kCorrupt:
    case StatusCode::kUnsupported: return 2;
    default: return 1;
  }
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if ((byte < 0x20 && c != '\t') || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

Result<std::unique_ptr<Console>> Console::Create(const config::OutputOptions& options) {
  const LogLevel lowest = options.verbose                 ? LogLevel::kDebug
                          : options.quiet || options.json ? LogLevel::kWarning
                                                          : LogLevel::kInfo;
  auto log = std::make_unique<SpdlogSink>(lowest);
  if (!options.log_file.empty()) BELLHOP_TRY(log->OpenFile(options.log_file));
  return std::unique_ptr<Console>(new Console(options, std::move(log)));
}

Console::Console(const config::OutputOptions& options, std::unique_ptr<LogSink> log)
    : options_(options), log_(std::move(log)) {}

void Console::Fail() {
  if (errno == EPIPE) {
    reader_gone_ = true;
  } else if (write_status_.ok()) {
    write_status_ = IoError("cannot write to standard output: {}", std::strerror(errno));
  }
}

void Console::Write(std::string_view text) {
  if (reader_gone_ || !write_status_.ok() || text.empty()) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) Fail();
}

void Console::WriteJson(const nlohmann::ordered_json& value) { Write(PrettyJson(value) + "\n"); }

void Console::Flush() {
  if (reader_gone_ || !write_status_.ok()) return;
  errno = 0;
  if (std::fflush(stdout) != 0) Fail();
}

Status Console::Finish() {
  Flush();
  return write_status_;
}

void Console::Say(std::string_view line) {
  if (says()) SayAlways(line);
}

void Console::SayAlways(std::string_view line) { std::fprintf(stderr, "%s\n", OneLine(line).c_str()); }

}  // namespace bellhop::cli
