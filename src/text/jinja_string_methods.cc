// The methods of str.
#include <algorithm>

#include "text/jinja_builtin_tables.h"
#include "text/jinja_format.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

using Value = Result<JinjaValue>;

Status NeedString(const JinjaValue& value, std::string_view what) {
  if (value.is_string()) return Status();
  if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("{}: must be str, not {}", what, TypeName(value));
}

Status ChargeText(JinjaRuntime& rt, const JinjaValue& self) {
  return rt.CheckBytes(static_cast<int64_t>(self.text().size()));
}

template <std::string (*convert)(std::string_view)>
Value Convert(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(self.text().size()) * 3));
  return rt.String(convert(self.text()));
}

template <StripSide side>
Value Strip(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  const JinjaValue& chars = args.positional[0];
  if (chars.missing() || chars.none()) return rt.String(std::string(StripSpace(self.text(), side)));
  BELLHOP_TRY(NeedString(chars, "strip arg"));
  BELLHOP_TRY(rt.Step(static_cast<int64_t>(chars.text().size())));
  return rt.String(std::string(StripChars(self.text(), chars.text(), side)));
}

// ---- splitting ----

Result<int64_t> MaxSplit(const JinjaValue& value) {
  if (value.missing()) return int64_t{INT64_MAX};
  BELLHOP_TRY_ASSIGN(const int64_t count, JinjaInteger(value, "split"));
  return count < 0 ? INT64_MAX : count;
}

// Runs of whitespace separate; none at the ends. Pieces come in text order.
Status SplitSpace(JinjaRuntime& rt, std::string_view text, int64_t limit, bool from_right,
                  std::vector<std::string_view>* pieces) {
  const auto side = from_right ? StripSide::kRight : StripSide::kLeft;
  text = StripSpace(text, side);
  while (!text.empty()) {
    BELLHOP_TRY(rt.Step());
    if (limit-- <= 0) {
      pieces->push_back(StripSpace(text, side));
      break;
    }
    size_t word = from_right ? text.size() : 0;
    while (from_right ? word > 0 : word < text.size()) {
      const JinjaChar c = from_right ? CharBefore(text, word) : CharAt(text, word);
      if (IsPythonSpace(c.code)) break;
      word = from_right ? word - c.size : word + c.size;
    }
    pieces->push_back(from_right ? text.substr(word) : text.substr(0, word));
    text = StripSpace(from_right ? text.substr(0, word) : text.substr(word), side);
  }
  if (from_right) std::reverse(pieces->begin(), pieces->end());
  return Status();
}

Status SplitOn(JinjaRuntime& rt, std::string_view text, std::string_view separator, int64_t limit, bool from_right,
               std::vector<std::string_view>* pieces) {
  while (limit-- > 0) {
    BELLHOP_TRY(rt.Step());
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    pieces->push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  pieces->push_back(text);
  if (from_right) std::reverse(pieces->begin(), pieces->end());
  return Status();
}

Value ListOfTexts(JinjaRuntime& rt, const std::vector<std::string_view>& pieces) {
  std::vector<JinjaValue> items;
  items.reserve(pieces.size());
  for (std::string_view piece : pieces) {
    BELLHOP_TRY(rt.Step());
    items.push_back(rt.String(std::string(piece)));
  }
  return rt.List(std::move(items));
}

template <bool from_right>
Value Split(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY_ASSIGN(const int64_t limit, MaxSplit(args.positional[1]));
  const JinjaValue& separator = args.positional[0];
  std::vector<std::string_view> pieces;
  if (separator.missing() || separator.none()) {
    BELLHOP_TRY(SplitSpace(rt, self.text(), limit, from_right, &pieces));
  } else {
    BELLHOP_TRY(NeedString(separator, "split"));
    if (separator.text().empty()) return InvalidArgument("empty separator");
    BELLHOP_TRY(SplitOn(rt, self.text(), separator.text(), limit, from_right, &pieces));
  }
  return ListOfTexts(rt, pieces);
}

Value SplitLinesMethod(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(rt.Step(std::count(self.text().begin(), self.text().end(), '\n')));
  int64_t keep_ends = 0;
  if (!args.positional[0].missing()) {
    BELLHOP_TRY_ASSIGN(keep_ends, JinjaInteger(args.positional[0], "keepends"));
  }
  return ListOfTexts(rt, SplitLines(self.text(), keep_ends != 0));
}

template <bool from_right>
Value Partition(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(NeedString(args.positional[0], "partition"));
  const std::string& text = self.text();
  const std::string& separator = args.positional[0].text();
  if (separator.empty()) return InvalidArgument("empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const JinjaValue empty = rt.String("");
    return from_right ? rt.Tuple({empty, empty, self}) : rt.Tuple({self, empty, empty});
  }
  return rt.Tuple({rt.String(text.substr(0, at)), args.positional[0], rt.String(text.substr(at + separator.size()))});
}

// ---- searching ----

// The part of a text that optional start and end arguments select; found positions are relative to the whole.
struct Window {
  std::string_view text;
  int64_t start = 0;  // in characters
  bool valid = true;  // false: start lies beyond the end, where not even "" is found
};

Result<Window> SelectWindow(const JinjaString& string, const JinjaValue& start, const JinjaValue& end) {
  int64_t bounds[2] = {0, string.length};
  const JinjaValue* given[2] = {&start, &end};
  for (int i = 0; i < 2; ++i) {
    if (given[i]->missing() || given[i]->none()) continue;
    BELLHOP_TRY_ASSIGN(int64_t bound, JinjaInteger(*given[i], "slice index"));
    if (bound < 0) bound = std::max<int64_t>(bound + string.length, 0);
    bounds[i] = i == 0 ? bound : std::min(bound, string.length);
  }
  Window window;
  window.start = bounds[0];
  window.valid = bounds[0] <= bounds[1];
  if (!window.valid) return window;
  const size_t from = string.ascii() ? static_cast<size_t>(bounds[0]) : ByteOffset(string.text, bounds[0]);
  const size_t to = string.ascii() ? static_cast<size_t>(bounds[1]) : ByteOffset(string.text, bounds[1]);
  window.text = std::string_view(string.text).substr(from, to - from);
  return window;
}

Result<int64_t> FindText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args, bool from_right) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(NeedString(args.positional[0], "find"));
  BELLHOP_TRY_ASSIGN(const Window window, SelectWindow(self.string(), args.positional[1], args.positional[2]));
  if (!window.valid) return int64_t{-1};
  const std::string& wanted = args.positional[0].text();
  const size_t at = from_right ? window.text.rfind(wanted) : window.text.find(wanted);
  if (at == std::string_view::npos) return int64_t{-1};
  return window.start + CountChars(window.text.substr(0, at));
}

template <bool from_right>
Value Find(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const int64_t at, FindText(rt, self, args, from_right));
  return JinjaValue::Int(at);
}

template <bool from_right>
Value Index(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const int64_t at, FindText(rt, self, args, from_right));
  if (at < 0) return InvalidArgument("substring not found");
  return JinjaValue::Int(at);
}

Value Count(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(NeedString(args.positional[0], "count"));
  BELLHOP_TRY_ASSIGN(const Window window, SelectWindow(self.string(), args.positional[1], args.positional[2]));
  if (!window.valid) return JinjaValue::Int(0);
  const std::string& wanted = args.positional[0].text();
  if (wanted.empty()) return JinjaValue::Int(CountChars(window.text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = window.text.find(wanted, at)) != std::string_view::npos; at += wanted.size()) {
    BELLHOP_TRY(rt.Step());
    ++count;
  }
  return JinjaValue::Int(count);
}

template <bool at_end>
Value StartsOrEndsWith(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const Window window, SelectWindow(self.string(), args.positional[1], args.positional[2]));
  const JinjaValue& wanted = args.positional[0];
  std::vector<JinjaValue> choices;
  if (wanted.is(JinjaType::kTuple)) {
    BELLHOP_TRY(rt.Step(static_cast<int64_t>(wanted.items().size())));
    choices = wanted.items();
  } else {
    choices.push_back(wanted);
  }
  for (const JinjaValue& choice : choices) {
    BELLHOP_TRY(NeedString(choice, at_end ? "endswith arg" : "startswith arg"));
    const std::string_view text = choice.text();
    if (window.valid && (at_end ? window.text.ends_with(text) : window.text.starts_with(text))) {
      return JinjaValue::Bool(true);
    }
  }
  return JinjaValue::Bool(false);
}

// ---- building ----

Value Replace(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(NeedString(args.positional[0], "replace() argument 1"));
  BELLHOP_TRY(NeedString(args.positional[1], "replace() argument 2"));
  BELLHOP_TRY_ASSIGN(int64_t limit, MaxSplit(args.positional[2]));
  const std::string& text = self.text();
  const std::string& from = args.positional[0].text();
  const std::string& to = args.positional[1].text();
  std::string out;
  size_t done = 0;
  size_t search = 0;
  while (limit-- > 0 && search <= text.size()) {
    // An empty text is found before every character and at the end.
    const size_t at = from.empty() ? search : text.find(from, search);
    if (at == std::string::npos) break;
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
    search = from.empty() ? (at < text.size() ? at + CharAt(text, at).size : at + 1) : done;
    BELLHOP_TRY(rt.Step());
    if (static_cast<int64_t>(out.size()) > rt.limits().max_output_bytes) break;
  }
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(out.size() + text.size() - done)));
  out.append(text, done, text.size() - done);
  return rt.String(std::move(out));
}

Value Join(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  Result<JinjaItems> items = rt.Items(args.positional[0]);
  if (!items.ok()) return InvalidArgument("can only join an iterable");
  std::string out;
  for (size_t i = 0; i < (*items)->items.size(); ++i) {
    const JinjaValue& item = (*items)->items[i];
    if (!item.is_string()) {
      return InvalidArgument("sequence item {}: expected str instance, {} found", i, TypeName(item));
    }
    BELLHOP_TRY(rt.Step());
    if (i > 0) BELLHOP_TRY(AppendStr(rt, self, &out));
    BELLHOP_TRY(AppendStr(rt, item, &out));
  }
  return rt.String(std::move(out));
}

enum class Pad { kLeft, kRight, kCenter };

Value PadText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args, Pad where) {
  BELLHOP_TRY_ASSIGN(const int64_t width, JinjaInteger(args.positional[0], "width"));
  std::string fill = " ";
  if (!args.positional[1].missing()) {
    BELLHOP_TRY(NeedString(args.positional[1], "the fill character"));
    if (args.positional[1].string().length != 1)
      return InvalidArgument("the fill character must be exactly one character long");
    fill = args.positional[1].text();
  }
  const JinjaString& string = self.string();
  if (width <= string.length) return self;
  const int64_t padding = width - string.length;
  BELLHOP_TRY(
      rt.CheckBytes(padding > (INT64_MAX >> 4) ? INT64_MAX : padding * 4 + static_cast<int64_t>(string.text.size())));
  const int64_t left = where == Pad::kLeft ? padding : where == Pad::kCenter ? padding / 2 + (padding & width & 1) : 0;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += string.text;
  for (int64_t i = left; i < padding; ++i) out += fill;
  return rt.String(std::move(out));
}

template <Pad where>
Value Justify(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return PadText(rt, self, args, where);
}

Value ZeroFill(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  const bool sign = !self.text().empty() && (self.text().front() == '-' || self.text().front() == '+');
  JinjaArgs call;
  BELLHOP_TRY_ASSIGN(const int64_t width, JinjaInteger(args.positional[0], "width"));
  call.positional = {JinjaValue::Int(width - (sign && width > INT64_MIN ? 1 : 0)), rt.String("0")};
  if (!sign) return PadText(rt, self, call, Pad::kLeft);
  BELLHOP_TRY_ASSIGN(const JinjaValue padded, PadText(rt, rt.String(self.text().substr(1)), call, Pad::kLeft));
  return rt.String(self.text().front() + padded.text());
}

template <bool suffix>
Value RemoveAffix(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(ChargeText(rt, self));
  BELLHOP_TRY(NeedString(args.positional[0], "the affix"));
  std::string_view text = self.text();
  const std::string_view affix = args.positional[0].text();
  if (suffix ? text.ends_with(affix) : text.starts_with(affix)) {
    suffix ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return rt.String(std::string(text));
}

Value ExpandTabs(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  int64_t size = 8;
  if (!args.positional[0].missing()) {
    BELLHOP_TRY_ASSIGN(size, JinjaInteger(args.positional[0], "tabsize"));
  }
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    BELLHOP_TRY(rt.Step());
    const JinjaChar c = CharAt(text, i);
    if (c.code == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      BELLHOP_TRY(rt.CheckBytes(spaces + static_cast<int64_t>(out.size())));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out.append(text, i, c.size);
      column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    }
    i += c.size;
  }
  return rt.String(std::move(out));
}

Value Format(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(std::string text, BraceFormat(rt, self.string(), args));
  return rt.String(std::move(text));
}

Value FormatMap(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (!args.positional[0].is_dict()) return InvalidArgument("format_map() needs a mapping");
  JinjaArgs call;
  for (const auto& [key, value] : args.positional[0].dict().entries) {
    BELLHOP_TRY(rt.Step());
    if (key.is_string()) call.named.emplace_back(key.text(), value);
  }
  return Format(rt, self, call);
}

// ---- properties ----

template <bool (*property)(uint32_t)>
Value All(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(ChargeText(rt, self));
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    if (!property(c.code)) return JinjaValue::Bool(false);
    i += c.size;
  }
  return JinjaValue::Bool(!text.empty());
}

Value IsAscii(JinjaRuntime&, const JinjaValue& self, JinjaArgs&) {
  return JinjaValue::Bool(self.string().ascii() &&
                          std::all_of(self.text().begin(), self.text().end(), [](char c) { return (c & 0x80) == 0; }));
}

Value IsPrintableText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (self.text().empty()) return JinjaValue::Bool(true);
  return All<IsPrintable>(rt, self, args);
}

Value IsIdentifier(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(ChargeText(rt, self));
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    if (c.code != '_' && !IsAlpha(c.code) && !(i > 0 && IsDecimal(c.code))) return JinjaValue::Bool(false);
    i += c.size;
  }
  return JinjaValue::Bool(!text.empty());
}

Value IsUpperText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(ChargeText(rt, self));
  return JinjaValue::Bool(TextIsUpper(self.text()));
}

Value IsLowerText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(ChargeText(rt, self));
  return JinjaValue::Bool(TextIsLower(self.text()));
}

// Capitals only at the start of words, and at least one.
Value IsTitleText(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY(ChargeText(rt, self));
  bool previous_cased = false;
  bool any = false;
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    i += c.size;
    const bool capital = IsUpper(c.code) || IsTitle(c.code);
    const bool small = IsLower(c.code);
    if ((capital && previous_cased) || (small && !previous_cased)) return JinjaValue::Bool(false);
    previous_cased = capital || small;
    any |= previous_cased;
  }
  return JinjaValue::Bool(any);
}

// Sorted by name.
constexpr JinjaBuiltin kStringMethods[] = {
    {"capitalize", Convert<ToCapitalized>},
    {"casefold", Convert<ToLower>},
    {"center", Justify<Pad::kCenter>, 1, {"width", "fillchar"}, true},
    {"count", Count, 1, {"sub", "start", "end"}, true},
    {"endswith", StartsOrEndsWith<true>, 1, {"suffix", "start", "end"}, true},
    {"expandtabs", ExpandTabs, 0, {"tabsize"}},
    {"find", Find<false>, 1, {"sub", "start", "end"}, true},
    {"format", Format, 0, {}, false, true},
    {"format_map", FormatMap, 1, {"mapping"}, true},
    {"index", Index<false>, 1, {"sub", "start", "end"}, true},
    {"isalnum", All<IsAlnum>},
    {"isalpha", All<IsAlpha>},
    {"isascii", IsAscii},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"isidentifier", IsIdentifier},
    {"islower", IsLowerText},
    {"isnumeric", All<IsNumeric>},
    {"isprintable", IsPrintableText},
    {"isspace", All<IsPythonSpace>},
    {"istitle", IsTitleText},
    {"isupper", IsUpperText},
    {"join", Join, 1, {"iterable"}, true},
    {"ljust", Justify<Pad::kRight>, 1, {"width", "fillchar"}, true},
    {"lower", Convert<ToLower>},
    {"lstrip", Strip<StripSide::kLeft>, 0, {"chars"}, true},
    {"partition", Partition<false>, 1, {"sep"}, true},
    {"removeprefix", RemoveAffix<false>, 1, {"prefix"}, true},
    {"removesuffix", RemoveAffix<true>, 1, {"suffix"}, true},
    {"replace", Replace, 2, {"old", "new", "count"}, true},
    {"rfind", Find<true>, 1, {"sub", "start", "end"}, true},
    {"rindex", Index<true>, 1, {"sub", "start", "end"}, true},
    {"rjust", Justify<Pad::kLeft>, 1, {"width", "fillchar"}, true},
    {"rpartition", Partition<true>, 1, {"sep"}, true},
    {"rsplit", Split<true>, 0, {"sep", "maxsplit"}},
    {"rstrip", Strip<StripSide::kRight>, 0, {"chars"}, true},
    {"split", Split<false>, 0, {"sep", "maxsplit"}},
    {"splitlines", SplitLinesMethod, 0, {"keepends"}},
    {"startswith", StartsOrEndsWith<false>, 1, {"prefix", "start", "end"}, true},
    {"strip", Strip<StripSide::kBoth>, 0, {"chars"}, true},
    {"swapcase", Convert<ToSwappedCase>},
    {"title", Convert<ToTitle>},
    {"upper", Convert<ToUpper>},
    {"zfill", ZeroFill, 1, {"width"}, true},
};

// Calls on markup: the texts that are put into it are escaped first.
Status EscapeArguments(JinjaRuntime& rt, std::string_view method, JinjaArgs* args) {
  const auto escape = [&](JinjaValue* value) -> Status {
    if (value->is_markup()) return Status();
    BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, *value));
    BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(text.size()) * 5));
    *value = rt.Markup(EscapeHtml(text));
    return Status();
  };
  const bool pads = method == "center" || method == "ljust" || method == "rjust";
  if ((method == "replace" || pads) && args->positional.size() > 1) return escape(&args->positional[1]);
  if (method != "join" || args->positional.size() != 1) return Status();
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(args->positional[0]));
  std::vector<JinjaValue> escaped = items->items;
  for (JinjaValue& item : escaped) BELLHOP_TRY(escape(&item));
  args->positional[0] = rt.List(std::move(escaped));
  return Status();
}

// What a method of markup returns is markup again, also inside the lists and tuples that splitting gives.
JinjaValue MarkAll(JinjaRuntime& rt, const JinjaValue& value) {
  if (value.is_string()) return rt.Markup(value.text());
  if (!value.is_sequence()) return value;
  std::vector<JinjaValue> items;
  for (const JinjaValue& item : value.items()) items.push_back(rt.Markup(item.text()));
  return value.is(JinjaType::kList) ? rt.List(std::move(items)) : rt.Tuple(std::move(items));
}

bool OneCase(std::string_view text, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const JinjaChar c = CharAt(text, i);
    if (other(c.code) || IsTitle(c.code)) return false;
    any |= wanted(c.code);
    i += c.size;
  }
  return any;
}

}  // namespace

Result<JinjaValue> CallMarkupMethod(JinjaRuntime& rt, const JinjaBuiltin& method, const JinjaValue& self,
                                    JinjaArgs args) {
  BELLHOP_TRY(EscapeArguments(rt, method.name, &args));
  BELLHOP_TRY_ASSIGN(const JinjaValue result, CallBuiltin(rt, method, self, std::move(args)));
  return MarkAll(rt, result);
}

bool TextIsUpper(std::string_view text) { return OneCase(text, IsUpper, IsLower); }
bool TextIsLower(std::string_view text) { return OneCase(text, IsLower, IsUpper); }

const JinjaBuiltin* FindStringMethod(std::string_view name) {
  const auto it =
      std::lower_bound(std::begin(kStringMethods), std::end(kStringMethods), name,
                       [](const JinjaBuiltin& entry, std::string_view wanted) { return entry.name < wanted; });
  return it != std::end(kStringMethods) && it->name == name ? it : nullptr;
}

}  // namespace bellhop::text
