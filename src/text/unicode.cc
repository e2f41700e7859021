#include "text/unicode.h"

#include <array>

#include "text/tokenizer.h"

namespace bellhop::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What may follow a lead byte: the length, and the range of the second byte (later ones are 80-BF).
struct LeadRule {
  uint32_t length = 0;  // 0: not a lead byte
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

constexpr LeadRule RuleOf(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

constexpr bool IsVisibleByte(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The alphabet in both directions. Every visible character is below U+0144, so two bytes of UTF-8 suffice.
struct ByteAlphabet {
  static constexpr int kCodePoints = 256 + 68;
  std::array<std::array<char, 2>, 256> utf8{};
  std::array<uint8_t, 256> utf8_length{};
  std::array<int16_t, kCodePoints> byte_of{};

  constexpr ByteAlphabet() {
    for (int16_t& byte : byte_of) byte = -1;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const int code_point = IsVisibleByte(byte) ? byte : next++;
      byte_of[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
      auto& text = utf8[static_cast<size_t>(byte)];
      if (code_point < 0x80) {
        text[0] = static_cast<char>(code_point);
        utf8_length[static_cast<size_t>(byte)] = 1;
      } else {
        text[0] = static_cast<char>(0xC0 | (code_point >> 6));
        text[1] = static_cast<char>(0x80 | (code_point & 0x3F));
        utf8_length[static_cast<size_t>(byte)] = 2;
      }
    }
  }
};

constexpr ByteAlphabet kAlphabet;

}  // namespace

Utf8Step NextUtf8(std::string_view bytes, size_t at) {
  const auto lead = static_cast<uint8_t>(bytes[at]);
  if (lead < 0x80) return {Utf8Kind::kCharacter, 1, lead};
  const LeadRule rule = RuleOf(lead);
  if (rule.length == 0) return {Utf8Kind::kInvalid, 1, 0};
  char32_t code_point = lead & (0xFFu >> (rule.length + 1));
  for (uint32_t i = 1; i < rule.length; ++i) {
    if (at + i >= bytes.size()) return {Utf8Kind::kTruncated, i, 0};
    const auto byte = static_cast<uint8_t>(bytes[at + i]);
    const uint8_t low = i == 1 ? rule.second_low : 0x80;
    const uint8_t high = i == 1 ? rule.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kInvalid, i, 0};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {Utf8Kind::kCharacter, rule.length, code_point};
}

size_t DrainUtf8(std::string_view bytes, bool final, std::string* out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = NextUtf8(bytes, at);
    if (step.kind == Utf8Kind::kTruncated && !final) break;
    out->append(step.kind == Utf8Kind::kCharacter ? bytes.substr(at, step.length) : kReplacement);
    at += step.length;
  }
  return at;
}

std::string SanitizeUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  DrainUtf8(bytes, true, &out);
  return out;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [code_point](int shift) { return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->append({static_cast<char>(0xC0 | (code_point >> 6)), tail(0)});
  } else if (code_point < 0x10000) {
    out->append({static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)});
  } else {
    out->append({static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)});
  }
}

std::string_view ByteToVisible(uint8_t byte) { return {kAlphabet.utf8[byte].data(), kAlphabet.utf8_length[byte]}; }

int VisibleToByte(char32_t code_point) {
  return code_point < ByteAlphabet::kCodePoints ? kAlphabet.byte_of[code_point] : -1;
}

void AppendVisible(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) out->append(ByteToVisible(static_cast<uint8_t>(byte)));
}

}  // namespace bellhop::text
