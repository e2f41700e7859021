#include "manifest/metadata.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace bellhop::manifest {

static_assert(std::endian::native == std::endian::little,
              "model files are read in place; the host must be little-endian");

namespace {

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// One fixed-width element as a value; bool bytes are validated by the reader (0 or 1).
MetaValue LoadElement(MetaType type, const std::byte* p) {
  MetaValue out;
  out.type = type;
  switch (type) {
    case MetaType::kU8: out.value = uint64_t{Load<uint8_t>(p)}; break;
    case MetaType::kI8: out.value = int64_t{Load<int8_t>(p)}; break;
    case MetaType::kU16: out.value = uint64_t{Load<uint16_t>(p)}; break;
    case MetaType::kI16: out.value = int64_t{Load<int16_t>(p)}; break;
    case MetaType::kU32: out.value = uint64_t{Load<uint32_t>(p)}; break;
    case MetaType::kI32: out.value = int64_t{Load<int32_t>(p)}; break;
    case MetaType::kF32: out.value = double{Load<float>(p)}; break;
    case MetaType::kBool: out.value = Load<uint8_t>(p) != 0; break;
    case MetaType::kU64: out.value = Load<uint64_t>(p); break;
    case MetaType::kI64: out.value = Load<int64_t>(p); break;
    case MetaType::kF64: out.value = Load<double>(p); break;
    case MetaType::kString:
    case MetaType::kArray: break;
  }
  return out;
}

// "u32", "array of f32".
std::string DescribeType(const MetaValue& value) {
  if (!value.is_array()) return std::string(MetaTypeName(value.type));
  return fmt::format("array of {}", MetaTypeName(value.array().element_type));
}

Status WrongType(std::string_view key, const MetaValue& value, std::string_view wanted) {
  return Corrupt("key '{}': stored as {}, expected {}", key, DescribeType(value), wanted);
}

Result<int64_t> ToInt(std::string_view key, const MetaValue& value, std::string_view wanted) {
  if (const auto* i = std::get_if<int64_t>(&value.value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&value.value)) {
    if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Corrupt("key '{}': {} does not fit a signed 64-bit integer", key, *u);
    }
    return static_cast<int64_t>(*u);
  }
  return WrongType(key, value, wanted);
}

Result<double> ToFloat(std::string_view key, const MetaValue& value, std::string_view wanted) {
  if (const auto* d = std::get_if<double>(&value.value)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value.value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value.value)) return static_cast<double>(*u);
  return WrongType(key, value, wanted);
}

// Some converters store flags as integers; 0 and 1 are taken, anything else is refused.
Result<bool> ToBool(std::string_view key, const MetaValue& value, std::string_view wanted) {
  if (const auto* b = std::get_if<bool>(&value.value)) return *b;
  const auto* u = std::get_if<uint64_t>(&value.value);
  const auto* i = std::get_if<int64_t>(&value.value);
  if (!u && !i) return WrongType(key, value, wanted);
  const bool is_zero = u ? *u == 0 : *i == 0;
  const bool is_one = u ? *u == 1 : *i == 1;
  if (!is_zero && !is_one) return Corrupt("key '{}': a flag must be 0 or 1", key);
  return is_one;
}

bool IsIntType(MetaType type) {
  return MetaTypeBytes(type) != 0 && type != MetaType::kBool && type != MetaType::kF32 && type != MetaType::kF64;
}

// Missing key, or a value that is not an array.
Result<const MetaArray*> FindArray(const Metadata& metadata, std::string_view key, std::string_view wanted) {
  const MetaValue* value = metadata.Find(key);
  if (!value) return NotFound("key '{}' is missing (expected {})", key, wanted);
  if (!value->is_array()) return WrongType(key, *value, wanted);
  return &value->array();
}

Result<const MetaValue*> FindScalar(const Metadata& metadata, std::string_view key, std::string_view wanted) {
  const MetaValue* value = metadata.Find(key);
  if (!value) return NotFound("key '{}' is missing (expected {})", key, wanted);
  return value;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  if (text.size() > kMaxShown) out += fmt::format("...({} bytes)", text.size());
  return out + "\"";
}

std::string ArrayToString(const MetaArray& array, size_t max_items) {
  std::string out = fmt::format("{}[{}]", MetaTypeName(array.element_type), array.count);
  if (array.element_type == MetaType::kArray || max_items == 0) return out;
  out += " {";
  const uint64_t shown = std::min<uint64_t>(array.count, max_items);
  for (uint64_t i = 0; i < shown; ++i) out += (i ? ", " : "") + ToString(array.At(i), 0);
  if (shown < array.count) out += shown ? ", ..." : "...";
  return out + "}";
}

}  // namespace

std::string_view MetaTypeName(MetaType type) {
  switch (type) {
    case MetaType::kU8: return "u8";
    case MetaType::kI8: return "i8";
    case MetaType::kU16: return "u16";
    case MetaType::kI16: return "i16";
    case MetaType::kU32: return "u32";
    case MetaType::kI32: return "i32";
    case MetaType::kF32: return "f32";
    case MetaType::kBool: return "bool";
    case MetaType::kString: return "string";
    case MetaType::kArray: return "array";
    case MetaType::kU64: return "u64";
    case MetaType::kI64: return "i64";
    case MetaType::kF64: return "f64";
  }
  return "unknown";
}

size_t MetaTypeBytes(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool: return 1;
    case MetaType::kU16:
    case MetaType::kI16: return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32: return 4;
    case MetaType::kU64:
    case MetaType::kI64:
    case MetaType::kF64: return 8;
    case MetaType::kString:
    case MetaType::kArray: return 0;
  }
  return 0;
}

MetaValue MetaArray::At(uint64_t i) const {
  if (element_type == MetaType::kString) {
    MetaValue out;
    out.type = MetaType::kString;
    out.value = strings[i];
    return out;
  }
  return LoadElement(element_type, raw.data() + i * MetaTypeBytes(element_type));
}

std::string ToString(const MetaValue& value, size_t max_items) {
  struct Visitor {
    size_t max_items;
    std::string operator()(uint64_t v) const { return fmt::format("{}", v); }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::string_view v) const { return Quoted(v); }
    std::string operator()(const std::shared_ptr<MetaArray>& v) const { return ArrayToString(*v, max_items); }
  };
  // f32 values print with the digits that an f32 needs, not with those of its double image.
  if (value.type == MetaType::kF32) return fmt::format("{}", static_cast<float>(std::get<double>(value.value)));
  return std::visit(Visitor{max_items}, value.value);
}

Status Metadata::Add(std::string key, MetaValue value) {
  const auto [it, inserted] = index_.emplace(key, entries_.size());
  if (!inserted) return Corrupt("key '{}' appears twice", key);
  entries_.push_back({std::move(key), std::move(value)});
  return {};
}

const MetaValue* Metadata::Find(std::string_view key) const {
  const auto it = index_.find(std::string(key));
  return it == index_.end() ? nullptr : &entries_[it->second].value;
}

Result<uint64_t> Metadata::GetUint(std::string_view key) const {
  constexpr std::string_view kWanted = "an unsigned integer";
  BELLHOP_TRY_ASSIGN(const MetaValue* value, FindScalar(*this, key, kWanted));
  if (const auto* u = std::get_if<uint64_t>(&value->value)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value->value)) {
    if (*i < 0) return Corrupt("key '{}': {} is negative", key, *i);
    return static_cast<uint64_t>(*i);
  }
  return WrongType(key, *value, kWanted);
}

Result<int64_t> Metadata::GetInt(std::string_view key) const {
  constexpr std::string_view kWanted = "an integer";
  BELLHOP_TRY_ASSIGN(const MetaValue* value, FindScalar(*this, key, kWanted));
  return ToInt(key, *value, kWanted);
}

Result<double> Metadata::GetFloat(std::string_view key) const {
  constexpr std::string_view kWanted = "a number";
  BELLHOP_TRY_ASSIGN(const MetaValue* value, FindScalar(*this, key, kWanted));
  return ToFloat(key, *value, kWanted);
}

Result<bool> Metadata::GetBool(std::string_view key) const {
  constexpr std::string_view kWanted = "a bool";
  BELLHOP_TRY_ASSIGN(const MetaValue* value, FindScalar(*this, key, kWanted));
  return ToBool(key, *value, kWanted);
}

Result<std::string_view> Metadata::GetString(std::string_view key) const {
  constexpr std::string_view kWanted = "a string";
  BELLHOP_TRY_ASSIGN(const MetaValue* value, FindScalar(*this, key, kWanted));
  if (const auto* s = std::get_if<std::string_view>(&value->value)) return *s;
  return WrongType(key, *value, kWanted);
}

Result<std::vector<int64_t>> Metadata::GetIntArray(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of integers";
  BELLHOP_TRY_ASSIGN(const MetaArray* array, FindArray(*this, key, kWanted));
  if (!IsIntType(array->element_type)) return WrongType(key, *Find(key), kWanted);
  std::vector<int64_t> out;
  out.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    BELLHOP_TRY_ASSIGN(const int64_t element, ToInt(key, array->At(i), kWanted));
    out.push_back(element);
  }
  return out;
}

Result<std::vector<float>> Metadata::GetFloatArray(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of numbers";
  BELLHOP_TRY_ASSIGN(const MetaArray* array, FindArray(*this, key, kWanted));
  const MetaType type = array->element_type;
  if (!IsIntType(type) && type != MetaType::kF32 && type != MetaType::kF64) {
    return WrongType(key, *Find(key), kWanted);
  }
  std::vector<float> out;
  out.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    BELLHOP_TRY_ASSIGN(const double element, ToFloat(key, array->At(i), kWanted));
    // A conversion that overflows is undefined in C++; a finite f64 beyond f32 has no place in such an array.
    if (std::isfinite(element) && std::fabs(element) > static_cast<double>(std::numeric_limits<float>::max())) {
      return Corrupt("key '{}': element {} ({}) does not fit f32", key, i, element);
    }
    out.push_back(static_cast<float>(element));
  }
  return out;
}

Result<std::vector<bool>> Metadata::GetBoolArray(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of bools";
  BELLHOP_TRY_ASSIGN(const MetaArray* array, FindArray(*this, key, kWanted));
  if (!IsIntType(array->element_type) && array->element_type != MetaType::kBool) {
    return WrongType(key, *Find(key), kWanted);
  }
  std::vector<bool> out;
  out.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    BELLHOP_TRY_ASSIGN(const bool element, ToBool(key, array->At(i), kWanted));
    out.push_back(element);
  }
  return out;
}

Result<std::vector<std::string_view>> Metadata::GetStringArray(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of strings";
  BELLHOP_TRY_ASSIGN(const MetaArray* array, FindArray(*this, key, kWanted));
  if (array->element_type != MetaType::kString) return WrongType(key, *Find(key), kWanted);
  return array->strings;
}

Result<uint64_t> Metadata::GetUintOr(std::string_view key, uint64_t fallback) const {
  if (!Has(key)) return fallback;
  return GetUint(key);
}

Result<double> Metadata::GetFloatOr(std::string_view key, double fallback) const {
  if (!Has(key)) return fallback;
  return GetFloat(key);
}

Result<bool> Metadata::GetBoolOr(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return GetBool(key);
}

Result<std::string_view> Metadata::GetStringOr(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return fallback;
  return GetString(key);
}

}  // namespace bellhop::manifest
