#include "text/jinja_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

// One conversion, from either syntax.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '-';    // - + or space
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

constexpr int64_t kMaxPrecision = 10000;

std::string GroupDigits(const std::string& digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Pads sign + digits to the width. `=` puts the padding between them.
Result<std::string> Pad(JinjaRuntime& rt, const Spec& spec, const std::string& head, const std::string& body,
                        char default_align) {
  const int64_t length = CountChars(head) + CountChars(body);
  const int64_t padding = std::max<int64_t>(spec.width - length, 0);
  BELLHOP_TRY(rt.CheckBytes(padding > (INT64_MAX >> 4) ? INT64_MAX : padding * 4));
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? padding / 2 : padding;
  std::string fill_left;
  std::string fill_right;
  for (int64_t i = 0; i < left; ++i) fill_left += spec.fill;
  for (int64_t i = left; i < padding; ++i) fill_right += spec.fill;
  if (align == '=') return head + fill_left + body;
  return fill_left + head + body + fill_right;
}

std::string SignText(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? std::string() : std::string(1, spec.sign);
}

Result<std::string> FormatInteger(JinjaRuntime& rt, const Spec& spec, int64_t value) {
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case 'x': digits = fmt::format("{:x}", magnitude), prefix = "0x"; break;
    case 'X': digits = fmt::format("{:X}", magnitude), prefix = "0X"; break;
    case 'o': digits = fmt::format("{:o}", magnitude), prefix = "0o"; break;
    case 'b': digits = fmt::format("{:b}", magnitude), prefix = "0b"; break;
    default: digits = fmt::format("{}", magnitude);
  }
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  std::string head = SignText(spec, negative) + (spec.alternate ? prefix : std::string());
  const size_t group = prefix.empty() ? 3 : 4;
  if (spec.grouping != '\0') {
    // Zero padding takes part in the grouping.
    const auto wanted = spec.align == '=' && spec.fill == "0" ? spec.width - static_cast<int64_t>(head.size()) : 0;
    BELLHOP_TRY(rt.CheckBytes(std::max<int64_t>(wanted, 0)));
    std::string grouped = GroupDigits(digits, spec.grouping, group);
    while (static_cast<int64_t>(grouped.size()) < wanted) {
      digits.insert(0, 1, '0');
      grouped = GroupDigits(digits, spec.grouping, group);
      BELLHOP_TRY(rt.Step(static_cast<int64_t>(digits.size())));
    }
    digits = std::move(grouped);
  }
  return Pad(rt, spec, head, digits, '>');
}

std::string ScientificDigits(double value, int precision, bool upper) {
  std::string buffer(static_cast<size_t>(precision) + 32, '\0');
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, precision);
  buffer.resize(static_cast<size_t>(result.ptr - buffer.data()));
  return upper ? ToUpper(buffer) : buffer;
}

// %g: the shorter of fixed and scientific form, without trailing zeros unless `alternate`.
std::string GeneralDigits(double value, int precision, bool alternate, bool upper) {
  precision = std::max(precision, 1);
  const std::string probe = ScientificDigits(value, precision - 1, false);
  const size_t e = probe.find('e');
  int exponent = 0;
  const size_t digits_at = e + (probe[e + 1] == '+' ? 2 : 1);
  std::from_chars(probe.data() + digits_at, probe.data() + probe.size(), exponent);
  const bool scientific = exponent < -4 || exponent >= precision;
  std::string digits = scientific ? probe.substr(0, e) : FixedFloat(value, precision - 1 - exponent);
  if (!alternate && digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  if (scientific) digits += probe.substr(e);
  return upper ? ToUpper(digits) : digits;
}

Result<std::string> FormatFloat(JinjaRuntime& rt, const Spec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  BELLHOP_TRY(rt.CheckBytes(precision + 400));
  const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  } else {
    switch (spec.type) {
      case 'f':
      case 'F': digits = FixedFloat(magnitude, precision); break;
      case '%': digits = FixedFloat(magnitude * 100, precision); break;
      case 'e':
      case 'E': digits = ScientificDigits(magnitude, precision, upper); break;
      case '\0':
        digits = spec.precision < 0 ? FloatRepr(magnitude) : GeneralDigits(magnitude, precision, false, false);
        if (spec.precision >= 0 && digits.find_first_of(".e") == std::string::npos) digits += ".0";
        break;
      default: digits = GeneralDigits(magnitude, precision, spec.alternate, upper);
    }
  }
  if (spec.grouping != '\0') {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = GroupDigits(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  if (spec.type == '%') digits += '%';
  return Pad(rt, spec, SignText(spec, negative), digits, '>');
}

Result<std::string> FormatText(JinjaRuntime& rt, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, spec.precision));
  return Pad(rt, spec, "", std::string(text), '<');
}

Result<std::string> CharText(const JinjaValue& value) {
  BELLHOP_TRY_ASSIGN(const int64_t code, JinjaInteger(value, "%c"));
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return InvalidArgument("%c: the code is not a character");
  }
  std::string text;
  AppendChar(&text, static_cast<uint32_t>(code));
  return text;
}

int64_t ReadNumber(std::string_view text, size_t* at) {
  int64_t value = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    value = std::min<int64_t>(value * 10 + (text[*at] - '0'), INT64_MAX / 100);
    ++*at;
  }
  return value;
}

// ---- format % args ----

class Printf {
 public:
  Printf(JinjaRuntime* rt, const JinjaString& format, const JinjaValue& args)
      : rt_(*rt), format_(format.text), escapes_(format.markup), args_(args) {
    // Anything that can be subscripted and is no text or tuple may serve as the mapping.
    mapping_ = args.is_dict() || args.is(JinjaType::kList) || args.is(JinjaType::kRange) || args.undefined();
  }

  Result<std::string> Run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_ += format_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < format_.size()) BELLHOP_TRY(Conversion());
      BELLHOP_TRY(rt_.CheckBytes(static_cast<int64_t>(out_.size())));
    }
    const size_t given = args_.is(JinjaType::kTuple) ? args_.items().size() : 1;
    if (used_ < given && !mapping_) return InvalidArgument("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Result<JinjaValue> NextArgument() {
    if (named_.has_value()) return *named_;
    if (args_.is(JinjaType::kTuple)) {
      if (used_ >= args_.items().size()) return InvalidArgument("not enough arguments for format string");
      return args_.items()[used_++];
    }
    if (used_++ > 0) return InvalidArgument("not enough arguments for format string");
    return args_;
  }

  Result<int64_t> WidthOrStar() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      BELLHOP_TRY_ASSIGN(const JinjaValue value, NextArgument());
      if (!value.is_integer()) return InvalidArgument("* wants int");
      return std::clamp<int64_t>(value.int_value(), -(INT64_MAX / 100), INT64_MAX / 100);
    }
    return ReadNumber(format_, &at_);
  }

  Status Conversion() {
    ++at_;
    named_.reset();
    if (at_ < format_.size() && format_[at_] == '(') BELLHOP_TRY(MappingKey());
    Spec spec;
    bool left = false;
    for (; at_ < format_.size(); ++at_) {
      const char c = format_[at_];
      if (c == '-')
        left = true;
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else
        break;
    }
    BELLHOP_TRY_ASSIGN(spec.width, WidthOrStar());
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      BELLHOP_TRY_ASSIGN(spec.precision, WidthOrStar());
      spec.precision = std::max<int64_t>(spec.precision, 0);
      if (spec.precision > kMaxPrecision) return InvalidArgument("precision too large");
    }
    while (at_ < format_.size() && (format_[at_] == 'h' || format_[at_] == 'l' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) return InvalidArgument("incomplete format");
    spec.type = format_[at_++];
    if (spec.type == '%') {
      out_ += '%';
      return Status();
    }
    spec.align = left ? '<' : '>';
    BELLHOP_TRY_ASSIGN(const JinjaValue value, NextArgument());
    BELLHOP_TRY_ASSIGN(const std::string text, Convert(spec, value, left));
    out_ += text;
    return Status();
  }

  Status MappingKey() {
    int level = 1;
    const size_t start = ++at_;
    for (; at_ < format_.size() && level > 0; ++at_) {
      if (format_[at_] == '(') ++level;
      if (format_[at_] == ')') --level;
    }
    if (level > 0) return InvalidArgument("incomplete format key");
    if (!mapping_) return InvalidArgument("format requires a mapping");
    const JinjaValue key = rt_.String(std::string(format_.substr(start, at_ - start - 1)));
    if (args_.undefined()) return InvalidArgument("{}", args_.undefined_message());
    if (!args_.is_dict()) return InvalidArgument("list indices must be integers or slices, not str");
    const JinjaValue* found = DictFind(args_.dict(), key.text());
    if (found == nullptr) return InvalidArgument("{}", StringRepr(key.text()));
    named_ = *found;
    return Status();
  }

  Result<std::string> Convert(Spec spec, const JinjaValue& value, bool left) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text;
        BELLHOP_TRY(spec.type == 's' ? AppendStr(rt_, value, &text) : AppendRepr(rt_, value, &text));
        if (escapes_ && !(spec.type == 's' && value.is_markup())) text = EscapeHtml(text);
        return FormatText(rt_, spec, text);
      }
      case 'c': {
        if (value.is_string() && value.string().length == 1) return FormatText(rt_, spec, value.text());
        BELLHOP_TRY_ASSIGN(const std::string text, CharText(value));
        return FormatText(rt_, spec, text);
      }
      default: break;
    }
    if (spec.zero && !left) spec.fill = "0", spec.align = '=';
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal || spec.type == 'x' || spec.type == 'X' || spec.type == 'o') {
      int64_t number = value.is_integer() ? value.int_value() : 0;
      if (decimal && value.is(JinjaType::kFloat)) {
        if (!std::isfinite(value.float_value()) || std::fabs(value.float_value()) >= 9223372036854775808.0) {
          return InvalidArgument("%{}: the number is outside of 64 bits", spec.type);
        }
        number = static_cast<int64_t>(value.float_value());
      } else if (!value.is_integer()) {
        if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
        return InvalidArgument("%{} format: a real number is required, not {}", spec.type, TypeName(value));
      }
      if (decimal) spec.type = 'd';
      return FormatInteger(rt_, spec, number);
    }
    if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      return InvalidArgument("unsupported format character '{}'", spec.type);
    }
    if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
    if (!value.is_number()) return InvalidArgument("must be real number, not {}", TypeName(value));
    return FormatFloat(rt_, spec, value.float_value());
  }

  JinjaRuntime& rt_;
  std::string_view format_;
  bool escapes_;
  const JinjaValue& args_;
  bool mapping_ = false;
  size_t at_ = 0;
  size_t used_ = 0;
  std::optional<JinjaValue> named_;
  std::string out_;
};

// ---- format.format(...) ----

class Brace {
 public:
  Brace(JinjaRuntime* rt, bool escapes, const JinjaArgs& args) : rt_(*rt), escapes_(escapes), args_(args) {}

  Result<std::string> Run(std::string_view format, int nesting) {
    if (nesting > 2) return InvalidArgument("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      const bool doubled = i + 1 < format.size() && format[i + 1] == c;
      if (c == '{' && !doubled) {
        BELLHOP_TRY(Field(format, &i, nesting, &out));
        BELLHOP_TRY(rt_.CheckBytes(static_cast<int64_t>(out.size())));
      } else if (c == '}' && !doubled) {
        return InvalidArgument("Single '}}' encountered in format string");
      } else {
        out += c;
        i += c == '{' || c == '}' ? 2 : 1;
      }
    }
    return out;
  }

 private:
  // {name!conversion:spec}
  Status Field(std::string_view format, size_t* at, int nesting, std::string* out) {
    const size_t start = ++*at;
    int level = 1;
    size_t end = start;
    for (; end < format.size() && level > 0; ++end) {
      if (format[end] == '{') ++level;
      if (format[end] == '}') --level;
    }
    if (level > 0) {
      return InvalidArgument("{}", start == format.size() ? "Single '{' encountered in format string"
                                                          : "expected '}' before end of string");
    }
    const std::string_view field = format.substr(start, end - start - 1);
    *at = end;
    // A ! or : inside [...] belongs to the key.
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    std::string_view rest = field.substr(name_end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        return InvalidArgument("expected ':' after conversion specifier");
      }
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    BELLHOP_TRY_ASSIGN(JinjaValue value, Lookup(field.substr(0, name_end)));
    if (conversion != '\0') {
      if (conversion != 's' && conversion != 'r' && conversion != 'a') {
        return InvalidArgument("Unknown conversion specifier {}", conversion);
      }
      std::string text;
      BELLHOP_TRY(conversion == 's' ? AppendStr(rt_, value, &text) : AppendRepr(rt_, value, &text));
      value = rt_.String(std::move(text));
    }
    BELLHOP_TRY_ASSIGN(const std::string spec, Run(rest, nesting + 1));
    if (escapes_ && value.is_markup() && !spec.empty()) {
      return InvalidArgument("Unsupported format specification for Markup.");
    }
    BELLHOP_TRY_ASSIGN(const std::string text, Convert(value, spec));
    *out += escapes_ && !value.is_markup() ? EscapeHtml(text) : text;
    return Status();
  }

  Result<JinjaValue> Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    JinjaValue value;
    const bool number = !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
    if (first.empty() || number) {
      size_t at = 0;
      if ((first.empty() ? kAutomatic : kManual) + numbering_ == 0) {
        return InvalidArgument("cannot switch between manual and automatic field numbering");
      }
      numbering_ = first.empty() ? kAutomatic : kManual;
      const int64_t index = first.empty() ? next_++ : ReadNumber(first, &at);
      if (index >= static_cast<int64_t>(args_.positional.size())) {
        return InvalidArgument("Replacement index {} out of range for positional args tuple", index);
      }
      value = args_.positional[static_cast<size_t>(index)];
    } else {
      const auto it =
          std::find_if(args_.named.begin(), args_.named.end(), [&](const auto& n) { return n.first == first; });
      if (it == args_.named.end()) return InvalidArgument("{}", StringRepr(first));
      value = it->second;
    }
    return Path(std::move(value), name.substr(first_end));
  }

  // .attribute and [key] after the first name.
  Result<JinjaValue> Path(JinjaValue value, std::string_view path) {
    while (!path.empty()) {
      BELLHOP_TRY(rt_.Step());
      if (path.front() == '.') {
        const size_t end = std::min(path.find_first_of(".[", 1), path.size());
        if (end == 1) return InvalidArgument("Empty attribute in format string");
        BELLHOP_TRY_ASSIGN(value, JinjaGetAttr(rt_, value, path.substr(1, end - 1)));
        path.remove_prefix(end);
        continue;
      }
      const size_t end = path.find(']');
      if (path.front() != '[' || end == std::string_view::npos) return InvalidArgument("Missing ']' in format string");
      const std::string_view key = path.substr(1, end - 1);
      if (key.empty()) return InvalidArgument("Empty attribute in format string");
      size_t at = 0;
      const bool number = key.find_first_not_of("0123456789") == std::string_view::npos;
      const JinjaValue item = number ? JinjaValue::Int(ReadNumber(key, &at)) : rt_.String(std::string(key));
      BELLHOP_TRY_ASSIGN(value, JinjaGetItem(rt_, value, item));
      path.remove_prefix(end + 1);
    }
    return value;
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  static Result<Spec> ParseSpec(std::string_view text) {
    Spec spec;
    size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
    const size_t fill_size = text.empty() ? 0 : CharAt(text, 0).size;
    if (fill_size > 0 && fill_size < text.size() && is_align(text[fill_size])) {
      spec.fill = std::string(text.substr(0, fill_size));
      spec.align = text[fill_size];
      at = fill_size + 1;
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[at++];
    }
    const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
    if (peek() == '#') spec.alternate = true, ++at;
    if (peek() == '0') {
      spec.zero = true;
      if (spec.align == '\0') spec.align = '=', spec.fill = "0";
    }
    spec.width = ReadNumber(text, &at);
    if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
    if (peek() == '.') {
      ++at;
      if (peek() < '0' || peek() > '9') return InvalidArgument("Format specifier missing precision");
      spec.precision = ReadNumber(text, &at);
      if (spec.precision > kMaxPrecision) return InvalidArgument("precision too big");
    }
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size()) return InvalidArgument("Invalid format specifier");
    return spec;
  }

  Result<std::string> Convert(const JinjaValue& value, std::string_view spec_text) {
    if (spec_text.empty()) return JinjaStr(rt_, value);
    BELLHOP_TRY_ASSIGN(Spec spec, ParseSpec(spec_text));
    const auto unknown = [&] {
      return InvalidArgument("Unknown format code '{}' for object of type '{}'", spec.type, TypeName(value));
    };
    if (value.is_string()) {
      if (spec.type != '\0' && spec.type != 's') return unknown();
      if (spec.align == '=' && !spec.zero) {
        return InvalidArgument("'=' alignment not allowed in string format specifier");
      }
      if (spec.align == '=') spec.align = '<';
      if (spec.sign != '-' || spec.alternate || spec.grouping != '\0') {
        return InvalidArgument("this format option is not allowed with a string");
      }
      return FormatText(rt_, spec, value.text());
    }
    if (!value.is_number()) {
      return InvalidArgument("unsupported format string passed to {}.__format__", TypeName(value));
    }
    if (value.is_integer()) {
      switch (spec.type) {
        case '\0':
        case 'd':
        case 'n':
        case 'x':
        case 'X':
        case 'o':
        case 'b':
          if (spec.precision >= 0) return InvalidArgument("Precision not allowed in integer format specifier");
          if (spec.grouping == ',' && spec.type != '\0' && spec.type != 'd') {
            return InvalidArgument("Cannot specify ',' with '{}'.", spec.type);
          }
          return FormatInteger(rt_, spec, value.int_value());
        case 'c': {
          BELLHOP_TRY_ASSIGN(const std::string text, CharText(value));
          return FormatText(rt_, spec, text);
        }
        default: break;
      }
    }
    if (spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) return unknown();
    if (spec.type == 'n') spec.type = 'g';
    return FormatFloat(rt_, spec, value.float_value());
  }

  static constexpr int kAutomatic = 1;
  static constexpr int kManual = -1;

  JinjaRuntime& rt_;
  bool escapes_;
  const JinjaArgs& args_;
  int numbering_ = 0;
  int64_t next_ = 0;
};

}  // namespace

Result<std::string> PrintfFormat(JinjaRuntime& rt, const JinjaString& format, const JinjaValue& args) {
  return Printf(&rt, format, args).Run();
}

Result<std::string> BraceFormat(JinjaRuntime& rt, const JinjaString& format, const JinjaArgs& args) {
  return Brace(&rt, format.markup, args).Run(format.text, 0);
}

}  // namespace bellhop::text
