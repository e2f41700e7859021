// Regular expressions of `pattern` to GBNF. The text that they match stands between the quotes of a JSON string, so
// characters that JSON escapes are written as their escapes.
#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "decode/json_schema.h"
#include "decode/json_schema_parts.h"

namespace bellhop::decode {
namespace {

constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr int kMaxNesting = 50;
constexpr uint32_t kMaxCount = 10000;

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;  // first, last

Ranges Sorted(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

Ranges Complement(const Ranges& ranges) {
  Ranges out;
  uint32_t next = 0;
  for (const auto& [first, last] : Sorted(ranges)) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) out.emplace_back(next, kLastCodePoint);
  return out;
}

const Ranges kDigit = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnd = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// One character out of `ranges`, as JSON writes it.
std::string ClassGbnf(const Ranges& ranges) {
  std::string plain, out;
  for (const auto& [first, last] : Sorted(ranges)) {
    for (uint32_t from = first; from <= last;) {
      uint32_t to = last;
      const bool escaped = from < 0x20 || from == '"' || from == '\\';
      if (escaped) {
        constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                    {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
        const auto entry = std::find_if(std::begin(kShort), std::end(kShort),
                                        [&](const auto& e) { return static_cast<uint32_t>(e.first) == from; });
        out += " | " + GbnfLiteral(entry != std::end(kShort) ? fmt::format("\\{}", entry->second)
                                                             : fmt::format("\\u{:04x}", from));
        to = from;
      } else {
        for (const uint32_t stop : {uint32_t{'"'}, uint32_t{'\\'}}) {
          if (from < stop && to >= stop) to = stop - 1;
        }
        // Surrogates are no characters.
        if (from <= 0xDFFF && to >= 0xD800) to = from < 0xD800 ? 0xD7FF : std::min<uint32_t>(to, 0xDFFF);
        if (from < 0xD800 || from > 0xDFFF) plain += fmt::format("\\U{:08X}-\\U{:08X}", from, to);
      }
      from = to + 1;
    }
  }
  if (!plain.empty()) out += " | [" + plain + "]";
  return "(" + out.substr(3) + ")";
}

class RegexParser {
 public:
  RegexParser(const std::string& pattern, const std::string& path, const std::string& character)
      : text_(pattern), path_(path), character_(character) {}

  Result<std::string> Parse() {
    // ^ and $ hold for one alternative; with several of them they must be in a group.
    bool from_start = false, to_end = false;
    if (!text_.empty() && text_.front() == '^') {
      from_start = true;
      ++at_;
    }
    end_ = text_.size();
    if (end_ > at_ && text_.back() == '$' && !Escaped(end_ - 1)) {
      to_end = true;
      --end_;
    }
    const size_t alternatives = top_alternatives_;
    BELLHOP_TRY_ASSIGN(const std::string body, Choice(0));
    if (at_ != end_) return Error("a ) without its (");
    if (top_alternatives_ > alternatives && (from_start || to_end)) {
      return Error("put the alternatives between ^ and $ into a group: ^(...|...)$");
    }
    return (from_start ? "" : character_ + "* ") + "(" + body + ")" + (to_end ? "" : " " + character_ + "*");
  }

 private:
  Status Error(std::string_view what) const {
    return SchemaUnsupported(path_, fmt::format("at byte {} of the pattern: {}", at_, what));
  }
  bool AtEnd() const { return at_ >= end_; }
  char Peek(size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool Escaped(size_t at) const {
    size_t slashes = 0;
    while (slashes < at && text_[at - 1 - slashes] == '\\') ++slashes;
    return slashes % 2 == 1;
  }

  Result<std::string> Choice(int depth) {
    if (depth > kMaxNesting) return Error("too many nested groups");
    std::string out;
    while (true) {
      BELLHOP_TRY_ASSIGN(const std::string sequence, Sequence(depth));
      out += sequence.empty() ? "\"\"" : sequence;
      if (AtEnd() || Peek() != '|') return out;
      if (depth == 0) ++top_alternatives_;
      ++at_;
      out += " | ";
    }
  }

  Result<std::string> Sequence(int depth) {
    std::string out;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      BELLHOP_TRY_ASSIGN(std::string atom, Atom(depth));
      BELLHOP_TRY_ASSIGN(const std::string repetition, Quantifier());
      out += (out.empty() ? "" : " ") + atom + repetition;
    }
    return out;
  }

  Result<std::string> Quantifier() {
    std::string out;
    const char c = Peek();
    if (AtEnd() || (c != '*' && c != '+' && c != '?' && c != '{')) return out;
    ++at_;
    if (c != '{') {
      out = c;
    } else {
      BELLHOP_TRY_ASSIGN(const uint32_t min, Count());
      out = fmt::format("{{{}", min);
      if (Peek() == ',') {
        ++at_;
        out += ",";
        if (Peek() != '}') {
          BELLHOP_TRY_ASSIGN(const uint32_t max, Count());
          if (max < min) return Error("a repetition whose maximum is below its minimum");
          out += fmt::format("{}", max);
        }
      }
      if (Peek() != '}') return Error("expected }");
      ++at_;
      out += "}";
    }
    if (Peek() == '?') ++at_;  // which match is found first does not matter here
    if (Peek() == '+' || Peek() == '*' || Peek() == '{') return Error("a quantifier behind a quantifier");
    return out;
  }

  Result<uint32_t> Count() {
    uint32_t count = 0;
    const size_t begin = at_;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      count = count * 10 + static_cast<uint32_t>(Peek() - '0');
      if (count > kMaxCount) return Error(fmt::format("a repetition above {}", kMaxCount));
    }
    if (begin == at_) return Error("expected a number after {");
    return count;
  }

  Result<std::string> Atom(int depth) {
    const char c = Peek();
    if (c == '(') {
      ++at_;
      if (Peek() == '?') {
        if (Peek(1) != ':') return Error("only groups (...) and (?:...) can be enforced");
        at_ += 2;
      }
      BELLHOP_TRY_ASSIGN(const std::string inner, Choice(depth + 1));
      if (AtEnd()) return Error("a ( without its )");
      ++at_;
      return "(" + inner + ")";
    }
    if (c == '^' || c == '$') return Error("^ and $ can be enforced at the ends of the pattern only");
    if (c == '*' || c == '+' || c == '?' || c == '{') return Error("a quantifier without anything before it");
    if (c == '[') {
      BELLHOP_TRY_ASSIGN(const Ranges ranges, Class());
      return ClassGbnf(ranges);
    }
    if (c == '.') {
      ++at_;
      return ClassGbnf(Complement(kLineEnd));
    }
    if (c == '\\') {
      BELLHOP_TRY_ASSIGN(const Ranges ranges, Escape());
      return ClassGbnf(ranges);
    }
    BELLHOP_TRY_ASSIGN(const uint32_t character, Character());
    return ClassGbnf({{character, character}});
  }

  Result<Ranges> Class() {
    ++at_;
    const bool negated = Peek() == '^';
    if (negated) ++at_;
    Ranges ranges;
    while (Peek() != ']') {
      if (AtEnd()) return Error("a [ without its ]");
      BELLHOP_TRY_ASSIGN(const Ranges item, ClassItem());
      const bool single = item.size() == 1 && item[0].first == item[0].second;
      if (single && Peek() == '-' && Peek(1) != ']' && at_ + 1 < end_) {
        ++at_;
        BELLHOP_TRY_ASSIGN(const Ranges last, ClassItem());
        if (last.size() != 1 || last[0].first != last[0].second || last[0].first < item[0].first) {
          return Error("a range in [] that ends before it begins");
        }
        ranges.emplace_back(item[0].first, last[0].first);
      } else {
        ranges.insert(ranges.end(), item.begin(), item.end());
      }
    }
    ++at_;
    if (negated) ranges = Complement(ranges);
    if (ranges.empty()) return Error("a class that no character matches");
    return ranges;
  }

  Result<Ranges> ClassItem() {
    if (Peek() == '\\') return Escape();
    BELLHOP_TRY_ASSIGN(const uint32_t character, Character());
    return Ranges{{character, character}};
  }

  Result<Ranges> Escape() {
    const char c = Peek(1);
    const auto one = [&](uint32_t character) -> Result<Ranges> {
      at_ += 2;
      return Ranges{{character, character}};
    };
    switch (c) {
      case 'd': at_ += 2; return kDigit;
      case 'D': at_ += 2; return Complement(kDigit);
      case 'w': at_ += 2; return kWord;
      case 'W': at_ += 2; return Complement(kWord);
      case 's': at_ += 2; return kSpace;
      case 'S': at_ += 2; return Complement(kSpace);
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 't': return one('\t');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': return Hex(2);
      case 'u': return Hex(4);
      default: break;
    }
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\0';
    if (word || static_cast<uint8_t>(c) >= 0x80) return Error("an escape that cannot be enforced");
    return one(static_cast<uint32_t>(c));
  }

  Result<Ranges> Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Peek(2 + i);
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!letter && (c < '0' || c > '9')) return Error("an escape without its hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    if (value >= 0xD800 && value <= 0xDFFF) return Error("half a surrogate pair");
    at_ += 2 + digits;
    return Ranges{{value, value}};
  }

  Result<uint32_t> Character() {
    const uint8_t lead = static_cast<uint8_t>(Peek());
    const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (at_ + length > end_) return Error("text that is not UTF-8");
    uint32_t value = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) value = value << 6 | (static_cast<uint8_t>(Peek(i)) & 0x3Fu);
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) return Error("text that is not UTF-8");
    at_ += length;
    return value;
  }

  const std::string& text_;
  const std::string& path_;
  const std::string& character_;
  size_t at_ = 0, end_ = 0;
  size_t top_alternatives_ = 0;
};

}  // namespace

Result<std::string> PatternGbnf(const std::string& pattern, const std::string& path, const std::string& character) {
  return RegexParser(pattern, path, character).Parse();
}

}  // namespace bellhop::decode
