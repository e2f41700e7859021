// str, repr, comparison, membership, attribute and item access. Arithmetic is in jinja_arithmetic.cc.
#include "text/jinja_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/jinja_builtins.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

Status Append(JinjaRuntime& rt, std::string_view text, std::string* out) {
  if (static_cast<int64_t>(out->size() + text.size()) > rt.limits().max_output_bytes) {
    return InvalidArgument("a text exceeds the limit of {} bytes", rt.limits().max_output_bytes);
  }
  out->append(text);
  return rt.Step(static_cast<int64_t>(text.size()) / kBytesPerStep);
}

Status AppendItems(JinjaRuntime& rt, const std::vector<JinjaValue>& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) BELLHOP_TRY(Append(rt, ", ", out));
    BELLHOP_TRY(AppendRepr(rt, items[i], out));
  }
  return Status();
}

Status AppendEntries(JinjaRuntime& rt, const JinjaDict& dict, std::string* out) {
  BELLHOP_TRY(Append(rt, "{", out));
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) BELLHOP_TRY(Append(rt, ", ", out));
    first = false;
    BELLHOP_TRY(AppendRepr(rt, key, out));
    BELLHOP_TRY(Append(rt, ": ", out));
    BELLHOP_TRY(AppendRepr(rt, value, out));
  }
  return Append(rt, "}", out);
}

Status AppendNamespace(JinjaRuntime& rt, const JinjaNamespace& ns, std::string* out) {
  // Namespaces can hold themselves, so this is the one place where a repr could recurse for ever.
  BELLHOP_TRY(rt.EnterCall());
  BELLHOP_TRY(Append(rt, "<Namespace {", out));
  bool first = true;
  for (const auto& [name, value] : ns.attributes) {
    if (!first) BELLHOP_TRY(Append(rt, ", ", out));
    first = false;
    BELLHOP_TRY(Append(rt, StringRepr(name), out));
    BELLHOP_TRY(Append(rt, ": ", out));
    BELLHOP_TRY(AppendRepr(rt, value, out));
  }
  rt.LeaveCall();
  return Append(rt, "}>", out);
}

Status AppendRange(JinjaRuntime& rt, const JinjaRange& range, std::string* out) {
  if (range.step == 1) return Append(rt, fmt::format("range({}, {})", range.start, range.stop), out);
  return Append(rt, fmt::format("range({}, {}, {})", range.start, range.stop, range.step), out);
}

Status AppendView(JinjaRuntime& rt, const JinjaValue& value, std::string* out) {
  const auto& view = value.as<JinjaDictView>();
  BELLHOP_TRY(Append(rt, fmt::format("{}([", TypeName(value)), out));
  for (size_t i = 0; i < view.dict->entries.size(); ++i) {
    const auto& [key, item] = view.dict->entries[i];
    if (i > 0) BELLHOP_TRY(Append(rt, ", ", out));
    const bool pair = view.kind == JinjaDictView::Kind::kItems;
    if (pair) BELLHOP_TRY(Append(rt, "(", out));
    if (view.kind != JinjaDictView::Kind::kValues) BELLHOP_TRY(AppendRepr(rt, key, out));
    if (pair) BELLHOP_TRY(Append(rt, ", ", out));
    if (view.kind != JinjaDictView::Kind::kKeys) BELLHOP_TRY(AppendRepr(rt, item, out));
    if (pair) BELLHOP_TRY(Append(rt, ")", out));
  }
  return Append(rt, "])", out);
}

// Objects of the interpreter itself. Python prints addresses for most of them; here their kind has to do.
std::string DescribeObject(const JinjaValue& value) {
  switch (value.type()) {
    case JinjaType::kGenerator: return "<generator object>";
    case JinjaType::kFunction: {
      const auto& function = value.as<JinjaFunction>();
      if (function.self.missing()) return fmt::format("<function {}>", function.builtin->name);
      return fmt::format("<built-in method {} of {} object>", function.builtin->name, TypeName(function.self));
    }
    default: return fmt::format("<{} object>", TypeName(value));
  }
}

// a < b, a == b or a > b for numbers; unordered for NaN. Integers and floats compare by exact value.
enum class Order { kLess, kEqual, kGreater, kUnordered };

template <typename T>
Order OrderOf(T a, T b) {
  return a < b ? Order::kLess : a > b ? Order::kGreater : a == b ? Order::kEqual : Order::kUnordered;
}

Order Reverse(Order order) {
  if (order == Order::kLess) return Order::kGreater;
  return order == Order::kGreater ? Order::kLess : order;
}

Order OrderIntFloat(int64_t a, double b) {
  if (std::isnan(b)) return Order::kUnordered;
  if (b >= 9223372036854775808.0) return Order::kLess;
  if (b < -9223372036854775808.0) return Order::kGreater;
  const double whole = std::floor(b);
  const Order order = OrderOf(a, static_cast<int64_t>(whole));
  return order == Order::kEqual && whole < b ? Order::kLess : order;
}

Order OrderNumbers(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_integer() && b.is_integer()) return OrderOf(a.int_value(), b.int_value());
  if (a.is_integer()) return OrderIntFloat(a.int_value(), b.float_value());
  if (b.is_integer()) return Reverse(OrderIntFloat(b.int_value(), a.float_value()));
  return OrderOf(a.float_value(), b.float_value());
}

bool OrderSatisfies(JinjaCompareOp op, Order order) {
  switch (op) {
    case JinjaCompareOp::kLt: return order == Order::kLess;
    case JinjaCompareOp::kLe: return order == Order::kLess || order == Order::kEqual;
    case JinjaCompareOp::kGt: return order == Order::kGreater;
    default: return order == Order::kGreater || order == Order::kEqual;
  }
}

std::string_view OrderSymbol(JinjaCompareOp op) {
  switch (op) {
    case JinjaCompareOp::kLt: return "<";
    case JinjaCompareOp::kLe: return "<=";
    case JinjaCompareOp::kGt: return ">";
    default: return ">=";
  }
}

Result<bool> EqualItems(JinjaRuntime& rt, const std::vector<JinjaValue>& a, const std::vector<JinjaValue>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> EqualDicts(JinjaRuntime& rt, const JinjaDict& a, const JinjaDict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    BELLHOP_TRY(rt.Step(static_cast<int64_t>(b.index.empty() ? b.entries.size() : 1)));
    BELLHOP_TRY_ASSIGN(const JinjaValue* other, DictFind(rt, b, key));
    if (other == nullptr) return false;
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, value, *other));
    if (!same) return false;
  }
  return true;
}

bool EqualRanges(const JinjaRange& a, const JinjaRange& b) {
  if (a.count != b.count) return false;
  return a.count == 0 || (a.start == b.start && (a.count == 1 || a.step == b.step));
}

Result<bool> ContainsInList(JinjaRuntime& rt, const std::vector<JinjaValue>& items, const JinjaValue& item) {
  for (const JinjaValue& candidate : items) {
    if (candidate.SameAs(item)) return true;
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, candidate, item));
    if (same) return true;
  }
  return false;
}

}  // namespace

JinjaValue UndefinedAttribute(JinjaRuntime& rt, const JinjaValue& object, std::string_view name) {
  const std::string owner = object.none()        ? "None"
                            : object.is_markup() ? "markupsafe.Markup object"
                                                 : fmt::format("{} object", TypeName(object));
  return rt.Undefined(fmt::format("'{}' has no attribute {}", owner, StringRepr(name)));
}

namespace {

JinjaValue UnsafeAttribute(JinjaRuntime& rt, const JinjaValue& object, std::string_view name) {
  return rt.Undefined(
      fmt::format("access to attribute {} of '{}' object is unsafe.", StringRepr(name), TypeName(object)));
}

// Methods that change a list or dict exist in Python and are forbidden by the sandbox.
bool IsForbiddenMethod(const JinjaValue& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(JinjaType::kList)) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (object.is_dict()) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

// What `obj[key]` finds; missing when Python raises TypeError or LookupError.
Result<JinjaValue> Subscript(JinjaRuntime& rt, const JinjaValue& object, const JinjaValue& key) {
  if (object.is_dict()) {
    Result<const JinjaValue*> found = DictFind(rt, object.dict(), key);
    BELLHOP_TRY(rt.Step());
    if (!found.ok() || *found == nullptr) return JinjaValue();
    return **found;
  }
  if (!key.is_integer()) return JinjaValue();
  int64_t index = key.int_value();
  const auto in_bounds = [&](int64_t size) {
    if (index < 0) index += size;
    return index >= 0 && index < size;
  };
  switch (object.type()) {
    case JinjaType::kList:
    case JinjaType::kTuple:
      if (!in_bounds(static_cast<int64_t>(object.items().size()))) return JinjaValue();
      return object.items()[static_cast<size_t>(index)];
    case JinjaType::kRange: {
      const auto& range = object.as<JinjaRange>();
      if (!in_bounds(range.count)) return JinjaValue();
      return JinjaValue::Int(range.start + index * range.step);
    }
    case JinjaType::kString: {
      const JinjaString& string = object.string();
      if (!in_bounds(string.length)) return JinjaValue();
      if (string.ascii()) return rt.StringLike(object, std::string(1, string.text[static_cast<size_t>(index)]));
      BELLHOP_TRY(rt.Step(index / kBytesPerStep));
      const size_t offset = ByteOffset(string.text, index);
      return rt.StringLike(object, string.text.substr(offset, CharAt(string.text, offset).size));
    }
    default: return JinjaValue();
  }
}

}  // namespace

Status AppendStr(JinjaRuntime& rt, const JinjaValue& value, std::string* out) {
  if (value.is_string()) return Append(rt, value.text(), out);
  if (value.undefined()) return Status();
  return AppendRepr(rt, value, out);
}

Status AppendRepr(JinjaRuntime& rt, const JinjaValue& value, std::string* out) {
  BELLHOP_TRY(rt.Step());
  switch (value.type()) {
    case JinjaType::kMissing:
    case JinjaType::kUndefined: return Append(rt, "Undefined", out);
    case JinjaType::kNone: return Append(rt, "None", out);
    case JinjaType::kBool: return Append(rt, value.bool_value() ? "True" : "False", out);
    case JinjaType::kInt: return Append(rt, fmt::format("{}", value.int_value()), out);
    case JinjaType::kFloat:
      return Append(rt, value.is_big_integer() ? value.text() : FloatRepr(value.float_value()), out);
    case JinjaType::kString:
      BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(value.text().size())));
      if (value.is_markup()) return Append(rt, fmt::format("Markup({})", StringRepr(value.text())), out);
      return Append(rt, StringRepr(value.text()), out);
    case JinjaType::kList:
      BELLHOP_TRY(Append(rt, "[", out));
      BELLHOP_TRY(AppendItems(rt, value.items(), out));
      return Append(rt, "]", out);
    case JinjaType::kTuple:
      BELLHOP_TRY(Append(rt, "(", out));
      BELLHOP_TRY(AppendItems(rt, value.items(), out));
      return Append(rt, value.items().size() == 1 ? ",)" : ")", out);
    case JinjaType::kDict: return AppendEntries(rt, value.dict(), out);
    case JinjaType::kRange: return AppendRange(rt, value.as<JinjaRange>(), out);
    case JinjaType::kDictView: return AppendView(rt, value, out);
    case JinjaType::kNamespace: return AppendNamespace(rt, *value.arena<JinjaNamespace>(), out);
    case JinjaType::kMacro:
    case JinjaType::kLoop: {
      BELLHOP_TRY_ASSIGN(const std::string text, DescribeJinjaObject(rt, value));
      return Append(rt, text, out);
    }
    default: return Append(rt, DescribeObject(value), out);
  }
}

Result<std::string> JinjaStr(JinjaRuntime& rt, const JinjaValue& value) {
  std::string out;
  BELLHOP_TRY(AppendStr(rt, value, &out));
  return out;
}

Result<bool> JinjaEqual(JinjaRuntime& rt, const JinjaValue& a, const JinjaValue& b) {
  BELLHOP_TRY(rt.Step());
  if (a.is_number() && b.is_number()) return OrderNumbers(a, b) == Order::kEqual;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case JinjaType::kUndefined: return true;
    case JinjaType::kString: return a.text() == b.text();
    case JinjaType::kList:
    case JinjaType::kTuple: return EqualItems(rt, a.items(), b.items());
    case JinjaType::kDict: return EqualDicts(rt, a.dict(), b.dict());
    case JinjaType::kRange: return EqualRanges(a.as<JinjaRange>(), b.as<JinjaRange>());
    default: return a.SameAs(b);
  }
}

Result<bool> JinjaOrder(JinjaRuntime& rt, JinjaCompareOp op, const JinjaValue& a, const JinjaValue& b) {
  BELLHOP_TRY(rt.Step());
  if (a.undefined() || b.undefined()) return InvalidArgument("{}", (a.undefined() ? a : b).undefined_message());
  if (a.is_number() && b.is_number()) return OrderSatisfies(op, OrderNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    const int order = a.text().compare(b.text());  // UTF-8 keeps the order of code points
    return OrderSatisfies(op, OrderOf(order, 0));
  }
  if (a.is_sequence() && a.type() == b.type()) {
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i) {
      BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, a.items()[i], b.items()[i]));
      if (!same) return JinjaOrder(rt, op, a.items()[i], b.items()[i]);
    }
    return OrderSatisfies(op, OrderOf(a.items().size(), b.items().size()));
  }
  return InvalidArgument("'{}' not supported between instances of '{}' and '{}'", OrderSymbol(op), TypeName(a),
                         TypeName(b));
}

Result<bool> JinjaContains(JinjaRuntime& rt, const JinjaValue& container, const JinjaValue& item) {
  switch (container.type()) {
    case JinjaType::kString:
      if (!item.is_string()) {
        return InvalidArgument("'in <string>' requires string as left operand, not {}", TypeName(item));
      }
      BELLHOP_TRY(rt.Step(1 + static_cast<int64_t>(container.text().size()) / kBytesPerStep));
      return container.text().find(item.text()) != std::string::npos;
    case JinjaType::kDict: {
      BELLHOP_TRY(rt.Step());
      BELLHOP_TRY_ASSIGN(const JinjaValue* found, DictFind(rt, container.dict(), item));
      return found != nullptr;
    }
    case JinjaType::kDictView: {
      const auto& view = container.as<JinjaDictView>();
      if (view.kind == JinjaDictView::Kind::kKeys) {
        BELLHOP_TRY_ASSIGN(const JinjaValue* found, DictFind(rt, *view.dict, item));
        return found != nullptr;
      }
      break;
    }
    case JinjaType::kUndefined: return false;
    case JinjaType::kList:
    case JinjaType::kTuple: return ContainsInList(rt, container.items(), item);
    case JinjaType::kRange:
    case JinjaType::kGenerator: break;
    default: return InvalidArgument("argument of type '{}' is not iterable", TypeName(container));
  }
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(container));
  return ContainsInList(rt, items->items, item);
}

Result<bool> JinjaCompare(JinjaRuntime& rt, JinjaCompareOp op, const JinjaValue& a, const JinjaValue& b) {
  switch (op) {
    case JinjaCompareOp::kEq: return JinjaEqual(rt, a, b);
    case JinjaCompareOp::kNe: {
      BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, a, b));
      return !same;
    }
    case JinjaCompareOp::kIn: return JinjaContains(rt, b, a);
    case JinjaCompareOp::kNotIn: {
      BELLHOP_TRY_ASSIGN(const bool found, JinjaContains(rt, b, a));
      return !found;
    }
    default: return JinjaOrder(rt, op, a, b);
  }
}

Result<int64_t> JinjaLength(JinjaRuntime& rt, const JinjaValue& value) {
  switch (value.type()) {
    case JinjaType::kUndefined: return int64_t{0};
    case JinjaType::kString: return value.string().length;
    case JinjaType::kList:
    case JinjaType::kTuple: return static_cast<int64_t>(value.items().size());
    case JinjaType::kDict: return static_cast<int64_t>(value.dict().entries.size());
    case JinjaType::kDictView: return static_cast<int64_t>(value.as<JinjaDictView>().dict->entries.size());
    case JinjaType::kRange: return value.as<JinjaRange>().count;
    case JinjaType::kLoop: {
      BELLHOP_TRY_ASSIGN(const JinjaValue length, rt.LoopAttribute(value, "length"));
      return length.int_value();
    }
    default: return InvalidArgument("object of type '{}' has no len()", TypeName(value));
  }
}

Result<JinjaValue> JinjaOwnAttr(JinjaRuntime& rt, const JinjaValue& object, std::string_view name) {
  switch (object.type()) {
    case JinjaType::kNamespace:
      for (const auto& [key, value] : object.arena<JinjaNamespace>()->attributes) {
        if (key == name) return name.front() == '_' ? UnsafeAttribute(rt, object, name) : value;
      }
      return JinjaValue();
    case JinjaType::kLoop: return rt.LoopAttribute(object, name);
    case JinjaType::kTuple:
      if (object.as<JinjaList>().is_group && name == "grouper") return object.items()[0];
      if (object.as<JinjaList>().is_group && name == "list") return object.items()[1];
      break;
    case JinjaType::kRange: {
      const auto& range = object.as<JinjaRange>();
      if (name == "start") return JinjaValue::Int(range.start);
      if (name == "stop") return JinjaValue::Int(range.stop);
      if (name == "step") return JinjaValue::Int(range.step);
      break;
    }
    case JinjaType::kCycler: {
      const auto& cycler = *object.arena<JinjaCycler>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "items") return rt.Tuple(cycler.items);
      if (name == "pos") return JinjaValue::Int(static_cast<int64_t>(cycler.position));
      break;
    }
    case JinjaType::kMacro: return MacroAttribute(rt, object, name);
    default: break;
  }
  if (IsForbiddenMethod(object, name)) return UnsafeAttribute(rt, object, name);
  if (const JinjaBuiltin* method = FindJinjaMethod(object, name)) return rt.Function(*method, object);
  return JinjaValue();
}

Result<JinjaValue> JinjaGetAttr(JinjaRuntime& rt, const JinjaValue& object, std::string_view name) {
  if (object.undefined()) return InvalidArgument("{}", object.undefined_message());
  BELLHOP_TRY_ASSIGN(JinjaValue own, JinjaOwnAttr(rt, object, name));
  if (!own.missing()) return own;
  if (object.is_dict()) {
    if (const JinjaValue* value = DictFind(object.dict(), name)) return *value;
  }
  return UndefinedAttribute(rt, object, name);
}

Result<JinjaValue> JinjaGetItem(JinjaRuntime& rt, const JinjaValue& object, const JinjaValue& key) {
  if (object.undefined()) return InvalidArgument("{}", object.undefined_message());
  BELLHOP_TRY_ASSIGN(JinjaValue found, Subscript(rt, object, key));
  if (!found.missing()) return found;
  if (key.is_string()) {
    BELLHOP_TRY_ASSIGN(JinjaValue own, JinjaOwnAttr(rt, object, key.text()));
    if (!own.missing()) return own;
    return UndefinedAttribute(rt, object, key.text());
  }
  std::string key_text;
  BELLHOP_TRY(AppendRepr(rt, key, &key_text));
  const std::string owner = object.none() ? "None" : fmt::format("{} object", TypeName(object));
  return rt.Undefined(fmt::format("{} has no element {}", owner, key_text));
}

namespace {

// Python's slice.indices: bounds clamped to the sequence.
struct SliceBounds {
  int64_t start;
  int64_t stop;
  int64_t count;
  int64_t step;
};

Result<SliceBounds> ResolveSlice(int64_t size, const JinjaValue& start, const JinjaValue& stop,
                                 const JinjaValue& step) {
  for (const JinjaValue* bound : {&start, &stop, &step}) {
    if (bound->undefined()) return InvalidArgument("{}", bound->undefined_message());
    if (!bound->missing() && !bound->none() && !bound->is_integer()) {
      return InvalidArgument("slice indices must be integers or None");
    }
  }
  const auto given = [](const JinjaValue& v) { return !v.missing() && !v.none(); };
  const int64_t by = given(step) ? step.int_value() : 1;
  if (by == 0) return InvalidArgument("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? size : size - 1;
  const auto clamp = [&](const JinjaValue& v, int64_t fallback) {
    if (!given(v)) return fallback;
    const int64_t i = v.int_value();
    return std::clamp(i < 0 ? i + size : i, low, high);
  };
  const int64_t from = clamp(start, by > 0 ? low : high);
  const int64_t to = clamp(stop, by > 0 ? high : low);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = (from - to - 1) / (by == INT64_MIN ? INT64_MAX : -by) + 1;
  return SliceBounds{from, to, count, by};
}

Result<JinjaValue> SliceString(JinjaRuntime& rt, const JinjaValue& object, const SliceBounds& slice) {
  const JinjaString& string = object.string();
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(string.text.size())));
  if (slice.step == 1) {
    const size_t begin = string.ascii() ? static_cast<size_t>(slice.start) : ByteOffset(string.text, slice.start);
    const std::string_view rest = std::string_view(string.text).substr(begin);
    const size_t size = string.ascii() ? static_cast<size_t>(slice.count) : ByteOffset(rest, slice.count);
    return rt.StringLike(object, std::string(rest.substr(0, size)));
  }
  std::string out;
  const std::string_view text = string.text;
  size_t offset = ByteOffset(text, slice.start);
  for (int64_t i = 0; i < slice.count; ++i) {
    out.append(text.substr(offset, CharAt(text, offset).size));
    if (i + 1 == slice.count) break;
    for (int64_t k = 0; k < slice.step; ++k) offset += CharAt(text, offset).size;
    for (int64_t k = 0; k > slice.step; --k) offset -= CharBefore(text, offset).size;
  }
  return rt.StringLike(object, std::move(out));
}

}  // namespace

Result<JinjaValue> JinjaSlice(JinjaRuntime& rt, const JinjaValue& object, const JinjaValue& start,
                              const JinjaValue& stop, const JinjaValue& step) {
  if (object.undefined()) return InvalidArgument("{}", object.undefined_message());
  const bool sliceable = object.is_sequence() || object.is_string() || object.is(JinjaType::kRange);
  if (!sliceable) return InvalidArgument("'{}' object is not subscriptable with a slice", TypeName(object));
  BELLHOP_TRY_ASSIGN(const int64_t size, JinjaLength(rt, object));
  BELLHOP_TRY_ASSIGN(const SliceBounds slice, ResolveSlice(size, start, stop, step));
  if (object.is_string()) return SliceString(rt, object, slice);
  if (object.is(JinjaType::kRange)) {
    const auto& range = object.as<JinjaRange>();
    // The end may lie outside 64 bits; it is only printed.
    const auto wide = [](int64_t v) { return static_cast<uint64_t>(v); };
    const auto first = static_cast<int64_t>(wide(range.start) + wide(slice.start) * wide(range.step));
    const auto end = static_cast<int64_t>(wide(range.start) + wide(slice.stop) * wide(range.step));
    return rt.Range(first, end, static_cast<int64_t>(wide(range.step) * wide(slice.step)), slice.count);
  }
  BELLHOP_TRY(rt.CheckBytes(slice.count * static_cast<int64_t>(sizeof(JinjaValue))));
  BELLHOP_TRY(rt.Step(slice.count));
  std::vector<JinjaValue> items;
  items.reserve(static_cast<size_t>(slice.count));
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return object.is(JinjaType::kList) ? rt.List(std::move(items)) : rt.Tuple(std::move(items));
}

Result<int64_t> JinjaInteger(const JinjaValue& value, std::string_view what) {
  if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
  if (!value.is_integer())
    return InvalidArgument("{}: '{}' object cannot be used as an integer", what, TypeName(value));
  return value.int_value();
}

}  // namespace bellhop::text
