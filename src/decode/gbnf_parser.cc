// GBNF text to a syntax tree.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "decode/grammar_program.h"

namespace bellhop::decode {
namespace {

constexpr size_t kMaxTextBytes = size_t{8} << 20;
constexpr int kMaxNesting = 200;             // of parentheses; the parser and the compiler recurse
constexpr int kMaxOperators = 4;             // on one element
constexpr uint32_t kMaxRepetitions = 65536;  // of one element
constexpr uint32_t kLastCodePoint = 0x10FFFF;

using Kind = GrammarNode::Kind;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// For messages, which are UTF-8.
std::string Shown(char c) {
  return c >= ' ' && c <= '~' ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02X}", static_cast<uint8_t>(c));
}

bool IsSurrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

// Sorts and joins; with `negated`, what is left of all characters. Surrogates are no characters.
std::vector<CodePointRange> Normalize(std::vector<CodePointRange> ranges, bool negated) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<CodePointRange> joined;
  for (const CodePointRange& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  if (!negated) return joined;
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const CodePointRange& range : joined) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<GrammarSyntax> Parse() {
    if (text_.size() > kMaxTextBytes) {
      return InvalidArgument("grammar:1:1: {} bytes of text: at most {} are allowed", text_.size(), kMaxTextBytes);
    }
    for (SkipSpace(true); !AtEnd(); SkipSpace(true)) BELLHOP_TRY(ParseRule());
    return Finish();
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  GrammarPlace Place() const { return {line_, static_cast<int32_t>(at_ - line_start_) + 1}; }
  Status Error(std::string_view what) const { return GrammarError(Place(), what); }

  void SkipSpace(bool newlines) {
    for (; !AtEnd(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (!AtEnd() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
        if (AtEnd()) return;
        --at_;
      } else if (c == '\n') {
        if (!newlines) return;
        ++line_;
        line_start_ = at_ + 1;
      } else if (c == '\r') {
        if (!newlines) return;
      } else if (c != ' ' && c != '\t') {
        return;
      }
    }
  }

  std::string_view ReadName() {
    const size_t begin = at_;
    while (!AtEnd() && IsNameByte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  uint32_t AddNode(GrammarNode node) {
    syntax_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(syntax_.nodes.size() - 1);
  }

  uint32_t RuleIndex(std::string_view name) {
    const auto [entry, added] = index_.try_emplace(std::string(name), static_cast<uint32_t>(syntax_.rules.size()));
    if (added) syntax_.rules.push_back({std::string(name), {}, {}, 0});
    return entry->second;
  }

  Status ParseRule() {
    const GrammarPlace place = Place();
    const std::string_view name = ReadName();
    if (name.empty()) return Error("expected a rule: name ::= ...");
    SkipSpace(false);
    if (text_.substr(at_, 3) != "::=") return Error(fmt::format("expected ::= after rule name '{}'", name));
    at_ += 3;
    SkipSpace(true);
    const uint32_t rule = RuleIndex(name);
    if (syntax_.rules[rule].defined.line != 0) {
      return GrammarError(
          place, fmt::format("rule '{}' is defined twice, first in line {}", name, syntax_.rules[rule].defined.line));
    }
    syntax_.rules[rule].defined = place;
    BELLHOP_TRY_ASSIGN(const uint32_t body, ParseChoice(0));
    syntax_.rules[rule].body = body;
    if (!AtEnd() && Peek() != '\n' && Peek() != '\r') {
      return Error(fmt::format("unexpected {} in rule '{}'", Shown(Peek()), name));
    }
    return Status();
  }

  Result<uint32_t> ParseChoice(int depth) {
    GrammarNode choice{.kind = Kind::kChoice};
    while (true) {
      BELLHOP_TRY_ASSIGN(const uint32_t sequence, ParseSequence(depth));
      choice.children.push_back(sequence);
      if (Peek() != '|' && !(depth == 0 && NextLineContinues())) break;
      ++at_;
      SkipSpace(true);
    }
    return choice.children.size() == 1 ? choice.children[0] : AddNode(std::move(choice));
  }

  // Outside parentheses a line that begins with | goes on with the rule above it; then moves there.
  bool NextLineContinues() {
    if (Peek() != '\n' && Peek() != '\r') return false;
    const size_t at = at_, line_start = line_start_;
    const int32_t line = line_;
    SkipSpace(true);
    if (Peek() == '|') return true;
    at_ = at;
    line_ = line;
    line_start_ = line_start;
    return false;
  }

  Result<uint32_t> ParseSequence(int depth) {
    GrammarNode sequence{.kind = Kind::kSequence};
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      BELLHOP_TRY_ASSIGN(uint32_t element, ParseElement(depth));
      SkipSpace(depth > 0);
      // Operators may follow each other (a+?), and each is a level of the tree.
      for (int level = 0; Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{'; ++level) {
        if (level == kMaxOperators) return Error(fmt::format("more than {} repetition operators", kMaxOperators));
        BELLHOP_TRY_ASSIGN(element, ParseRepetition(element));
        SkipSpace(depth > 0);
      }
      sequence.children.push_back(element);
    }
    return sequence.children.size() == 1 ? sequence.children[0] : AddNode(std::move(sequence));
  }

  Result<uint32_t> ParseElement(int depth) {
    const char c = Peek();
    if (c == '"') return ParseLiteral();
    if (c == '[') return ParseClass();
    if (c == '<') return ParseToken();
    if (c == '.') {
      ++at_;
      return AddNode({.kind = Kind::kClass, .ranges = Normalize({}, true)});
    }
    if (c == '(') {
      if (depth >= kMaxNesting) return Error(fmt::format("more than {} nested parentheses", kMaxNesting));
      const GrammarPlace place = Place();
      ++at_;
      SkipSpace(true);
      BELLHOP_TRY_ASSIGN(const uint32_t inner, ParseChoice(depth + 1));
      if (Peek() != ')') return GrammarError(place, "parenthesis without its )");
      ++at_;
      return inner;
    }
    if (!IsNameByte(c)) {
      return Error(fmt::format("unexpected {}: expected a literal, a class, a rule name or a group", Shown(c)));
    }
    const GrammarPlace place = Place();
    const uint32_t rule = RuleIndex(ReadName());
    if (syntax_.rules[rule].used.line == 0) syntax_.rules[rule].used = place;
    return AddNode({.kind = Kind::kRule, .rule = rule});
  }

  Result<uint32_t> ParseLiteral() {
    const GrammarPlace place = Place();
    GrammarNode literal{.kind = Kind::kLiteral};
    for (++at_; Peek() != '"';) {
      if (AtEnd() || Peek() == '\n') return GrammarError(place, "string without its closing \"");
      BELLHOP_TRY_ASSIGN(const uint32_t c, ReadCharacter());
      AppendUtf8(c, &literal.text);
    }
    ++at_;
    return AddNode(std::move(literal));
  }

  Result<uint32_t> ParseToken() {
    const size_t end = text_.find_first_of(">\n", at_);
    if (end == std::string_view::npos || text_[end] != '>' || end == at_ + 1) {
      return Error("expected the text of a token: <...>");
    }
    GrammarNode token{.kind = Kind::kLiteral};
    token.text.push_back(static_cast<char>(kTokenMark));
    token.text.append(text_.substr(at_, end + 1 - at_));
    token.text.push_back(static_cast<char>(kTokenMark));
    at_ = end + 1;
    return AddNode(std::move(token));
  }

  Result<uint32_t> ParseClass() {
    const GrammarPlace place = Place();
    ++at_;
    const bool negated = Peek() == '^';
    if (negated) ++at_;
    std::vector<CodePointRange> ranges;
    while (Peek() != ']') {
      if (AtEnd() || Peek() == '\n') return GrammarError(place, "character class without its ]");
      BELLHOP_TRY_ASSIGN(const uint32_t first, ReadCharacter());
      uint32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        if (AtEnd() || Peek() == '\n') return GrammarError(place, "character class without its ]");
        BELLHOP_TRY_ASSIGN(last, ReadCharacter());
      }
      if (last < first) return GrammarError(place, "a range of the character class ends before it begins");
      ranges.push_back({first, last});
    }
    ++at_;
    ranges = Normalize(std::move(ranges), negated);
    if (ranges.empty()) return GrammarError(place, "character class that no character matches");
    return AddNode({.kind = Kind::kClass, .ranges = std::move(ranges)});
  }

  // A character of a literal or a class: an escape or UTF-8.
  Result<uint32_t> ReadCharacter() {
    if (Peek() != '\\') return ReadUtf8();
    const char kind = Peek(1);
    switch (kind) {
      case 'x': return ReadHex(2);
      case 'u': return ReadHex(4);
      case 'U': return ReadHex(8);
      case 'n': at_ += 2; return uint32_t{'\n'};
      case 'r': at_ += 2; return uint32_t{'\r'};
      case 't': at_ += 2; return uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
      case '\'': at_ += 2; return static_cast<uint32_t>(kind);
      default: return Error("unknown escape: use \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xNN \\uNNNN or \\UNNNNNNNN");
    }
  }

  Result<uint32_t> ReadHex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Peek(2 + i);
      uint32_t digit = 0;
      if (c >= '0' && c <= '9')
        digit = static_cast<uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        digit = static_cast<uint32_t>(c - 'a') + 10;
      else if (c >= 'A' && c <= 'F')
        digit = static_cast<uint32_t>(c - 'A') + 10;
      else
        return Error(fmt::format("escape \\{} needs {} hexadecimal digits", Peek(1), digits));
      value = value << 4 | digit;
    }
    if (value > kLastCodePoint || IsSurrogate(value)) return Error(fmt::format("U+{:04X} is no character", value));
    at_ += 2 + digits;
    return value;
  }

  Result<uint32_t> ReadUtf8() {
    const uint8_t lead = static_cast<uint8_t>(Peek());
    const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    uint32_t value = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) {
      const uint8_t byte = static_cast<uint8_t>(Peek(i));
      if ((byte & 0xC0) != 0x80) return Error("text that is not UTF-8");
      value = value << 6 | (byte & 0x3Fu);
    }
    constexpr uint32_t kFirstOfLength[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < kFirstOfLength[length] || value > kLastCodePoint || IsSurrogate(value) ||
        (lead >= 0x80 && lead < 0xC0) || lead >= 0xF8) {
      return Error("text that is not UTF-8");
    }
    at_ += length;
    return value;
  }

  Result<uint32_t> ReadCount() {
    SkipBlanks();
    const size_t begin = at_;
    uint32_t count = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      count = count * 10 + static_cast<uint32_t>(Peek() - '0');
      if (count > kMaxRepetitions) return Error(fmt::format("repetition above {}", kMaxRepetitions));
    }
    if (at_ == begin) return Error("expected a number in {}");
    SkipBlanks();
    return count;
  }

  void SkipBlanks() {
    while (Peek() == ' ' || Peek() == '\t') ++at_;
  }

  Result<uint32_t> ParseRepetition(uint32_t element) {
    const GrammarPlace place = Place();
    GrammarNode repeat{.kind = Kind::kRepeat, .children = {element}, .min = 0, .max = kUnlimited};
    const char c = Peek();
    ++at_;
    if (c == '+') repeat.min = 1;
    if (c == '?') repeat.max = 1;
    if (c == '{') {
      BELLHOP_TRY_ASSIGN(repeat.min, ReadCount());
      repeat.max = repeat.min;
      if (Peek() == ',') {
        ++at_;
        SkipBlanks();
        repeat.max = kUnlimited;
        if (Peek() != '}') {
          BELLHOP_TRY_ASSIGN(repeat.max, ReadCount());
        }
      }
      if (Peek() != '}') return Error("expected } after the count");
      ++at_;
      if (repeat.max < repeat.min) return GrammarError(place, "repetition whose maximum is below its minimum");
    }
    return AddNode(std::move(repeat));
  }

  Result<GrammarSyntax> Finish() {
    for (const GrammarRule& rule : syntax_.rules) {
      if (rule.defined.line == 0) return GrammarError(rule.used, fmt::format("rule '{}' is not defined", rule.name));
    }
    const auto root = index_.find("root");
    if (root == index_.end()) return Error("no rule 'root': generation starts there");
    syntax_.root = root->second;
    return std::move(syntax_);
  }

  std::string_view text_;
  size_t at_ = 0;
  int32_t line_ = 1;
  size_t line_start_ = 0;
  GrammarSyntax syntax_;
  std::unordered_map<std::string, uint32_t> index_;
};

}  // namespace

Status GrammarError(GrammarPlace place, std::string_view what) {
  return InvalidArgument("grammar:{}:{}: {}", place.line, place.column, what);
}

Result<GrammarSyntax> ParseGbnf(std::string_view gbnf) { return GbnfParser(gbnf).Parse(); }

}  // namespace bellhop::decode
