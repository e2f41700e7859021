// Argument binding, the tests, the global functions and the methods of everything but strings.
// Filters are in jinja_filters*.cc, string methods in jinja_string_methods.cc.
#include "text/jinja_builtins.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_builtin_tables.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

using Value = Result<JinjaValue>;

constexpr int64_t kMaxRange = 100000;  // as the sandbox of Jinja2

int ParamCount(const JinjaBuiltin& builtin) {
  const auto end = std::find(builtin.params.begin(), builtin.params.end(), std::string_view());
  return static_cast<int>(end - builtin.params.begin());
}

template <size_t N>
const JinjaBuiltin* FindIn(const JinjaBuiltin (&table)[N], std::string_view name) {
  const auto it = std::find_if(std::begin(table), std::end(table), [&](const auto& b) { return b.name == name; });
  return it == std::end(table) ? nullptr : it;
}

// ---- tests ----

Value TestDefined(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(!v.undefined()); }
Value TestUndefined(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.undefined()); }
Value TestNone(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.none()); }
Value TestString(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.is_string()); }
Value TestMapping(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.is_dict()); }
Value TestNumber(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.is_number()); }
Value TestBoolean(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.is(JinjaType::kBool)); }
Value TestInteger(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is(JinjaType::kInt) || v.is_big_integer());
}
Value TestFloat(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is(JinjaType::kFloat) && !v.is_big_integer());
}
Value TestTrue(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is(JinjaType::kBool) && v.bool_value());
}
Value TestFalse(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is(JinjaType::kBool) && !v.bool_value());
}
Value TestEscaped(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) { return JinjaValue::Bool(v.is_markup()); }

// Undefined counts as an empty sequence.
Value TestSequence(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is_string() || v.is_sequence() || v.is_dict() || v.is(JinjaType::kRange) || v.undefined());
}
Value TestIterable(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is_string() || v.is_sequence() || v.is_dict() || v.undefined() || v.is(JinjaType::kRange) ||
                          v.is(JinjaType::kDictView) || v.is(JinjaType::kGenerator) || v.is(JinjaType::kLoop));
}
Value TestCallable(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  return JinjaValue::Bool(v.is(JinjaType::kFunction) || v.is(JinjaType::kMacro) || v.is(JinjaType::kLoop) ||
                          v.is(JinjaType::kJoiner) || v.undefined());
}

Value TestFilter(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  if (v.is(JinjaType::kList) || v.is_dict()) return InvalidArgument("unhashable type: '{}'", TypeName(v));
  return JinjaValue::Bool(v.is_string() && FindJinjaFilter(v.text()) != nullptr);
}
Value TestTest(JinjaRuntime&, const JinjaValue& v, JinjaArgs&) {
  if (v.is(JinjaType::kList) || v.is_dict()) return InvalidArgument("unhashable type: '{}'", TypeName(v));
  return JinjaValue::Bool(v.is_string() && FindJinjaTest(v.text()) != nullptr);
}
Value TestSameAs(JinjaRuntime&, const JinjaValue& v, JinjaArgs& args) {
  return JinjaValue::Bool(v.SameAs(args.positional[0]));
}

template <JinjaCompareOp op>
Value TestCompare(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const bool holds, JinjaCompare(rt, op, v, args.positional[0]));
  return JinjaValue::Bool(holds);
}

Value Remainder(JinjaRuntime& rt, const JinjaValue& v, const JinjaValue& divisor, int64_t expected) {
  BELLHOP_TRY_ASSIGN(const JinjaValue rest, JinjaBinary(rt, JinjaBinaryOp::kMod, v, divisor));
  BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, rest, JinjaValue::Int(expected)));
  return JinjaValue::Bool(same);
}
Value TestOdd(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs&) { return Remainder(rt, v, JinjaValue::Int(2), 1); }
Value TestEven(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs&) { return Remainder(rt, v, JinjaValue::Int(2), 0); }
Value TestDivisibleBy(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs& args) {
  return Remainder(rt, v, args.positional[0], 0);
}

// islower and isupper: no character of the other case, and at least one of this case.
Value TestCase(JinjaRuntime& rt, const JinjaValue& v, bool upper) {
  BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, v));
  return JinjaValue::Bool(upper ? TextIsUpper(text) : TextIsLower(text));
}
Value TestLower(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs&) { return TestCase(rt, v, false); }
Value TestUpper(JinjaRuntime& rt, const JinjaValue& v, JinjaArgs&) { return TestCase(rt, v, true); }

constexpr JinjaBuiltin kTests[] = {
    {"defined", TestDefined},
    {"undefined", TestUndefined},
    {"none", TestNone},
    {"string", TestString},
    {"mapping", TestMapping},
    {"sequence", TestSequence},
    {"iterable", TestIterable},
    {"number", TestNumber},
    {"integer", TestInteger},
    {"float", TestFloat},
    {"boolean", TestBoolean},
    {"true", TestTrue},
    {"false", TestFalse},
    {"callable", TestCallable},
    {"escaped", TestEscaped},
    {"lower", TestLower},
    {"upper", TestUpper},
    {"odd", TestOdd},
    {"even", TestEven},
    {"filter", TestFilter},
    {"test", TestTest},
    {"divisibleby", TestDivisibleBy, 1, {"num"}},
    {"sameas", TestSameAs, 1, {"other"}},
    {"in", TestCompare<JinjaCompareOp::kIn>, 1, {"seq"}},
    {"==", TestCompare<JinjaCompareOp::kEq>, 1, {"other"}},
    {"eq", TestCompare<JinjaCompareOp::kEq>, 1, {"other"}},
    {"equalto", TestCompare<JinjaCompareOp::kEq>, 1, {"other"}},
    {"!=", TestCompare<JinjaCompareOp::kNe>, 1, {"other"}},
    {"ne", TestCompare<JinjaCompareOp::kNe>, 1, {"other"}},
    {">", TestCompare<JinjaCompareOp::kGt>, 1, {"other"}},
    {"gt", TestCompare<JinjaCompareOp::kGt>, 1, {"other"}},
    {"greaterthan", TestCompare<JinjaCompareOp::kGt>, 1, {"other"}},
    {">=", TestCompare<JinjaCompareOp::kGe>, 1, {"other"}},
    {"ge", TestCompare<JinjaCompareOp::kGe>, 1, {"other"}},
    {"<", TestCompare<JinjaCompareOp::kLt>, 1, {"other"}},
    {"lt", TestCompare<JinjaCompareOp::kLt>, 1, {"other"}},
    {"lessthan", TestCompare<JinjaCompareOp::kLt>, 1, {"other"}},
    {"<=", TestCompare<JinjaCompareOp::kLe>, 1, {"other"}},
    {"le", TestCompare<JinjaCompareOp::kLe>, 1, {"other"}},
};

// ---- global functions ----

Value GlobalRange(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  int64_t numbers[3] = {0, 0, 1};
  const bool one = args.positional[1].missing();
  for (size_t i = 0; i < 3; ++i) {
    if (args.positional[i].missing()) continue;
    BELLHOP_TRY_ASSIGN(numbers[one ? 1 : i], JinjaInteger(args.positional[i], "range"));
  }
  const auto [start, stop, step] = numbers;
  if (step == 0) return InvalidArgument("range() arg 3 must not be zero");
  uint64_t count = 0;
  const auto wide = [](int64_t v) { return static_cast<uint64_t>(v); };
  if (step > 0 && start < stop) count = (wide(stop) - wide(start) - 1) / wide(step) + 1;
  if (step < 0 && start > stop) count = (wide(start) - wide(stop) - 1) / (0 - wide(step)) + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    return InvalidArgument("range too big: at most {} items are allowed", kMaxRange);
  }
  return rt.Range(start, stop, step, static_cast<int64_t>(count));
}

// dict(mapping or pairs, **named): entries of both.
Result<std::vector<std::pair<JinjaValue, JinjaValue>>> DictArguments(JinjaRuntime& rt, const JinjaArgs& args) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  if (args.positional.size() > 1) {
    return InvalidArgument("dict expected at most 1 argument, got {}", args.positional.size());
  }
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    BELLHOP_TRY(rt.Step(static_cast<int64_t>(args.positional[0].dict().entries.size())));
    entries = args.positional[0].dict().entries;
  } else if (!args.positional.empty()) {
    BELLHOP_TRY_ASSIGN(const JinjaItems pairs, rt.Items(args.positional[0]));
    for (const JinjaValue& pair : pairs->items) {
      BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(pair));
      if (items->items.size() != 2) return InvalidArgument("dict() needs pairs of a key and a value");
      entries.emplace_back(items->items[0], items->items[1]);
    }
  }
  for (const auto& [name, value] : args.named) entries.emplace_back(rt.String(name), value);
  return entries;
}

Value GlobalDict(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(auto entries, DictArguments(rt, args));
  return rt.Dict(std::move(entries));
}

Value GlobalNamespace(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(auto entries, DictArguments(rt, args));
  BELLHOP_TRY_ASSIGN(const JinjaValue unique, rt.Dict(std::move(entries)));
  JinjaNamespace* ns = rt.NewNamespace();
  for (const auto& [key, value] : unique.dict().entries) {
    if (key.is_string()) ns->attributes.emplace_back(key.text(), value);
  }
  rt.ChargeArena(static_cast<int64_t>(ns->attributes.capacity() * sizeof(ns->attributes[0])));
  return JinjaValue::Arena(JinjaType::kNamespace, ns);
}

Value GlobalCycler(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  if (!args.named.empty()) return InvalidArgument("cycler() takes no keyword arguments");
  if (args.positional.empty()) return InvalidArgument("at least one item has to be provided");
  return JinjaValue::Arena(JinjaType::kCycler, rt.NewCycler(std::move(args.positional)));
}

Value GlobalJoiner(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  std::string separator = ", ";
  if (!args.positional[0].missing()) {
    BELLHOP_TRY_ASSIGN(separator, JinjaStr(rt, args.positional[0]));
  }
  return JinjaValue::Arena(JinjaType::kJoiner, rt.NewJoiner(std::move(separator)));
}

Value GlobalRaiseException(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const std::string message, JinjaStr(rt, args.positional[0]));
  return InvalidArgument("{}", message);
}

Value GlobalStrftimeNow(JinjaRuntime& rt, const JinjaValue&, JinjaArgs& args) {
  if (!args.positional[0].is_string()) return InvalidArgument("strftime_now() needs a format string");
  BELLHOP_TRY_ASSIGN(std::string text, FormatTime(rt, args.positional[0].text(), rt.now_unix_seconds()));
  return rt.String(std::move(text));
}

constexpr JinjaBuiltin kGlobals[] = {
    {"range", GlobalRange, 1, {"start", "stop", "step"}, true},
    {"dict", GlobalDict, 0, {}, false, true},
    {"namespace", GlobalNamespace, 0, {}, false, true},
    {"cycler", GlobalCycler, 0, {}, false, true},
    {"joiner", GlobalJoiner, 0, {"sep"}},
    {"raise_exception", GlobalRaiseException, 1, {"message"}},
    {"strftime_now", GlobalStrftimeNow, 1, {"format"}},
};

// ---- methods of containers and helpers ----

template <JinjaDictView::Kind kind>
Value DictViewOf(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  return rt.DictView(kind, self);
}

Value DictGet(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY(rt.Step());
  BELLHOP_TRY_ASSIGN(const JinjaValue* found, DictFind(rt, self.dict(), args.positional[0]));
  if (found != nullptr) return *found;
  return args.positional[1].missing() ? JinjaValue::None() : args.positional[1];
}

Value CopyOf(JinjaRuntime&, const JinjaValue& self, JinjaArgs&) { return self; }

Value SequenceIndex(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  const auto size = static_cast<int64_t>(items->items.size());
  int64_t bounds[2] = {0, size};
  for (size_t i = 0; i < 2; ++i) {
    if (args.positional[i + 1].missing()) continue;
    BELLHOP_TRY_ASSIGN(bounds[i], JinjaInteger(args.positional[i + 1], "index"));
    if (bounds[i] < 0) bounds[i] = std::max<int64_t>(bounds[i] + size, 0);
  }
  for (int64_t i = bounds[0]; i < std::min(bounds[1], size); ++i) {
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, items->items[static_cast<size_t>(i)], args.positional[0]));
    if (same) return JinjaValue::Int(i);
  }
  return InvalidArgument("value is not in {}", TypeName(self));
}

Value SequenceCount(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  int64_t count = 0;
  for (const JinjaValue& item : items->items) {
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, item, args.positional[0]));
    count += same ? 1 : 0;
  }
  return JinjaValue::Int(count);
}

Value LoopCycle(JinjaRuntime&, const JinjaValue& self, JinjaArgs& args) {
  if (args.positional.empty() || !args.named.empty()) return InvalidArgument("no items for cycling given");
  const int64_t index0 = std::max<int64_t>(self.as<JinjaLoop>().index0, 0);
  return args.positional[static_cast<size_t>(index0) % args.positional.size()];
}

Value LoopChanged(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (!args.named.empty()) return InvalidArgument("loop.changed() takes no keyword arguments");
  auto& loop = self.mutable_as<JinjaLoop>();
  const bool first = loop.changed_slot == 0;
  std::vector<JinjaValue>& last = rt.ChangedSlot(&loop.changed_slot);
  bool same = !first && last.size() == args.positional.size();
  for (size_t i = 0; same && i < last.size(); ++i) {
    BELLHOP_TRY_ASSIGN(same, JinjaEqual(rt, last[i], args.positional[i]));
  }
  if (!same) last = args.positional;
  return JinjaValue::Bool(!same);
}

Value CyclerNext(JinjaRuntime&, const JinjaValue& self, JinjaArgs&) {
  auto& cycler = *self.arena<JinjaCycler>();
  JinjaValue item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value CyclerReset(JinjaRuntime&, const JinjaValue& self, JinjaArgs&) {
  self.arena<JinjaCycler>()->position = 0;
  return JinjaValue::None();
}

constexpr JinjaBuiltin kDictMethods[] = {
    {"get", DictGet, 1, {"key", "default"}, true},
    {"items", DictViewOf<JinjaDictView::Kind::kItems>},
    {"keys", DictViewOf<JinjaDictView::Kind::kKeys>},
    {"values", DictViewOf<JinjaDictView::Kind::kValues>},
    {"copy", CopyOf},
};
constexpr JinjaBuiltin kListMethods[] = {
    {"index", SequenceIndex, 1, {"value", "start", "stop"}, true},
    {"count", SequenceCount, 1, {"value"}, true},
    {"copy", CopyOf},
};
constexpr JinjaBuiltin kSequenceMethods[] = {
    {"index", SequenceIndex, 1, {"value", "start", "stop"}, true},
    {"count", SequenceCount, 1, {"value"}, true},
};
constexpr JinjaBuiltin kLoopMethods[] = {
    {"cycle", LoopCycle, 0, {}, false, true},
    {"changed", LoopChanged, 0, {}, false, true},
};
constexpr JinjaBuiltin kCyclerMethods[] = {
    {"next", CyclerNext},
    {"reset", CyclerReset},
};

}  // namespace

const JinjaBuiltin* FindJinjaTest(std::string_view name) { return FindIn(kTests, name); }
const JinjaBuiltin* FindJinjaGlobal(std::string_view name) { return FindIn(kGlobals, name); }

const JinjaBuiltin* FindJinjaMethod(const JinjaValue& object, std::string_view name) {
  switch (object.type()) {
    case JinjaType::kString: return FindStringMethod(name);
    case JinjaType::kDict: return FindIn(kDictMethods, name);
    case JinjaType::kList: return FindIn(kListMethods, name);
    case JinjaType::kTuple:
    case JinjaType::kRange: return FindIn(kSequenceMethods, name);
    case JinjaType::kLoop: return FindIn(kLoopMethods, name);
    case JinjaType::kCycler: return FindIn(kCyclerMethods, name);
    default: return nullptr;
  }
}

Result<JinjaValue> CallBuiltin(JinjaRuntime& rt, const JinjaBuiltin& builtin, const JinjaValue& self, JinjaArgs args) {
  BELLHOP_TRY(rt.Step());
  if (builtin.variadic) return builtin.fn(rt, self, args);
  const auto count = static_cast<size_t>(ParamCount(builtin));
  if (args.positional.size() > count) {
    return InvalidArgument("{}() takes at most {} argument(s), got {}", builtin.name, count, args.positional.size());
  }
  const size_t given = args.positional.size();
  args.positional.resize(count);
  for (auto& [name, value] : args.named) {
    const auto place = static_cast<size_t>(
        std::find(builtin.params.begin(), builtin.params.begin() + static_cast<ptrdiff_t>(count), name) -
        builtin.params.begin());
    if (builtin.positional_only || place == count) {
      return InvalidArgument("{}() got an unexpected keyword argument '{}'", builtin.name, name);
    }
    if (place < given) return InvalidArgument("{}() got multiple values for argument '{}'", builtin.name, name);
    args.positional[place] = std::move(value);
  }
  args.named.clear();
  for (size_t i = 0; i < static_cast<size_t>(builtin.required); ++i) {
    if (args.positional[i].missing()) {
      return InvalidArgument("{}() is missing the argument '{}'", builtin.name, builtin.params[i]);
    }
  }
  return builtin.fn(rt, self, args);
}

}  // namespace bellhop::text
