#include "formats/gguf/split_files.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <variant>

#include "base/units.h"

namespace bellhop::formats {

using manifest::MetaArray;
using manifest::Metadata;
using manifest::MetaValue;

namespace {

constexpr uint64_t kMaxParts = 65535;  // split.count is a u16
constexpr std::string_view kPartSuffix = ".gguf";
constexpr size_t kPartDigits = 5;

bool SameArray(const MetaArray& a, const MetaArray& b) {
  if (a.element_type != b.element_type || a.count != b.count) return false;
  if (a.raw.size() != b.raw.size()) return false;
  if (!a.raw.empty() && std::memcmp(a.raw.data(), b.raw.data(), a.raw.size()) != 0) return false;
  return a.strings == b.strings && std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(),
                                              [](const MetaArray& x, const MetaArray& y) { return SameArray(x, y); });
}

bool SameValue(const MetaValue& a, const MetaValue& b) {
  if (a.is_array() || b.is_array()) return a.is_array() && b.is_array() && SameArray(a.array(), b.array());
  if (a.value.index() != b.value.index()) return false;
  if (const auto* x = std::get_if<double>(&a.value)) {  // bits, so that NaN equals itself
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(std::get<double>(b.value));
  }
  return a.value == b.value;
}

// The number in exactly five digits, or nothing.
std::optional<uint32_t> FiveDigits(std::string_view text) {
  if (text.size() != kPartDigits) return std::nullopt;
  uint32_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  return number;
}

Result<uint64_t> SplitKey(const GgufFile& file, std::string_view key, uint64_t fallback) {
  Result<uint64_t> value = file.metadata.GetUintOr(key, fallback);
  if (!value.ok()) return value.status().WithContext(file.name);
  return value;
}

}  // namespace

Result<SplitInfo> ReadSplitInfo(const GgufFile& file) {
  SplitInfo info;
  BELLHOP_TRY_ASSIGN(const uint64_t count, SplitKey(file, "split.count", 1));
  BELLHOP_TRY_ASSIGN(const uint64_t number, SplitKey(file, "split.no", 0));
  if (count > kMaxParts)
    return Corrupt("{}: key 'split.count': {} parts, at most {} are possible", file.name, count, kMaxParts);
  info.count = count == 0 ? 1 : static_cast<uint32_t>(count);  // some splitters write 0 for a whole file
  if (number >= info.count) {
    return Corrupt("{}: key 'split.no': part {} (from 0) of {} cannot be", file.name, number, info.count);
  }
  info.number = static_cast<uint32_t>(number);
  if (file.metadata.Has("split.tensors.count")) {
    BELLHOP_TRY_ASSIGN(info.total_tensors, SplitKey(file, "split.tensors.count", 0));
  }
  return info;
}

std::optional<PartName> ParsePartName(std::string_view path) {
  // prefix "-" 00001 "-of-" 00003 ".gguf"
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTail = 1 + kPartDigits + kOf.size() + kPartDigits + kPartSuffix.size();
  if (path.size() < kTail) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  const std::optional<uint32_t> number = FiveDigits(tail.substr(1, kPartDigits));
  const std::optional<uint32_t> count = FiveDigits(tail.substr(1 + kPartDigits + kOf.size(), kPartDigits));
  if (tail[0] != '-' || tail.substr(1 + kPartDigits, kOf.size()) != kOf || !number || !count ||
      tail.substr(kTail - kPartSuffix.size()) != kPartSuffix) {
    return std::nullopt;
  }
  return PartName{std::string(path.substr(0, path.size() - kTail)), *number, *count};
}

std::string MakePartName(std::string_view prefix, uint32_t number, uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}{}", prefix, number, count, kPartSuffix);
}

Status CheckSameModel(const GgufFile& first, const GgufFile& part, uint32_t expected_number) {
  constexpr std::string_view kRemedy = "use parts of one and the same model";
  BELLHOP_TRY_ASSIGN(const SplitInfo info, ReadSplitInfo(part));
  BELLHOP_TRY_ASSIGN(const SplitInfo first_info, ReadSplitInfo(first));
  if (info.count != first_info.count) {
    return Corrupt("{}: key 'split.count': {} here, {} in {}; {}", part.name, info.count, first_info.count, first.name,
                   kRemedy);
  }
  if (info.number != expected_number) {
    return Corrupt("{}: key 'split.no': its metadata say part {} of {}, its name says part {}; rename the file",
                   part.name, info.number + 1, info.count, expected_number + 1);
  }
  for (const Metadata::Entry& entry : part.metadata.entries()) {
    if (entry.key == "split.no" || entry.key == "general.alignment") continue;
    const MetaValue* other = first.metadata.Find(entry.key);
    if (other != nullptr && !SameValue(entry.value, *other)) {
      return Corrupt("{}: key '{}': {} here, {} in {}; {}", part.name, Printable(entry.key), ToString(entry.value),
                     ToString(*other), first.name, kRemedy);
    }
  }
  return {};
}

Status CheckNotConcatenated(const GgufFile& part, HostSpan<const std::byte> bytes) {
  constexpr char kNextHeader[] = {'G', 'G', 'U', 'F'};
  for (const uint64_t at : {part.data_end, RoundUp(part.data_end, part.alignment)}) {
    if (at > bytes.size() || bytes.size() - at < sizeof(kNextHeader)) continue;
    if (std::memcmp(bytes.data() + at, kNextHeader, sizeof(kNextHeader)) == 0) {
      return Corrupt(
          "{}: offset {}: another GGUF file begins here: parts of a split model were joined byte by byte; keep the "
          "parts as they are and give one of them, or join them with a GGUF merge tool",
          part.name, at);
    }
  }
  return {};
}

}  // namespace bellhop::formats
