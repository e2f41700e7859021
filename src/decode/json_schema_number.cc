// Bounds of numbers as expressions over their digits.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "decode/json_schema_parts.h"

namespace bellhop::decode {
namespace {

constexpr int64_t kLargest = 9'999'999'999'999'999;  // 16 digits

struct Bound {
  int64_t value = 0;
  bool exclusive = false;
};
struct Bounds {
  Bound low{-kLargest, false}, high{kLargest, false};
  bool any = false;
};

std::string AnyDigits(size_t count) { return count == 0 ? "" : fmt::format(" [0-9]{{{}}}", count); }

// Numbers of low.size() digits from low to high, leading zeros included.
std::string SameLength(const std::string& low, const std::string& high) {
  if (low.empty()) return "\"\"";
  const size_t rest = low.size() - 1;
  if (low[0] == high[0]) return fmt::format("\"{}\" ({})", low[0], SameLength(low.substr(1), high.substr(1)));
  char first = low[0], last = high[0];
  std::string out;
  if (low.substr(1) != std::string(rest, '0')) {
    out += fmt::format("\"{}\" ({}) | ", first, SameLength(low.substr(1), std::string(rest, '9')));
    ++first;
  }
  const bool partial = high.substr(1) != std::string(rest, '9');
  if (partial) --last;
  if (first <= last) out += fmt::format("[{}-{}]{} | ", first, last, AnyDigits(rest));
  if (partial) out += fmt::format("\"{}\" ({}) | ", high[0], SameLength(std::string(rest, '0'), high.substr(1)));
  return out.substr(0, out.size() - 3);
}

// 0 <= low <= high.
std::string Range(int64_t low, int64_t high) {
  std::string out;
  const std::string last = fmt::format("{}", high);
  for (std::string from = fmt::format("{}", low);;) {
    const std::string to = from.size() == last.size() ? last : std::string(from.size(), '9');
    out += (out.empty() ? "(" : " | ") + SameLength(from, to);
    if (from.size() == last.size()) return out + ")";
    from = "1" + std::string(from.size(), '0');
  }
}

Result<Bound> ReadBound(const SchemaJson& value, const std::string& path, bool low, bool integers) {
  if (!value.is_number()) return SchemaInvalid(path, "give a number");
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kLargest)) return Bound{kLargest + 1};
  if (value.is_number_integer()) {
    return Bound{std::clamp(value.get<int64_t>(), -kLargest - 1, kLargest + 1), false};
  }
  const double number = value.get<double>();
  double whole = low ? std::ceil(number) : std::floor(number);
  if (whole != number && !integers) {
    return SchemaUnsupported(path, "bounds of numbers that are not integers can only be enforced where they are whole");
  }
  whole = std::clamp(whole, -static_cast<double>(kLargest), static_cast<double>(kLargest));
  return Bound{static_cast<int64_t>(whole), false};
}

Result<Bounds> ReadBounds(const SchemaJson& schema, const std::string& path, bool integers) {
  Bounds bounds;
  for (const bool low : {true, false}) {
    for (const bool exclusive : {false, true}) {
      const char* const name =
          low ? (exclusive ? "exclusiveMinimum" : "minimum") : (exclusive ? "exclusiveMaximum" : "maximum");
      const auto entry = schema.find(name);
      if (entry == schema.end()) continue;
      const std::string where = SchemaPath(path, name);
      if (entry->is_boolean()) return SchemaUnsupported(where, "give the bound as a number");
      BELLHOP_TRY_ASSIGN(Bound bound, ReadBound(*entry, where, low, integers));
      bounds.any = true;
      bound.exclusive = exclusive;
      if (exclusive && integers) {
        // A fractional bound was rounded inwards, so it is already left out.
        const bool whole = !entry->is_number_float() || std::floor(entry->get<double>()) == entry->get<double>();
        if (whole) bound.value += low ? 1 : -1;
        bound.exclusive = false;
      }
      Bound& old = low ? bounds.low : bounds.high;
      const bool tighter = low ? bound.value > old.value : bound.value < old.value;
      if (tighter || (bound.value == old.value && bound.exclusive)) old = bound;
    }
  }
  const int64_t low = bounds.low.value, high = bounds.high.value;
  if (low > high || (low == high && (bounds.low.exclusive || bounds.high.exclusive))) {
    return SchemaInvalid(path, "no number of at most 16 digits is within the bounds");
  }
  return bounds;
}

// Few enough digits that a double does not round up to the bound.
constexpr char kFraction[] = "(\".\" [0-9]{1,6})?";
constexpr char kZeroFraction[] = "(\".\" \"0\"{1,6})?";
constexpr char kNonZeroFraction[] = "\".\" [0-9]{0,5} [1-9]";

// Numbers without a sign, 0 <= low <= high.
std::string Magnitude(Bound low, Bound high) {
  if (low.value == high.value) return fmt::format("\"{}\" {}", low.value, kZeroFraction);
  std::string out = fmt::format("\"{}\" {}", low.value, low.exclusive ? kNonZeroFraction : kFraction);
  if (low.value + 1 < high.value) out += fmt::format(" | {} {}", Range(low.value + 1, high.value - 1), kFraction);
  if (!high.exclusive) out += fmt::format(" | \"{}\" {}", high.value, kZeroFraction);
  return out;
}

}  // namespace

Result<std::string> IntegerGbnf(const SchemaJson& schema, const std::string& path) {
  BELLHOP_TRY_ASSIGN(const Bounds bounds, ReadBounds(schema, path, true));
  if (!bounds.any) return std::string("\"-\"? (\"0\" | [1-9] [0-9]{0,15})");
  std::string out;
  const int64_t low = bounds.low.value, high = bounds.high.value;
  if (low < 0) out = "\"-\" " + Range(std::max<int64_t>(1, -high), -low);
  if (high >= 0) out += (out.empty() ? "" : " | ") + Range(std::max<int64_t>(0, low), high);
  return out;
}

Result<std::string> NumberGbnf(const SchemaJson& schema, const std::string& path) {
  BELLHOP_TRY_ASSIGN(const Bounds bounds, ReadBounds(schema, path, false));
  if (!bounds.any) {
    return std::string("\"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?");
  }
  std::string out;
  const Bound low = bounds.low, high = bounds.high;
  if (low.value < 0) {
    const Bound near = high.value < 0 ? Bound{-high.value, high.exclusive} : Bound{0, true};
    out = fmt::format("\"-\" ({})", Magnitude(near, {-low.value, low.exclusive}));
  }
  if (high.value > 0 || (high.value == 0 && !high.exclusive)) {
    const Bound near = low.value >= 0 ? low : Bound{0, false};
    out += (out.empty() ? "" : " | ") + Magnitude(near, high);
  }
  return out;
}

}  // namespace bellhop::decode
