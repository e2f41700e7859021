// The table of filters, and the filters on single values.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_builtin_tables.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

using Value = Result<JinjaValue>;

// An integer argument with a default for the one not passed.
Result<int64_t> IntegerOr(const JinjaValue& value, int64_t fallback, std::string_view what) {
  if (value.missing()) return fallback;
  return JinjaInteger(value, what);
}

template <std::string (*convert)(std::string_view), bool keeps_markup = true>
Value FilterText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, self));
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(text.size()) * 3));
  return keeps_markup ? rt.StringLike(self, convert(text)) : rt.String(convert(text));
}

// The filter's words differ from str.title's: they start after whitespace and opening punctuation only.
std::string TitleWords(std::string_view text) {
  const auto separates = [](uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsPythonSpace(c);
  };
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    size_t end = i;
    const bool separator = separates(CharAt(text, i).code);
    while (end < text.size() && separates(CharAt(text, end).code) == separator) end += CharAt(text, end).size;
    const size_t first = CharAt(text, i).size;
    out += ToUpper(text.substr(i, first));
    out += ToLower(text.substr(i + first, end - i - first));
    i = end;
  }
  return out;
}

Value FilterForceEscape(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, self));
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(text.size()) * 5));
  return rt.Markup(EscapeHtml(text));
}

Value FilterEscape(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return self.is_markup() ? self : FilterForceEscape(rt, self, args);
}

Value FilterSafe(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  if (self.is_markup()) return self;
  BELLHOP_TRY_ASSIGN(std::string text, JinjaStr(rt, self));
  return rt.Markup(std::move(text));
}

Value FilterString(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  if (self.is_string()) return self;
  BELLHOP_TRY_ASSIGN(std::string text, JinjaStr(rt, self));
  return rt.String(std::move(text));
}

Value FilterTrim(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, self));
  const JinjaValue& chars = args.positional[0];
  if (chars.missing() || chars.none()) return rt.StringLike(self, std::string(StripSpace(text, StripSide::kBoth)));
  if (!chars.is_string()) return InvalidArgument("strip arg must be None or str, not {}", TypeName(chars));
  BELLHOP_TRY(rt.Step(static_cast<int64_t>(chars.text().size())));
  return rt.StringLike(self, std::string(StripChars(text, chars.text(), StripSide::kBoth)));
}

Value FilterReplace(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  JinjaArgs call;
  for (size_t i = 0; i < 2; ++i) {
    BELLHOP_TRY_ASSIGN(JinjaValue text, FilterString(rt, args.positional[i], call));
    call.positional.push_back(std::move(text));
  }
  const JinjaValue& count = args.positional[2];
  if (!count.missing() && !count.none()) call.positional.push_back(count);
  JinjaArgs none;
  BELLHOP_TRY_ASSIGN(const JinjaValue text, FilterString(rt, self, none));
  return CallBuiltin(rt, *FindStringMethod("replace"), text, std::move(call));
}

Value FilterDefault(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  const bool use_default = self.undefined() || (Truthy(args.positional[1]) && !Truthy(self));
  if (!use_default) return self;
  return args.positional[0].missing() ? rt.String("") : args.positional[0];
}

Value FilterCenter(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaValue text, FilterString(rt, self, args));
  JinjaArgs call;
  call.positional.push_back(args.positional[0].missing() ? JinjaValue::Int(80) : args.positional[0]);
  BELLHOP_TRY_ASSIGN(const JinjaValue centered, CallBuiltin(rt, *FindStringMethod("center"), text, std::move(call)));
  return rt.StringLike(self, centered.text());
}

Value FilterIndent(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (!self.is_string()) return InvalidArgument("indent needs a string, not '{}'", TypeName(self));
  std::string indention;
  if (args.positional[0].is_string()) {
    indention = args.positional[0].text();
  } else {
    BELLHOP_TRY_ASSIGN(const int64_t width, IntegerOr(args.positional[0], 4, "indent"));
    BELLHOP_TRY(rt.CheckBytes(std::max<int64_t>(width, 0)));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = Truthy(args.positional[1]);
  const bool blank = Truthy(args.positional[2]);
  const std::string text = self.text() + "\n";
  const std::vector<std::string_view> lines = SplitLines(text, false);
  std::string out = first ? indention : std::string();
  for (size_t i = 0; i < lines.size(); ++i) {
    BELLHOP_TRY(rt.Step());
    BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(out.size() + indention.size() + lines[i].size() + 1)));
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indention;
    }
    out += lines[i];
  }
  return rt.StringLike(self, std::move(out));
}

Value FilterWordCount(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, self));
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    const bool word = c.code == '_' || IsAlnum(c.code);
    count += word && !inside ? 1 : 0;
    inside = word;
    i += c.size;
  }
  return JinjaValue::Int(count);
}

Value FilterTruncate(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const int64_t length, IntegerOr(args.positional[0], 255, "truncate"));
  std::string end = "...";
  if (!args.positional[2].missing()) {
    BELLHOP_TRY_ASSIGN(end, JinjaStr(rt, args.positional[2]));
  }
  int64_t leeway = 5;
  if (!args.positional[3].missing() && !args.positional[3].none()) {
    BELLHOP_TRY_ASSIGN(leeway, JinjaInteger(args.positional[3], "truncate"));
  }
  const int64_t end_length = CountChars(end);
  if (length < end_length) return InvalidArgument("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return InvalidArgument("expected leeway >= 0, got {}", leeway);
  BELLHOP_TRY_ASSIGN(const int64_t self_length, JinjaLength(rt, self));
  if (self_length <= length || self_length - length <= leeway) return self;
  if (!self.is_string()) return InvalidArgument("truncate needs a string, not '{}'", TypeName(self));
  const JinjaString& string = self.string();
  std::string_view kept(string.text.data(), ByteOffset(string.text, length - end_length));
  if (!Truthy(args.positional[1])) kept = kept.substr(0, std::min(kept.size(), kept.rfind(' ')));
  return rt.StringLike(self, std::string(kept) + end);
}

// Percent encoding; in a query `/` is encoded too, and a space is `+`.
std::string UrlQuote(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = byte < 0x80 && (IsAlnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos);
    if (plain || (c == '/' && !query)) {
      out += c;
    } else {
      out += c == ' ' && query ? "+" : fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

// A text is quoted; a mapping or pairs become a query.
Value FilterUrlEncode(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  const bool single = self.is_string() || self.is_number() || self.none() || self.is(JinjaType::kNamespace);
  std::string out;
  if (single) {
    BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, self));
    BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(text.size()) * 3));
    return rt.String(UrlQuote(text, false));
  }
  BELLHOP_TRY_ASSIGN(const JinjaItems pairs,
                     rt.Items(self.is_dict() ? rt.DictView(JinjaDictView::Kind::kItems, self) : self));
  for (const JinjaValue& pair : pairs->items) {
    BELLHOP_TRY_ASSIGN(const JinjaItems parts, rt.Items(pair));
    if (parts->items.size() != 2) return InvalidArgument("urlencode needs pairs of a name and a value");
    BELLHOP_TRY_ASSIGN(const std::string name, JinjaStr(rt, parts->items[0]));
    BELLHOP_TRY_ASSIGN(const std::string value, JinjaStr(rt, parts->items[1]));
    BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(out.size() + (name.size() + value.size()) * 3)));
    if (!out.empty()) out += '&';
    out += UrlQuote(name, true) + "=" + UrlQuote(value, true);
  }
  return rt.String(std::move(out));
}

// ---- numbers ----

// Python's number syntax allows surrounding space, a sign, and single underscores between digits.
bool NormalizeNumber(std::string_view text, std::string* out) {
  text = StripSpace(text, StripSide::kBoth);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      *out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && IsAlnum(static_cast<uint8_t>(text[i - 1])) &&
                         IsAlnum(static_cast<uint8_t>(text[i + 1]));
    if (!between) return false;
  }
  if (!out->empty() && out->front() == '+') {
    out->erase(0, 1);
    if (!out->empty() && (out->front() == '+' || out->front() == '-')) return false;
  }
  return !out->empty();
}

bool ParseFloatText(std::string_view text, double* value) {
  std::string digits;
  if (!NormalizeNumber(text, &digits)) return false;
  const std::string lower = ToLower(digits);
  const std::string_view magnitude = std::string_view(lower).substr(lower.front() == '-' ? 1 : 0);
  if (magnitude == "nan" || magnitude == "inf" || magnitude == "infinity") {
    *value = magnitude == "nan" ? std::nan("") : HUGE_VAL;
    if (lower.front() == '-') *value = -*value;
    return true;
  }
  if (magnitude.empty() || !((magnitude.front() >= '0' && magnitude.front() <= '9') || magnitude.front() == '.')) {
    return false;
  }
  const char* end = lower.data() + lower.size();
  const auto result = std::from_chars(lower.data(), end, *value);
  if (result.ptr != end) return false;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large or too small: an exponent's sign tells which.
    *value = lower.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
    if (lower.front() == '-') *value = -*value;
    return true;
  }
  return result.ec == std::errc();
}

Value FilterFileSize(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  double bytes = 0;
  if (self.is_number()) {
    bytes = self.float_value();
  } else if (!self.is_string() || !ParseFloatText(self.text(), &bytes)) {
    return InvalidArgument("filesizeformat needs a number");
  }
  if (!std::isfinite(bytes)) return InvalidArgument("filesizeformat needs a finite number");
  const bool binary = Truthy(args.positional[0]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.String("1 Byte");
  if (bytes < base) return rt.String(fmt::format("{} Bytes", static_cast<int64_t>(std::max(bytes, -1e18))));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return rt.String(fmt::format("{} {}{}B", FixedFloat(bytes / unit, 1), prefix, binary ? "i" : ""));
}

// 1: parsed, 0: not an integer, -1: out of range.
int ParseIntText(std::string_view text, int64_t base, int64_t* value) {
  std::string digits;
  if (!NormalizeNumber(text, &digits)) return 0;
  const bool negative = digits.front() == '-';
  std::string body = ToLower(std::string_view(digits).substr(negative ? 1 : 0));
  const auto prefix_base = [&]() -> int64_t {
    if (body.size() < 3 || body[0] != '0') return 0;
    return body[1] == 'x' ? 16 : body[1] == 'o' ? 8 : body[1] == 'b' ? 2 : 0;
  }();
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    body.erase(0, 2);
    base = prefix_base;
  } else if (base == 0) {
    if (body.size() > 1 && body[0] == '0' && body.find_first_not_of('0') != std::string::npos) return 0;
    base = 10;
  }
  if (body.empty() || body.front() == '-') return 0;
  const std::string whole = (negative ? "-" : "") + body;
  const char* end = whole.data() + whole.size();
  const auto result = std::from_chars(whole.data(), end, *value, static_cast<int>(base));
  if (result.ptr != end) return 0;
  return result.ec == std::errc() ? 1 : -1;
}

Value TruncateFloat(double value) {
  if (std::isnan(value) || std::isinf(value))
    return InvalidArgument("cannot convert float {} to integer", FloatRepr(value));
  if (std::fabs(value) >= 9223372036854775808.0) {
    return InvalidArgument("integer overflow: numbers are limited to 64 bits");
  }
  return JinjaValue::Int(static_cast<int64_t>(value));
}

Value FilterInt(JinjaRuntime&, const JinjaValue& self, JinjaArgs& args) {
  const JinjaValue fallback = args.positional[0].missing() ? JinjaValue::Int(0) : args.positional[0];
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (self.is_integer()) return JinjaValue::Int(self.int_value());
  if (self.is(JinjaType::kFloat)) {
    if (std::isnan(self.float_value())) return fallback;
    return TruncateFloat(self.float_value());
  }
  if (!self.is_string()) return fallback;
  BELLHOP_TRY_ASSIGN(const int64_t base, IntegerOr(args.positional[1], 10, "int"));
  int64_t value = 0;
  if (base == 0 || (base >= 2 && base <= 36)) {
    const int parsed = ParseIntText(self.text(), base, &value);
    if (parsed == 1) return JinjaValue::Int(value);
    if (parsed == -1) return InvalidArgument("integer overflow: numbers are limited to 64 bits");
  }
  double number = 0;
  if (!ParseFloatText(self.text(), &number) || std::isnan(number) || std::isinf(number)) return fallback;
  return TruncateFloat(number);
}

Value FilterFloat(JinjaRuntime&, const JinjaValue& self, JinjaArgs& args) {
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (self.is_number()) return JinjaValue::Float(self.float_value());
  double number = 0;
  if (self.is_string() && ParseFloatText(self.text(), &number)) return JinjaValue::Float(number);
  return args.positional[0].missing() ? JinjaValue::Float(0.0) : args.positional[0];
}

Value FilterAbs(JinjaRuntime&, const JinjaValue& self, JinjaArgs&) {
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (self.is_integer()) return self.int_value() < 0 ? JinjaNegate(self) : JinjaValue::Int(self.int_value());
  if (self.is(JinjaType::kFloat)) return JinjaValue::Float(std::fabs(self.float_value()));
  return InvalidArgument("bad operand type for abs(): '{}'", TypeName(self));
}

// round() of Python on an integer with negative digits: half to even.
Value RoundInteger(int64_t value, int64_t digits) {
  if (digits >= 0) return JinjaValue::Int(value);
  if (digits < -18) return JinjaValue::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < -digits; ++i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  int64_t down = 0;
  if (__builtin_sub_overflow(value, rest, &down)) return InvalidArgument("integer overflow in round");
  const bool up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
  if (up && __builtin_add_overflow(down, unit, &down)) return InvalidArgument("integer overflow in round");
  return JinjaValue::Int(down);
}

Value FilterRound(JinjaRuntime&, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const int64_t digits, IntegerOr(args.positional[0], 0, "round"));
  std::string_view method = "common";
  if (!args.positional[1].missing()) {
    method = args.positional[1].is_string() ? std::string_view(args.positional[1].text()) : std::string_view();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("method must be common, ceil or floor");
  }
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (!self.is_number()) return InvalidArgument("type {} doesn't define __round__ method", TypeName(self));
  const double value = self.float_value();
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale);
    if (!std::isfinite(scaled) || !std::isfinite(scale) || scale == 0) {
      return InvalidArgument("round: the result is out of range");
    }
    return JinjaValue::Float(scaled / scale);
  }
  if (self.is_integer()) return RoundInteger(self.int_value(), digits);
  if (!std::isfinite(value) || digits > 323) return self;
  if (digits < -308) return JinjaValue::Float(std::copysign(0.0, value));
  if (digits >= 0) {
    const std::string text = FixedFloat(value, static_cast<int>(digits));
    double rounded = value;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return JinjaValue::Float(rounded);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return JinjaValue::Float(std::nearbyint(value / unit) * unit);
}

Value FilterFormat(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return InvalidArgument("can't handle positional and keyword arguments at the same time");
  }
  JinjaArgs none;
  BELLHOP_TRY_ASSIGN(const JinjaValue format, FilterString(rt, self, none));
  JinjaValue values;
  if (args.named.empty()) {
    values = rt.Tuple(std::move(args.positional));
  } else {
    std::vector<std::pair<JinjaValue, JinjaValue>> entries;
    for (auto& [name, value] : args.named) entries.emplace_back(rt.String(name), std::move(value));
    BELLHOP_TRY_ASSIGN(values, rt.Dict(std::move(entries)));
  }
  return JinjaBinary(rt, JinjaBinaryOp::kMod, format, values);
}

Value FilterAttr(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (!args.positional[0].is_string()) return InvalidArgument("attribute name must be string");
  const std::string& name = args.positional[0].text();
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  BELLHOP_TRY_ASSIGN(JinjaValue own, JinjaOwnAttr(rt, self, name));
  if (!own.missing()) return own;
  return UndefinedAttribute(rt, self, name);
}

constexpr JinjaBuiltin kFilters[] = {
    {"abs", FilterAbs},
    {"attr", FilterAttr, 1, {"name"}},
    {"batch", FilterBatch, 1, {"linecount", "fill_with"}},
    {"capitalize", FilterText<ToCapitalized>},
    {"center", FilterCenter, 0, {"width"}},
    {"count", FilterLength},
    {"d", FilterDefault, 0, {"default_value", "boolean"}},
    {"default", FilterDefault, 0, {"default_value", "boolean"}},
    {"dictsort", FilterDictSort, 0, {"case_sensitive", "by", "reverse"}},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"filesizeformat", FilterFileSize, 0, {"binary"}},
    {"first", FilterFirst},
    {"float", FilterFloat, 0, {"default"}},
    {"forceescape", FilterForceEscape},
    {"format", FilterFormat, 0, {}, false, true},
    {"groupby", FilterGroupBy, 1, {"attribute", "default", "case_sensitive"}},
    {"indent", FilterIndent, 0, {"width", "first", "blank"}},
    {"int", FilterInt, 0, {"default", "base"}},
    {"items", FilterItems},
    {"join", FilterJoin, 0, {"d", "attribute"}},
    {"last", FilterLast},
    {"length", FilterLength},
    {"list", FilterList},
    {"lower", FilterText<ToLower>},
    {"map", FilterMap, 0, {}, false, true},
    {"max", FilterMax, 0, {"case_sensitive", "attribute"}},
    {"min", FilterMin, 0, {"case_sensitive", "attribute"}},
    {"reject", FilterReject, 0, {}, false, true},
    {"rejectattr", FilterRejectAttr, 0, {}, false, true},
    {"replace", FilterReplace, 2, {"old", "new", "count"}},
    {"reverse", FilterReverse},
    {"round", FilterRound, 0, {"precision", "method"}},
    {"safe", FilterSafe},
    {"select", FilterSelect, 0, {}, false, true},
    {"selectattr", FilterSelectAttr, 0, {}, false, true},
    {"slice", FilterSlice, 1, {"slices", "fill_with"}},
    {"sort", FilterSort, 0, {"reverse", "case_sensitive", "attribute"}},
    {"string", FilterString},
    {"sum", FilterSum, 0, {"attribute", "start"}},
    {"title", FilterText<TitleWords, false>},
    {"tojson", FilterToJson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", FilterTrim, 0, {"chars"}},
    {"truncate", FilterTruncate, 0, {"length", "killwords", "end", "leeway"}},
    {"unique", FilterUnique, 0, {"case_sensitive", "attribute"}},
    {"upper", FilterText<ToUpper>},
    {"urlencode", FilterUrlEncode},
    {"wordcount", FilterWordCount},
};

}  // namespace

const JinjaBuiltin* FindJinjaFilter(std::string_view name) {
  const auto it =
      std::lower_bound(std::begin(kFilters), std::end(kFilters), name,
                       [](const JinjaBuiltin& entry, std::string_view wanted) { return entry.name < wanted; });
  return it != std::end(kFilters) && it->name == name ? it : nullptr;
}

}  // namespace bellhop::text
