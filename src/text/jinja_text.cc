#include "text/jinja_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "text/jinja_unicode_tables.h"

namespace bellhop::text {
namespace {

bool InRanges(const JinjaCharRange* ranges, size_t count, uint32_t code) {
  const JinjaCharRange* end = ranges + count;
  const JinjaCharRange* it =
      std::upper_bound(ranges, end, code, [](uint32_t c, const JinjaCharRange& r) { return c < r.first; });
  if (it == ranges) return false;
  --it;
  return code <= it->last && (code - it->first) % it->stride == 0;
}

struct CaseTable {
  const JinjaCaseRange* ranges;
  size_t range_count;
  const JinjaCaseSpecial* specials;
  size_t special_count;
};

const CaseTable kUpperTable{kUpperCaseRanges, kUpperCaseRangeCount, kUpperCaseSpecials, kUpperCaseSpecialCount};
const CaseTable kLowerTable{kLowerCaseRanges, kLowerCaseRangeCount, kLowerCaseSpecials, kLowerCaseSpecialCount};
const CaseTable kTitleTable{kTitleCaseRanges, kTitleCaseRangeCount, kTitleCaseSpecials, kTitleCaseSpecialCount};

void AppendMapped(std::string* out, const CaseTable& table, uint32_t code) {
  const JinjaCaseSpecial* special_end = table.specials + table.special_count;
  const JinjaCaseSpecial* special = std::lower_bound(table.specials, special_end, code,
                                                     [](const JinjaCaseSpecial& s, uint32_t c) { return s.code < c; });
  if (special != special_end && special->code == code) {
    for (uint32_t mapped : special->mapped) {
      if (mapped != 0) AppendChar(out, mapped);
    }
    return;
  }
  const JinjaCaseRange* end = table.ranges + table.range_count;
  const JinjaCaseRange* it =
      std::upper_bound(table.ranges, end, code, [](uint32_t c, const JinjaCaseRange& r) { return c < r.first; });
  if (it != table.ranges) {
    --it;
    if (code <= it->last && (code - it->first) % it->stride == 0) {
      AppendChar(out, static_cast<uint32_t>(static_cast<int64_t>(code) + it->delta));
      return;
    }
  }
  AppendChar(out, code);
}

bool IsCased(uint32_t code) { return IsUpper(code) || IsLower(code) || IsTitle(code); }

// Characters that do not end a word for the final-sigma rule.
bool IsCaseIgnorable(uint32_t code) {
  return code == '\'' || code == '.' || code == ':' || code == '^' || code == '`' || code == 0xA8 || code == 0xAD ||
         code == 0xAF || code == 0xB4 || code == 0xB7 || code == 0xB8 || code == 0x2019 ||
         (code >= 0x300 && code <= 0x36F) || (code >= 0x200B && code <= 0x200F);
}

// Greek capital sigma becomes a final sigma at the end of a word.
bool SigmaIsFinal(std::string_view text, size_t offset, uint32_t size) {
  size_t before = offset;
  bool cased_before = false;
  while (before > 0) {
    const JinjaChar c = CharBefore(text, before);
    before -= c.size;
    if (IsCaseIgnorable(c.code)) continue;
    cased_before = IsCased(c.code);
    break;
  }
  if (!cased_before) return false;
  size_t after = offset + size;
  while (after < text.size()) {
    const JinjaChar c = CharAt(text, after);
    after += c.size;
    if (IsCaseIgnorable(c.code)) continue;
    return !IsCased(c.code);
  }
  return true;
}

void AppendLower(std::string* out, std::string_view text, size_t offset, JinjaChar c) {
  if (c.code == 0x3A3) {
    AppendChar(out, SigmaIsFinal(text, offset, c.size) ? 0x3C2 : 0x3C3);
  } else {
    AppendMapped(out, kLowerTable, c.code);
  }
}

// Calls fn(offset, char) for every valid character and copies stray bytes.
template <typename Fn>
std::string MapChars(std::string_view text, Fn fn) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    if (c.code == kInvalidChar) {
      out.append(text.substr(i, c.size));
    } else {
      fn(&out, i, c);
    }
    i += c.size;
  }
  return out;
}

bool IsLineEnd(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

}  // namespace

JinjaChar CharAt(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(offset);
  if (lead < 0x80) return {lead, 1};
  uint32_t size = 0;
  uint32_t code = 0;
  uint32_t smallest = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2, code = lead & 0x1F, smallest = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3, code = lead & 0x0F, smallest = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4, code = lead & 0x07, smallest = 0x10000;
  } else {
    return {kInvalidChar, 1};
  }
  if (text.size() - offset < size) return {kInvalidChar, 1};
  for (uint32_t i = 1; i < size; ++i) {
    if ((byte(offset + i) & 0xC0) != 0x80) return {kInvalidChar, 1};
    code = code << 6 | (byte(offset + i) & 0x3F);
  }
  if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {kInvalidChar, 1};
  return {code, size};
}

JinjaChar CharBefore(std::string_view text, size_t end) {
  for (uint32_t size = 2; size <= 4 && size <= end; ++size) {
    const auto lead = static_cast<uint8_t>(text[end - size]);
    if ((lead & 0xC0) == 0x80) continue;
    const JinjaChar c = CharAt(text, end - size);
    if (lead >= 0x80 && c.size == size) return c;
    break;
  }
  const auto last = static_cast<uint8_t>(text[end - 1]);
  return {last < 0x80 ? last : kInvalidChar, 1};
}

void AppendChar(std::string* out, uint32_t code) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

int64_t CountChars(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    i += static_cast<uint8_t>(text[i]) < 0x80 ? 1 : CharAt(text, i).size;
  }
  return count;
}

size_t ByteOffset(std::string_view text, int64_t index) {
  size_t i = 0;
  for (; index > 0 && i < text.size(); --index) {
    i += static_cast<uint8_t>(text[i]) < 0x80 ? 1 : CharAt(text, i).size;
  }
  return i;
}

bool IsPythonSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool IsAlpha(uint32_t code) { return InRanges(kAlphaRanges, kAlphaRangeCount, code); }
bool IsDecimal(uint32_t code) { return InRanges(kDecimalRanges, kDecimalRangeCount, code); }
bool IsDigit(uint32_t code) { return InRanges(kDigitRanges, kDigitRangeCount, code); }
bool IsNumeric(uint32_t code) { return InRanges(kNumericRanges, kNumericRangeCount, code); }
bool IsAlnum(uint32_t code) { return IsAlpha(code) || IsDecimal(code) || IsDigit(code) || IsNumeric(code); }
bool IsUpper(uint32_t code) { return InRanges(kUpperRanges, kUpperRangeCount, code); }
bool IsLower(uint32_t code) { return InRanges(kLowerRanges, kLowerRangeCount, code); }
bool IsTitle(uint32_t code) { return InRanges(kTitleOnlyRanges, kTitleOnlyRangeCount, code); }
bool IsPrintable(uint32_t code) {
  return code != kInvalidChar && !InRanges(kUnprintableRanges, kUnprintableRangeCount, code);
}

std::string ToUpper(std::string_view text) {
  return MapChars(text, [](std::string* out, size_t, JinjaChar c) { AppendMapped(out, kUpperTable, c.code); });
}

std::string ToLower(std::string_view text) {
  return MapChars(text, [&](std::string* out, size_t i, JinjaChar c) { AppendLower(out, text, i, c); });
}

std::string ToTitle(std::string_view text) {
  bool previous_cased = false;
  return MapChars(text, [&](std::string* out, size_t i, JinjaChar c) {
    if (previous_cased) {
      AppendLower(out, text, i, c);
    } else {
      AppendMapped(out, kTitleTable, c.code);
    }
    previous_cased = IsCased(c.code);
  });
}

std::string ToCapitalized(std::string_view text) {
  return MapChars(text, [&](std::string* out, size_t i, JinjaChar c) {
    if (i == 0) {
      AppendMapped(out, kTitleTable, c.code);
    } else {
      AppendLower(out, text, i, c);
    }
  });
}

std::string ToSwappedCase(std::string_view text) {
  return MapChars(text, [&](std::string* out, size_t i, JinjaChar c) {
    if (IsUpper(c.code)) {
      AppendLower(out, text, i, c);
    } else if (IsLower(c.code)) {
      AppendMapped(out, kUpperTable, c.code);
    } else {
      AppendChar(out, c.code);
    }
  });
}

template <typename Pred>
static std::string_view StripIf(std::string_view text, StripSide side, Pred strips) {
  size_t begin = 0;
  size_t end = text.size();
  if (side != StripSide::kRight) {
    while (begin < end) {
      const JinjaChar c = CharAt(text, begin);
      if (!strips(text.substr(begin, c.size), c)) break;
      begin += c.size;
    }
  }
  if (side != StripSide::kLeft) {
    while (begin < end) {
      const JinjaChar c = CharBefore(text, end);
      if (!strips(text.substr(end - c.size, c.size), c)) break;
      end -= c.size;
    }
  }
  return text.substr(begin, end - begin);
}

std::string_view StripSpace(std::string_view text, StripSide side) {
  return StripIf(text, side, [](std::string_view, JinjaChar c) { return IsPythonSpace(c.code); });
}

std::string_view StripChars(std::string_view text, std::string_view chars, StripSide side) {
  return StripIf(text, side, [&](std::string_view bytes, JinjaChar c) {
    for (size_t i = 0; i < chars.size();) {
      const JinjaChar other = CharAt(chars, i);
      if (other.size == c.size && chars.substr(i, other.size) == bytes) return true;
      i += other.size;
    }
    return false;
  });
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    if (!IsLineEnd(c.code)) {
      i += c.size;
      continue;
    }
    size_t next = i + c.size;
    if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(start, (keep_ends ? next : i) - start));
    start = i = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string StringRepr(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    const std::string_view bytes = text.substr(i, c.size);
    i += c.size;
    if (c.code == static_cast<uint32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += bytes;
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (c.code == kInvalidChar) {
      fmt::format_to(std::back_inserter(out), "\\udc{:02x}", static_cast<uint8_t>(bytes[0]));
    } else if (IsPrintable(c.code)) {
      out += bytes;
    } else if (c.code < 0x100) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c.code);
    } else if (c.code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c.code);
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08x}", c.code);
    }
  }
  out += quote;
  return out;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  std::string sign;
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  int exponent = 0;
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return fmt::format("{}e{}{:02}", out, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string FixedFloat(double value, int precision) {
  std::string buffer(static_cast<size_t>(std::max(precision, 0)) + 350, '\0');
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, precision);
  buffer.resize(static_cast<size_t>(result.ptr - buffer.data()));
  return buffer;
}

}  // namespace bellhop::text
