// Typed key/value metadata of a model file, zero-copy: strings and array payloads point into the mapped file.
// Keys keep their full names ("qwen3moe.block_count"). Order is file order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::manifest {

enum class MetaType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
std::string_view MetaTypeName(MetaType type);
// Bytes of one element; 0 for strings and arrays.
size_t MetaTypeBytes(MetaType type);

struct MetaArray;

// One value. Integers of every width are held as u64 or i64 with `type` telling the stored width.
struct MetaValue {
  MetaType type = MetaType::kU8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<MetaArray>> value;

  bool is_array() const { return type == MetaType::kArray; }
  const MetaArray& array() const { return *std::get<std::shared_ptr<MetaArray>>(value); }
};

// A homogeneous array. Fixed-width elements stay raw (unaligned, little-endian); strings and nested arrays are indexed.
struct MetaArray {
  MetaType element_type = MetaType::kU8;
  uint64_t count = 0;
  HostSpan<const std::byte> raw;          // fixed-width element types
  std::vector<std::string_view> strings;  // kString
  std::vector<MetaArray> arrays;          // kArray
  MetaValue At(uint64_t i) const;         // fixed-width and string elements; i < count
};

// One line for people: strings quoted and shortened, the first `max_items` elements of an array.
std::string ToString(const MetaValue& value, size_t max_items = 8);

class Metadata {
 public:
  struct Entry {
    std::string key;
    MetaValue value;
  };

  // kCorrupt when the key is already there.
  Status Add(std::string key, MetaValue value);
  const std::vector<Entry>& entries() const { return entries_; }
  const MetaValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Required values: kNotFound names the key; kCorrupt names key, stored type and wanted type. Integer getters take any
  // integer width; float getters take f32, f64 and integers; flags take bools and the integers 0 and 1. GetUint refuses
  // negative values.
  Result<uint64_t> GetUint(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  // Arrays, converted by rule from any integer (or float) element width. A scalar is not an array: kCorrupt.
  Result<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  Result<std::vector<float>> GetFloatArray(std::string_view key) const;
  Result<std::vector<bool>> GetBoolArray(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStringArray(std::string_view key) const;

  // As above with a default for a missing key; a present key of the wrong type is still an error.
  Result<uint64_t> GetUintOr(std::string_view key, uint64_t fallback) const;
  Result<double> GetFloatOr(std::string_view key, double fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace bellhop::manifest
