// Text operations with the meaning of Python's str methods, on UTF-8. Positions and lengths that the templates see are
// in characters. A byte that is not part of valid UTF-8 counts as one character without properties and is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bellhop::text {

// One character of a string: its bytes and its code point (kInvalidChar for a stray byte).
inline constexpr uint32_t kInvalidChar = 0xFFFFFFFF;
struct JinjaChar {
  uint32_t code;
  uint32_t size;
};

// `offset` < text.size().
JinjaChar CharAt(std::string_view text, size_t offset);
// The character that ends at `end` > 0.
JinjaChar CharBefore(std::string_view text, size_t end);
void AppendChar(std::string* out, uint32_t code);
int64_t CountChars(std::string_view text);
// Byte offset of character number `index` (text.size() when there are fewer).
size_t ByteOffset(std::string_view text, int64_t index);

bool IsPythonSpace(uint32_t code);
bool IsAlpha(uint32_t code);
bool IsDecimal(uint32_t code);
bool IsDigit(uint32_t code);
bool IsNumeric(uint32_t code);
bool IsAlnum(uint32_t code);
bool IsUpper(uint32_t code);
bool IsLower(uint32_t code);
bool IsTitle(uint32_t code);
bool IsPrintable(uint32_t code);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);  // str.title: words are runs of cased characters
std::string ToCapitalized(std::string_view text);
std::string ToSwappedCase(std::string_view text);

enum class StripSide { kBoth, kLeft, kRight };
std::string_view StripSpace(std::string_view text, StripSide side);
// Removes characters that occur in `chars`.
std::string_view StripChars(std::string_view text, std::string_view chars, StripSide side);

// str.splitlines: lines without their ends, or with them when `keep_ends`.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// & < > ' " as HTML entities.
std::string EscapeHtml(std::string_view text);

// repr() of a str: quotes chosen as Python does, unprintable characters escaped.
std::string StringRepr(std::string_view text);
// repr() of a float: shortest digits that read back, exponent form from 1e16 and below 1e-4.
std::string FloatRepr(double value);
// `%.<precision>f` without a locale.
std::string FixedFloat(double value, int precision);

}  // namespace bellhop::text
