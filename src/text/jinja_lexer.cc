#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsIdentifierStart(uint32_t code) { return code == '_' || IsAlpha(code); }
bool IsIdentifierPart(uint32_t code) { return code == '_' || IsAlnum(code) || (code >= 0x300 && code <= 0x36F); }

int HexDigit(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Line ends become \n, and one at the very end is dropped, as Jinja2 does by default.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)), text_(source_) {}

  Result<std::vector<JinjaToken>> Run() {
    while (pos_ < text_.size()) BELLHOP_TRY(Root());
    Push(JinjaTokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag { kNone, kBlock, kVariable, kComment, kRaw };

  Status Fail(std::string_view what) const { return InvalidArgument("{}: {}", line_, what); }

  void Push(JinjaTokenType type, std::string text) {
    JinjaToken token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  bool At(std::string_view what) const { return text_.substr(pos_, what.size()) == what; }
  char Peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  // Moves to `end`, counting lines.
  void Advance(size_t end) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(pos_), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    if (end > pos_) line_starting_ = text_[end - 1] == '\n';
    pos_ = end;
  }

  size_t SkipSpace(size_t at) const {
    while (at < text_.size()) {
      const JinjaChar c = CharAt(text_, at);
      if (!IsPythonSpace(c.code)) break;
      at += c.size;
    }
    return at;
  }

  // After the sign of a tag's end at `at`: past the tag and what trimming removes; npos when there is no such end.
  size_t BlockEnd(size_t at, std::string_view close) const {
    const auto rest = text_.substr(at);
    if (rest.substr(0, 1) == "-" && rest.substr(1, 2) == close) return SkipSpace(at + 3);
    if (close != "}}" && rest.substr(0, 1) == "+" && rest.substr(1, 2) == close) return at + 3;
    if (rest.substr(0, 2) != close) return std::string_view::npos;
    const bool trims_newline = close != "}}" && at + 2 < text_.size() && text_[at + 2] == '\n';
    return at + (trims_newline ? 3 : 2);
  }

  // End of a `{% raw %}` tag that starts at `at`, or npos when the tag there is another one.
  size_t RawTagEnd(size_t at) const {
    size_t i = at + 2;
    if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
    i = SkipSpace(i);
    if (text_.substr(i, 3) != "raw") return std::string_view::npos;
    i = SkipSpace(i + 3);
    if (text_.substr(i, 3) == "-%}") return SkipSpace(i + 3);
    return text_.substr(i, 2) == "%}" ? i + 2 : std::string_view::npos;
  }

  Tag TagAt(size_t at) const {
    if (at + 1 >= text_.size() || text_[at] != '{') return Tag::kNone;
    switch (text_[at + 1]) {
      case '{': return Tag::kVariable;
      case '#': return Tag::kComment;
      case '%': return RawTagEnd(at) == std::string_view::npos ? Tag::kBlock : Tag::kRaw;
      default: return Tag::kNone;
    }
  }

  // Emits the text before a tag whose sign is `sign`, less what the tag strips from it.
  void PushData(size_t end, char sign, bool is_variable) {
    std::string_view data = text_.substr(pos_, end - pos_);
    if (sign == '-') {
      data = StripSpace(data, StripSide::kRight);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = data.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && line_start < data.size() &&
          StripSpace(data.substr(line_start), StripSide::kBoth).empty()) {
        data = data.substr(0, line_start);
      }
    }
    if (!data.empty()) Push(JinjaTokenType::kData, std::string(data));
    Advance(end);
  }

  char SignAt(size_t at) const {
    const char c = at < text_.size() ? text_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  Status Root() {
    size_t at = pos_;
    Tag tag = Tag::kNone;
    for (; at < text_.size(); ++at) {
      at = text_.find('{', at);
      if (at == std::string_view::npos) break;
      tag = TagAt(at);
      if (tag != Tag::kNone) break;
    }
    if (tag == Tag::kNone) {
      Push(JinjaTokenType::kData, std::string(text_.substr(pos_)));
      Advance(text_.size());
      return Status();
    }
    const char sign = SignAt(at + 2);
    PushData(at, sign, tag == Tag::kVariable);
    switch (tag) {
      case Tag::kComment: Advance(at + 2 + (sign != '\0' ? 1 : 0)); return Comment();
      case Tag::kRaw: Advance(RawTagEnd(at)); return Raw();
      case Tag::kVariable:
        Push(JinjaTokenType::kVariableBegin, "");
        Advance(at + 2 + (sign != '\0' ? 1 : 0));
        return Code("}}", JinjaTokenType::kVariableEnd);
      default:
        Push(JinjaTokenType::kBlockBegin, "");
        Advance(at + 2 + (sign != '\0' ? 1 : 0));
        return Code("%}", JinjaTokenType::kBlockEnd);
    }
  }

  Status Comment() {
    for (size_t at = pos_; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c != '#' && c != '-' && c != '+') continue;
      const size_t end = BlockEnd(at, "#}");
      if (end == std::string_view::npos) continue;
      Advance(end);
      return Status();
    }
    return Fail("missing end of comment tag");
  }

  Status Raw() {
    for (size_t at = pos_; (at = text_.find("{%", at)) != std::string_view::npos; at += 2) {
      const char sign = SignAt(at + 2);
      size_t i = SkipSpace(at + 2 + (sign != '\0' ? 1 : 0));
      if (text_.substr(i, 6) != "endraw") continue;
      i = BlockEnd(SkipSpace(i + 6), "%}");
      if (i == std::string_view::npos) continue;
      PushData(at, sign, false);
      Advance(i);
      return Status();
    }
    return Fail("missing end of raw directive");
  }

  // Tokens of a variable or block tag up to its end.
  Status Code(std::string_view close, JinjaTokenType close_type) {
    std::string open;  // brackets that are waiting for their end, as the closing character
    while (true) {
      if (pos_ >= text_.size()) return Status();  // the parser reports the missing end
      if (open.empty()) {
        const size_t end = BlockEnd(pos_, close);
        if (end != std::string_view::npos) {
          Push(close_type, "");
          Advance(end);
          return Status();
        }
      }
      const JinjaChar c = CharAt(text_, pos_);
      if (IsPythonSpace(c.code)) {
        Advance(SkipSpace(pos_));
      } else if (c.code < 0x80 && IsAsciiDigit(static_cast<char>(c.code))) {
        BELLHOP_TRY(Number());
      } else if (IsIdentifierStart(c.code)) {
        Name();
      } else if (c.code == '\'' || c.code == '"') {
        BELLHOP_TRY(String(static_cast<char>(c.code)));
      } else {
        BELLHOP_TRY(Operator(&open));
      }
    }
  }

  void Name() {
    size_t end = pos_;
    while (end < text_.size()) {
      const JinjaChar c = CharAt(text_, end);
      if (!IsIdentifierPart(c.code)) break;
      end += c.size;
    }
    Push(JinjaTokenType::kName, std::string(text_.substr(pos_, end - pos_)));
    Advance(end);
  }

  // End of digits with single underscores between them.
  size_t DigitsEnd(size_t at) const {
    while (at < text_.size()) {
      if (IsAsciiDigit(text_[at])) {
        ++at;
      } else if (text_[at] == '_' && at + 1 < text_.size() && IsAsciiDigit(text_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  Status PushNumber(size_t end, bool is_float, int base, size_t prefix) {
    std::string digits(text_.substr(pos_ + prefix, end - pos_ - prefix));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Push(is_float ? JinjaTokenType::kFloat : JinjaTokenType::kInteger, std::string(text_.substr(pos_, end - pos_)));
    const char* last = digits.data() + digits.size();
    if (is_float) {
      const auto result = std::from_chars(digits.data(), last, tokens_.back().number);
      if (result.ec != std::errc()) return Fail("number literal " + digits + " is outside the range of a double");
    } else {
      const auto result = std::from_chars(digits.data(), last, tokens_.back().integer, base);
      if (result.ec != std::errc()) return Fail("integer literal " + digits + " does not fit into 64 bits");
    }
    Advance(end);
    return Status();
  }

  Status Number() {
    if (Peek() == '0') {
      const char kind = static_cast<char>(Peek(1) | 0x20);
      const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
      if (base != 0) {
        size_t end = pos_ + 2;
        const auto fits = [&](size_t at) {
          const int digit = at < text_.size() ? HexDigit(text_[at]) : -1;
          return digit >= 0 && digit < base;
        };
        while (fits(end) || (end < text_.size() && text_[end] == '_' && fits(end + 1))) ++end;
        if (end > pos_ + 2) return PushNumber(end, false, base, 2);
      }
    }
    size_t end = DigitsEnd(pos_);
    bool is_float = false;
    const bool after_dot = pos_ > 0 && text_[pos_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < text_.size() && text_[end] == '.' && IsAsciiDigit(text_[end + 1])) {
        end = DigitsEnd(end + 1);
        is_float = true;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
        if (end + 1 + sign < text_.size() && IsAsciiDigit(text_[end + 1 + sign])) {
          end = DigitsEnd(end + 1 + sign);
          is_float = true;
        }
      }
    }
    if (!is_float && text_[pos_] == '0') {
      // Zeros are a number of their own; digits after them start another token, which the parser refuses.
      end = pos_ + 1;
      while (end < text_.size() && text_[end] == '0') ++end;
    }
    return PushNumber(end, is_float, 10, 0);
  }

  Status String(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail("string literal without an end");
    std::string decoded;
    BELLHOP_TRY(Unescape(text_.substr(pos_ + 1, end - pos_ - 1), &decoded));
    Push(JinjaTokenType::kString, std::move(decoded));
    Advance(end + 1);
    return Status();
  }

  Status Unescape(std::string_view raw, std::string* out) const {
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        *out += raw[i];
        continue;
      }
      const char c = raw[++i];  // a string cannot end in a lone backslash
      static constexpr std::string_view kFrom = "\\'\"abfnrtv";
      static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
        *out += kTo[at];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        for (size_t k = 1; k <= digits; ++k) {
          const int digit = i + k < raw.size() ? HexDigit(raw[i + k]) : -1;
          if (digit < 0) return Fail(fmt::format("truncated \\{} escape", c));
          code = code << 4 | static_cast<uint32_t>(digit);
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
          return Fail(fmt::format("\\{} escape is not a character", c));
        }
        AppendChar(out, code);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t k = 0;
        for (; k < 3 && i + k < raw.size() && raw[i + k] >= '0' && raw[i + k] <= '7'; ++k) {
          code = code * 8 + static_cast<uint32_t>(raw[i + k] - '0');
        }
        AppendChar(out, code);
        i += k - 1;
      } else if (c == 'N') {
        return Fail("\\N escapes are not supported; write the character itself");
      } else {
        *out += '\\';
        *out += c;
      }
    }
    return Status();
  }

  Status Operator(std::string* open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string_view op = text_.substr(pos_, 2);
    if (std::find(std::begin(kTwo), std::end(kTwo), op) == std::end(kTwo)) op = text_.substr(pos_, 1);
    if (op.size() == 1 && kOne.find(op[0]) == std::string_view::npos) {
      const uint32_t size = CharAt(text_, pos_).size;
      return Fail(fmt::format("unexpected char {} at {}", StringRepr(text_.substr(pos_, size)),
                              CountChars(text_.substr(0, pos_))));
    }
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      *open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) return Fail(fmt::format("unexpected '{}'", c));
      if (open->back() != c) return Fail(fmt::format("unexpected '{}', expected '{}'", c, open->back()));
      open->pop_back();
    }
    Push(JinjaTokenType::kOperator, std::string(op));
    Advance(pos_ + op.size());
    return Status();
  }

  std::string source_;
  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

Result<std::vector<JinjaToken>> JinjaTokenize(std::string_view source) { return Lexer(source).Run(); }

std::string DescribeToken(const JinjaToken& token) {
  switch (token.type) {
    case JinjaTokenType::kData: return "template data / text";
    case JinjaTokenType::kVariableBegin: return "begin of print statement";
    case JinjaTokenType::kVariableEnd: return "end of print statement";
    case JinjaTokenType::kBlockBegin: return "begin of statement block";
    case JinjaTokenType::kBlockEnd: return "end of statement block";
    case JinjaTokenType::kString: return "string";
    case JinjaTokenType::kEnd: return "end of template";
    default: return token.text;
  }
}

}  // namespace bellhop::text
