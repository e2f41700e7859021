// Status and Result: how every fallible function of the library reports failure.
// A message says what failed, where (file, tensor, offset) and what to do about it.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace bellhop {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,
  kNotFound,
  kCorrupt,
  kUnsupported,
  kOutOfMemory,
  kIo,
  kCuda,
  kCancelled,
  kInternal,
};

std::string_view StatusCodeName(StatusCode code);

// One pointer wide; null is OK, so success costs nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }

  // The same failure with `context` and ": " in front of the message; OK stays OK.
  Status WithContext(std::string_view context) const;
  // "corrupt: model.gguf: ..."
  std::string ToString() const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// fmt-style constructors: InvalidArgument("{}: {} experts", name, n).
#define BELLHOP_STATUS_FACTORY(Name, Code)                                 \
  template <typename... Args>                                              \
  Status Name(fmt::format_string<Args...> format, Args&&... args) {        \
    return Status(Code, fmt::format(format, std::forward<Args>(args)...)); \
  }
BELLHOP_STATUS_FACTORY(InvalidArgument, StatusCode::kInvalidArgument)
BELLHOP_STATUS_FACTORY(NotFound, StatusCode::kNotFound)
BELLHOP_STATUS_FACTORY(Corrupt, StatusCode::kCorrupt)
BELLHOP_STATUS_FACTORY(Unsupported, StatusCode::kUnsupported)
BELLHOP_STATUS_FACTORY(OutOfMemory, StatusCode::kOutOfMemory)
BELLHOP_STATUS_FACTORY(IoError, StatusCode::kIo)
BELLHOP_STATUS_FACTORY(CudaError, StatusCode::kCuda)
BELLHOP_STATUS_FACTORY(Cancelled, StatusCode::kCancelled)
BELLHOP_STATUS_FACTORY(Internal, StatusCode::kInternal)
#undef BELLHOP_STATUS_FACTORY

// A value or a failed Status. Constructing one from an OK status is a programming error (kInternal results).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design, so `return value;` works
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "Result made from an OK status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define BELLHOP_CONCAT_INNER(a, b) a##b
#define BELLHOP_CONCAT(a, b) BELLHOP_CONCAT_INNER(a, b)

// Returns the failed status of `expr` from the enclosing function.
#define BELLHOP_TRY(expr)                                                                                      \
  do {                                                                                                         \
    if (::bellhop::Status bellhop_try_status_ = (expr); !bellhop_try_status_.ok()) return bellhop_try_status_; \
  } while (0)

// BELLHOP_TRY_ASSIGN(auto file, MappedFile::Open(path)): assigns the value or returns the failed status.
#define BELLHOP_TRY_ASSIGN(lhs, expr) BELLHOP_TRY_ASSIGN_IMPL(lhs, expr, BELLHOP_CONCAT(bellhop_result_, __LINE__))
#define BELLHOP_TRY_ASSIGN_IMPL(lhs, expr, name) \
  auto name = (expr);                            \
  if (!name.ok()) return name.status();          \
  lhs = std::move(name).value()

}  // namespace bellhop
