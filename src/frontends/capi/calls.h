// What every function of the C interface shares: errors across the boundary, structs of other ages, caller's buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "bellhop/bellhop.h"
#include "frontends/capi/handles.h"

namespace bellhop::capi {

// A Status, or the one failure that has no StatusCode.
struct Outcome {
  Outcome(Status s) : status(std::move(s)), code(static_cast<bellhop_status>(status.code())) {}  // NOLINT: implicit
  Outcome(Status s, bellhop_status c) : status(std::move(s)), code(c) {}

  Status status;
  bellhop_status code;
};

// Keeps the message for bellhop_last_error and returns the code. Never allocates.
bellhop_status Report(const Outcome& outcome) noexcept;
bellhop_status ReportText(bellhop_status code, std::string_view message) noexcept;

// Runs fn, which returns an Outcome or Status, and turns whatever it throws into a status.
template <typename Fn>
bellhop_status Guarded(Fn&& fn) noexcept {
  try {
    return Report(fn());
  } catch (const std::bad_alloc&) {
    return ReportText(BELLHOP_OUT_OF_MEMORY, "out of memory; use a smaller context, batch or model");
  } catch (const std::exception& e) {
    return ReportText(BELLHOP_INTERNAL, e.what());
  } catch (...) {
    return ReportText(BELLHOP_INTERNAL, "an exception of unknown type");
  }
}

// NULL is kInvalidArgument naming the argument.
Status CheckNotNull(const void* pointer, std::string_view name);
// A pointer to `count` items; NULL is fine for none.
Status CheckArray(const void* pointer, size_t count, std::string_view name);
Status CheckFlag(int32_t value, std::string_view name);

// Guarded, on an engine that no other call uses at the moment.
template <typename Fn>
bellhop_status EngineCall(bellhop_engine* handle, Fn&& fn) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(handle, "engine"));
    if (handle->busy.exchange(true, std::memory_order_acquire)) {
      return InvalidArgument(
          "the engine is in use by another call; wait for it, or make one engine per thread (only functions marked "
          "[callback] work inside a callback)");
    }
    struct Release {
      bellhop_engine* handle;
      ~Release() { handle->busy.store(false, std::memory_order_release); }
    } release{handle};
    return fn(*handle);
  });
}

// Larger than any version of any struct: a larger struct_size is an uninitialised one.
inline constexpr size_t kMaxStructBytes = 4096;

Status CheckStructSize(size_t struct_size, size_t min_size, std::string_view name);
// kUnsupported when bytes that this library does not know are set.
Status CheckUnknownZero(const void* data, size_t known, size_t struct_size, std::string_view name);

// Size of a struct up to and with `field`, the last one of its first version.
#define BELLHOP_SIZE_THROUGH(Struct, field) (offsetof(Struct, field) + sizeof(Struct::field))

// The caller's options over the defaults in *out. `min_size` is the size of the struct's first version.
template <typename T>
Status ReadStruct(const T* in, size_t min_size, std::string_view name, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  BELLHOP_TRY(CheckNotNull(in, name));
  BELLHOP_TRY(CheckStructSize(in->struct_size, min_size, name));
  BELLHOP_TRY(CheckUnknownZero(in, sizeof(T), in->struct_size, name));
  std::memcpy(out, in, std::min(in->struct_size, sizeof(T)));
  return Status();
}

// Fills a struct of `struct_size` bytes at `out` from `value`; bytes beyond become zero.
template <typename T>
Status WriteStruct(T value, size_t struct_size, size_t min_size, std::string_view name, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  BELLHOP_TRY(CheckNotNull(out, name));
  BELLHOP_TRY(CheckStructSize(struct_size, min_size, name));
  value.struct_size = struct_size;
  std::memset(static_cast<void*>(out), 0, struct_size);
  std::memcpy(static_cast<void*>(out), &value, std::min(struct_size, sizeof(T)));
  return Status();
}
// The same for results, whose caller has set struct_size.
template <typename T>
Status WriteResult(const T& value, size_t min_size, std::string_view name, T* out) {
  BELLHOP_TRY(CheckNotNull(out, name));
  return WriteStruct(value, out->struct_size, min_size, name, out);
}

// Stores the size in *bytes, then copies with a terminating NUL if there is a buffer with enough capacity.
Outcome CopyText(std::string_view text, char* buffer, size_t capacity, size_t* bytes);
// The same for `size` items of any type.
Outcome CheckRoom(size_t size, const void* buffer, size_t capacity, size_t* count);
template <typename T>
Outcome CopyItems(const T* items, size_t size, T* buffer, size_t capacity, size_t* count) {
  const Outcome room = CheckRoom(size, buffer, capacity, count);
  if (room.code == BELLHOP_OK && buffer != nullptr && size > 0) std::memcpy(buffer, items, size * sizeof(T));
  return room;
}

}  // namespace bellhop::capi
