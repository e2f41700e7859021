// UTF-8 stepping that tells malformed from unfinished, and the visible alphabet of byte-level BPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bellhop::text {

enum class Utf8Kind {
  kCharacter,  // a well-formed character
  kInvalid,    // bytes that no continuation can make valid
  kTruncated,  // the text ends inside a character that is well-formed so far
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kInvalid;
  uint32_t length = 1;      // bytes; for kInvalid the maximal ill-formed subpart (Unicode 3.9, table 3-7), 1 to 3
  char32_t code_point = 0;  // kCharacter only
};

// Reads one step at `at` (< bytes.size()). Overlong forms, surrogates and values above U+10FFFF are invalid.
Utf8Step NextUtf8(std::string_view bytes, size_t at);

// Copies whole characters to `out` and U+FFFD for every ill-formed subpart; returns how many bytes were consumed.
// A character unfinished at the end stays unconsumed, or becomes one U+FFFD when `final` is true.
size_t DrainUtf8(std::string_view bytes, bool final, std::string* out);

void AppendUtf8(char32_t code_point, std::string* out);

// Byte-level BPE writes each byte as one visible character: bytes 33-126, 161-172 and 174-255 as themselves, the other
// 68, in order, as U+0100 and up.
std::string_view ByteToVisible(uint8_t byte);  // UTF-8, one or two bytes, static storage
int VisibleToByte(char32_t code_point);        // -1: not in the alphabet
void AppendVisible(std::string_view bytes, std::string* out);

}  // namespace bellhop::text
