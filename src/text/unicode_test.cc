#include "text/unicode.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "text/tokenizer.h"

namespace bellhop::text {
namespace {

constexpr const char* kFffd = "\xEF\xBF\xBD";

std::string Repeat(int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += kFffd;
  return out;
}

TEST(Utf8Test, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Step step = NextUtf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter) << static_cast<uint32_t>(c);
    ASSERT_EQ(step.length, text.size()) << static_cast<uint32_t>(c);
    ASSERT_EQ(step.code_point, c);
    // Every proper prefix may still become valid.
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Step part = NextUtf8(text.substr(0, cut), 0);
      ASSERT_EQ(part.kind, Utf8Kind::kTruncated) << static_cast<uint32_t>(c);
      ASSERT_EQ(part.length, cut) << static_cast<uint32_t>(c);
    }
  }
}

TEST(Utf8Test, IllFormedSubpartsBecomeOneReplacementEach) {
  struct Case {
    std::string bytes;
    std::string expected;
  };
  const Case cases[] = {
      {"", ""},
      {"plain", "plain"},
      {std::string("a\0b", 3), std::string("a\0b", 3)},
      {"\x80", Repeat(1)},
      {"\x80\xBF", Repeat(2)},
      {"\xC3", Repeat(1)},
      {"\xC3(", Repeat(1) + "("},
      {"\xC0\xAF", Repeat(2)},           // overlong
      {"\xC1\xBF", Repeat(2)},           // overlong
      {"\xE0\x80\xAF", Repeat(3)},       // overlong
      {"\xE0\xA0", Repeat(1)},           // truncated
      {"\xE2\x82(", Repeat(1) + "("},    // ends early
      {"\xED\xA0\x80", Repeat(3)},       // surrogate
      {"\xED\x9F\xBF", "\xED\x9F\xBF"},  // just below the surrogates
      {"\xF0\x80\x80\x80", Repeat(4)},   // overlong
      {"\xF0\x9F\x98", Repeat(1)},       // truncated
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", Repeat(1) + "\xF0\x9F\x98\x80"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", Repeat(4)},  // above U+10FFFF
      {"\xF5\x80", Repeat(2)},
      {"\xFF\xFE", Repeat(2)},
      {"a\xE6\x97z\xA5", "a" + Repeat(1) + "z" + Repeat(1)},
  };
  for (const Case& c : cases) EXPECT_EQ(SanitizeUtf8(c.bytes), c.expected) << testing::PrintToString(c.bytes);
}

TEST(Utf8Test, DrainKeepsAnUnfinishedTail) {
  std::string out;
  EXPECT_EQ(DrainUtf8("ab\xF0\x9F", false, &out), 2u);
  EXPECT_EQ(out, "ab");
  out.clear();
  EXPECT_EQ(DrainUtf8("ab\xF0\x9F", true, &out), 4u);
  EXPECT_EQ(out, "ab" + Repeat(1));
  out.clear();
  EXPECT_EQ(DrainUtf8("\xF0(", false, &out), 2u);
  EXPECT_EQ(out, Repeat(1) + "(");
}

TEST(ByteAlphabetTest, IsABijectionWithTheDocumentedValues) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(ByteToVisible(static_cast<uint8_t>(byte)));
    EXPECT_TRUE(seen.insert(text).second);
    const Utf8Step step = NextUtf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter);
    EXPECT_EQ(step.length, text.size());
    EXPECT_EQ(VisibleToByte(step.code_point), byte);
  }
  EXPECT_EQ(ByteToVisible('!'), "!");
  EXPECT_EQ(ByteToVisible(' '), "\u0120");
  EXPECT_EQ(ByteToVisible('\n'), "\u010A");
  EXPECT_EQ(ByteToVisible(0), "\u0100");
  EXPECT_EQ(ByteToVisible(0x7F), "\u0121");
  EXPECT_EQ(ByteToVisible(0xAD), "\u0143");
  EXPECT_EQ(ByteToVisible(0xAE), "\u00AE");
  EXPECT_EQ(VisibleToByte(' '), -1);
  EXPECT_EQ(VisibleToByte(0x144), -1);
  EXPECT_EQ(VisibleToByte(0x2581), -1);
}

}  // namespace
}  // namespace bellhop::text
