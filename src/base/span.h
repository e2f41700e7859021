// Memory spans that say where the memory is. Host, pinned and device spans are distinct types, so that a device
// pointer cannot reach host code. A pinned span converts to a host span, never the other way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace bellhop {

enum class MemorySpace { kHost, kPinned, kDevice };

template <typename T, MemorySpace kSpace>
class TaggedSpan {
 public:
  constexpr TaggedSpan() = default;
  constexpr TaggedSpan(T* data, size_t size) : data_(data), size_(size) {}
  template <typename U>
  requires(std::is_convertible_v<U (*)[], T (*)[]> &&
           !std::is_same_v<U, T>) constexpr TaggedSpan(TaggedSpan<U, kSpace> other)
      : data_(other.data()), size_(other.size()) {}  // NOLINT: adds const
  template <typename U>
  requires(kSpace == MemorySpace::kHost && std::is_convertible_v<U (*)[], T (*)[]>) constexpr TaggedSpan(
      TaggedSpan<U, MemorySpace::kPinned> other)  // NOLINT
      : data_(other.data()), size_(other.size()) {}
  template <typename U, typename A>
  requires(kSpace == MemorySpace::kHost &&
           std::is_convertible_v<const U (*)[], T (*)[]>) constexpr TaggedSpan(const std::vector<U, A>& v)
      : data_(v.data()), size_(v.size()) {}  // NOLINT
  template <typename U, typename A>
  requires(kSpace == MemorySpace::kHost &&
           std::is_convertible_v<U (*)[], T (*)[]>) constexpr TaggedSpan(std::vector<U, A>& v)
      : data_(v.data()), size_(v.size()) {}  // NOLINT

  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr size_t size_bytes() const { return size_ * sizeof(T); }
  constexpr bool empty() const { return size_ == 0; }
  constexpr TaggedSpan subspan(size_t offset, size_t count) const { return TaggedSpan(data_ + offset, count); }
  constexpr TaggedSpan subspan(size_t offset) const { return TaggedSpan(data_ + offset, size_ - offset); }

  constexpr T& operator[](size_t i) const requires(kSpace != MemorySpace::kDevice) { return data_[i]; }
  constexpr T* begin() const requires(kSpace != MemorySpace::kDevice) { return data_; }
  constexpr T* end() const requires(kSpace != MemorySpace::kDevice) { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
using HostSpan = TaggedSpan<T, MemorySpace::kHost>;
template <typename T>
using PinnedSpan = TaggedSpan<T, MemorySpace::kPinned>;
template <typename T>
using DeviceSpan = TaggedSpan<T, MemorySpace::kDevice>;

// Row-major matrix view: element (r, c) is data[r * stride + c]. Trivially copyable.
template <typename T>
struct MatView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  constexpr T* Row(int64_t r) const { return data + r * stride; }
};

// Half-open range of rows: the caller's unit for splitting work.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  constexpr int64_t size() const { return end - begin; }
};

}  // namespace bellhop
