#include "frontends/capi/calls.h"

#include <algorithm>

namespace bellhop::capi {
namespace {

// Messages are one line, seldom beyond 300 bytes; what is longer is cut. Fixed, so that reporting "out of memory" needs
// none.
constexpr size_t kMessageBytes = 2048;
struct LastError {
  char text[kMessageBytes];
  size_t length;
};
thread_local LastError last_error = {};

static_assert(static_cast<int>(StatusCode::kInvalidArgument) == BELLHOP_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::kNotFound) == BELLHOP_NOT_FOUND);
static_assert(static_cast<int>(StatusCode::kCorrupt) == BELLHOP_CORRUPT);
static_assert(static_cast<int>(StatusCode::kUnsupported) == BELLHOP_UNSUPPORTED);
static_assert(static_cast<int>(StatusCode::kOutOfMemory) == BELLHOP_OUT_OF_MEMORY);
static_assert(static_cast<int>(StatusCode::kIo) == BELLHOP_IO);
static_assert(static_cast<int>(StatusCode::kCuda) == BELLHOP_CUDA);
static_assert(static_cast<int>(StatusCode::kCancelled) == BELLHOP_CANCELLED);
static_assert(static_cast<int>(StatusCode::kInternal) == BELLHOP_INTERNAL);
static_assert(static_cast<int>(LogLevel::kError) == BELLHOP_LOG_ERROR);

// The longest prefix of at most `limit` bytes that does not end inside a UTF-8 character.
size_t CutUtf8(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

bellhop_status ReportText(bellhop_status code, std::string_view message) noexcept {
  last_error.length = CutUtf8(message, kMessageBytes - 1);
  std::memcpy(last_error.text, message.data(), last_error.length);
  last_error.text[last_error.length] = '\0';
  return code;
}

bellhop_status Report(const Outcome& outcome) noexcept {
  return outcome.code == BELLHOP_OK ? BELLHOP_OK : ReportText(outcome.code, outcome.status.message());
}

Status CheckNotNull(const void* pointer, std::string_view name) {
  return pointer != nullptr ? Status() : InvalidArgument("{} is NULL", name);
}

Status CheckArray(const void* pointer, size_t count, std::string_view name) {
  return pointer != nullptr || count == 0 ? Status() : InvalidArgument("{} is NULL, with {} items", name, count);
}

Status CheckFlag(int32_t value, std::string_view name) {
  return value == 0 || value == 1 ? Status() : InvalidArgument("{} is {}; it must be 0 or 1", name, value);
}

Status CheckStructSize(size_t struct_size, size_t min_size, std::string_view name) {
  if (struct_size >= min_size && struct_size <= kMaxStructBytes) return Status();
  return InvalidArgument(
      "{}: struct_size is {}, expected {} or a little more; set it to sizeof, or call the _init function", name,
      struct_size, min_size);
}

Status CheckUnknownZero(const void* data, size_t known, size_t struct_size, std::string_view name) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = known; i < struct_size; ++i) {
    if (bytes[i] != 0) {
      return Unsupported(
          "{}: byte {} is set, and this library (ABI {}, {} bytes) does not know it; use a newer library", name, i,
          BELLHOP_ABI_VERSION, known);
    }
  }
  return Status();
}

Outcome CheckRoom(size_t size, const void* buffer, size_t capacity, size_t* count) {
  BELLHOP_TRY(CheckNotNull(count, "the size pointer"));
  *count = size;
  if (buffer == nullptr || size <= capacity) return Status();
  return {InvalidArgument("the buffer holds {} items, {} are needed", capacity, size), BELLHOP_BUFFER_TOO_SMALL};
}

Outcome CopyText(std::string_view text, char* buffer, size_t capacity, size_t* bytes) {
  BELLHOP_TRY(CheckNotNull(bytes, "the size pointer"));
  *bytes = text.size();
  if (buffer == nullptr) return Status();
  if (capacity < text.size() + 1) {
    return {
        InvalidArgument("the buffer has {} bytes, {} are needed with the terminating NUL", capacity, text.size() + 1),
        BELLHOP_BUFFER_TOO_SMALL};
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return Status();
}

}  // namespace bellhop::capi

using bellhop::capi::last_error;

extern "C" {

uint32_t bellhop_abi_version(void) noexcept { return BELLHOP_ABI_VERSION; }

const char* bellhop_version(void) noexcept { return BELLHOP_LIBRARY_VERSION; }

const char* bellhop_status_name(bellhop_status status) noexcept {
  if (status == BELLHOP_BUFFER_TOO_SMALL) return "buffer too small";
  if (status < BELLHOP_OK || status > BELLHOP_INTERNAL) return "unknown status";
  // Views of string literals, so terminated.
  return bellhop::StatusCodeName(static_cast<bellhop::StatusCode>(status)).data();
}

size_t bellhop_last_error(char* buffer, size_t capacity) noexcept {
  if (buffer != nullptr && capacity > 0) {
    const std::string_view text(last_error.text, last_error.length);
    const size_t length = bellhop::capi::CutUtf8(text, capacity - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return last_error.length;
}

}  // extern "C"
