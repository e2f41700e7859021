// Filters that walk sequences. Python's lazy ones return generators; here the items are made at once.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "text/jinja_builtin_tables.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

using Value = Result<JinjaValue>;
using Values = std::vector<JinjaValue>;

// The path that an attribute argument names: "a.b.0" walks three steps.
Result<Values> AttributePath(JinjaRuntime& rt, const JinjaValue& attribute) {
  Values path;
  if (attribute.missing() || attribute.none()) return path;
  if (!attribute.is_string()) {
    path.push_back(attribute);
    return path;
  }
  std::string_view rest = attribute.text();
  while (true) {
    BELLHOP_TRY(rt.Step());
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool number = !part.empty() && part.size() < 18 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    path.push_back(number ? JinjaValue::Int(std::stoll(part)) : rt.String(part));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

Value Walk(JinjaRuntime& rt, JinjaValue item, const Values& path, const JinjaValue& fallback) {
  for (const JinjaValue& part : path) {
    BELLHOP_TRY_ASSIGN(item, JinjaGetItem(rt, item, part));
    if (item.undefined() && !fallback.missing() && !fallback.none()) item = fallback;
  }
  return item;
}

JinjaValue IgnoreCase(JinjaRuntime& rt, const JinjaValue& value) {
  return value.is_string() ? rt.String(ToLower(value.text())) : value;
}

// One key per item: the attribute's value, in lower case unless the case matters.
Result<Values> Keys(JinjaRuntime& rt, const Values& items, const JinjaValue& attribute, bool case_sensitive,
                    const JinjaValue& fallback = JinjaValue()) {
  BELLHOP_TRY_ASSIGN(const Values path, AttributePath(rt, attribute));
  Values keys;
  keys.reserve(items.size());
  for (const JinjaValue& item : items) {
    BELLHOP_TRY(rt.Step());
    BELLHOP_TRY_ASSIGN(JinjaValue key, Walk(rt, item, path, fallback));
    keys.push_back(case_sensitive ? std::move(key) : IgnoreCase(rt, key));
  }
  return keys;
}

// Stable merge sort of positions by key; comparisons can fail. `reverse` keeps the order of equal keys, as Python does.
Status SortByKey(JinjaRuntime& rt, const Values& keys, bool reverse, std::vector<size_t>* order) {
  const size_t count = keys.size();
  order->resize(count);
  for (size_t i = 0; i < count; ++i) (*order)[i] = i;
  std::vector<size_t> merged(count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = std::min(begin + width, count);
      const size_t end = std::min(begin + 2 * width, count);
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const JinjaValue& a = keys[(*order)[left]];
          const JinjaValue& b = keys[(*order)[right]];
          BELLHOP_TRY_ASSIGN(take_right, JinjaOrder(rt, JinjaCompareOp::kLt, reverse ? a : b, reverse ? b : a));
        }
        merged[out] = (*order)[take_right ? right++ : left++];
      }
    }
    order->swap(merged);
  }
  return Status();
}

bool Flag(const JinjaValue& value) { return Truthy(value); }

Value Aggregate(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args, JinjaCompareOp better) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  if (items->items.empty()) return rt.Undefined("No aggregated item, sequence was empty.");
  BELLHOP_TRY_ASSIGN(const Values keys, Keys(rt, items->items, args.positional[1], Flag(args.positional[0])));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    BELLHOP_TRY_ASSIGN(const bool wins, JinjaOrder(rt, better, keys[i], keys[best]));
    if (wins) best = i;
  }
  return items->items[best];
}

// Leaves the call level on every way out.
struct CallLevel {
  explicit CallLevel(JinjaRuntime* runtime) : rt(runtime), status(runtime->EnterCall()) {}
  ~CallLevel() { rt->LeaveCall(); }
  CallLevel(const CallLevel&) = delete;
  CallLevel& operator=(const CallLevel&) = delete;
  JinjaRuntime* rt;
  Status status;
};

// select, reject, selectattr, rejectattr: [attribute,] [test, arguments...].
Value SelectOrReject(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args, bool keep, bool by_attribute) {
  if (!Truthy(self)) return rt.Generator({});
  const CallLevel level(&rt);
  BELLHOP_TRY(level.status);
  size_t used = 0;
  Values path;
  if (by_attribute) {
    if (args.positional.empty()) return InvalidArgument("missing parameter for attribute name");
    BELLHOP_TRY_ASSIGN(path, AttributePath(rt, args.positional[0]));
    used = 1;
  }
  const JinjaBuiltin* test = nullptr;
  JinjaArgs test_args;
  if (args.positional.size() > used) {
    const JinjaValue& name = args.positional[used];
    test = name.is_string() ? FindJinjaTest(name.text()) : nullptr;
    if (test == nullptr) {
      BELLHOP_TRY_ASSIGN(const std::string text, JinjaStr(rt, name));
      return InvalidArgument("no test named {}", StringRepr(text));
    }
    test_args.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(used) + 1, args.positional.end());
    test_args.named = args.named;
  }
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  Values kept;
  for (const JinjaValue& item : items->items) {
    BELLHOP_TRY(rt.Step(1 + static_cast<int64_t>(test_args.positional.size())));
    BELLHOP_TRY_ASSIGN(JinjaValue probe, Walk(rt, item, path, JinjaValue()));
    if (test != nullptr) {
      BELLHOP_TRY_ASSIGN(probe, CallBuiltin(rt, *test, probe, test_args));
    }
    if (Truthy(probe) == keep) kept.push_back(item);
  }
  return rt.Generator(std::move(kept));
}

JinjaValue GroupTuple(JinjaRuntime& rt, JinjaValue key, JinjaValue items) {
  JinjaValue group = rt.Tuple({std::move(key), std::move(items)});
  group.mutable_as<JinjaList>().is_group = true;
  return group;
}

}  // namespace

Value FilterFirst(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const JinjaItems first, rt.FirstItem(self));
  if (!first->items.empty()) return first->items[0];
  return rt.Undefined("No first item, sequence was empty.");
}

Value FilterLast(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  if (self.is(JinjaType::kGenerator)) return InvalidArgument("'generator' object is not reversible");
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  if (!items->items.empty()) return items->items.back();
  return rt.Undefined("No last item, sequence was empty.");
}

Value FilterLength(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const int64_t length, JinjaLength(rt, self));
  return JinjaValue::Int(length);
}

Value FilterList(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY(rt.Step(static_cast<int64_t>(items->items.size())));
  return rt.List(items->items);
}

Value FilterReverse(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  if (self.is_string()) {
    return JinjaSlice(rt, self, JinjaValue(), JinjaValue(), JinjaValue::Int(-1));
  }
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY(rt.Step(static_cast<int64_t>(items->items.size())));
  Values reversed(items->items.rbegin(), items->items.rend());
  return self.is(JinjaType::kGenerator) ? rt.List(std::move(reversed)) : rt.Generator(std::move(reversed));
}

Value FilterItems(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs&) {
  if (self.undefined()) return rt.Generator({});
  if (!self.is_dict()) return InvalidArgument("can only get item pairs from a mapping");
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(rt.DictView(JinjaDictView::Kind::kItems, self)));
  return rt.Generator(items->items);
}

Value FilterJoin(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  std::string separator;
  if (!args.positional[0].missing()) {
    BELLHOP_TRY_ASSIGN(separator, JinjaStr(rt, args.positional[0]));
  }
  BELLHOP_TRY_ASSIGN(const Values path, AttributePath(rt, args.positional[1]));
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  const JinjaValue between = rt.String(std::move(separator));
  std::string out;
  for (size_t i = 0; i < items->items.size(); ++i) {
    BELLHOP_TRY(rt.Step());
    if (i > 0) BELLHOP_TRY(AppendStr(rt, between, &out));
    BELLHOP_TRY_ASSIGN(const JinjaValue item, Walk(rt, items->items[i], path, JinjaValue()));
    BELLHOP_TRY(AppendStr(rt, item, &out));
  }
  return rt.String(std::move(out));
}

Value FilterMap(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  if (!Truthy(self)) return rt.Generator({});
  const CallLevel level(&rt);
  BELLHOP_TRY(level.status);
  Values mapped;
  const auto named = [&](std::string_view name) {
    const auto it = std::find_if(args.named.begin(), args.named.end(), [&](const auto& n) { return n.first == name; });
    return it == args.named.end() ? JinjaValue() : it->second;
  };
  const JinjaValue attribute = named("attribute");
  if (args.positional.empty() && !attribute.missing()) {
    for (const auto& [name, value] : args.named) {
      if (name != "attribute" && name != "default") return InvalidArgument("unexpected keyword argument '{}'", name);
    }
    const JinjaValue fallback = named("default");
    BELLHOP_TRY_ASSIGN(const Values path, AttributePath(rt, attribute));
    BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
    for (const JinjaValue& item : items->items) {
      BELLHOP_TRY(rt.Step());
      BELLHOP_TRY_ASSIGN(JinjaValue value, Walk(rt, item, path, fallback));
      mapped.push_back(std::move(value));
    }
    return rt.Generator(std::move(mapped));
  }
  if (args.positional.empty()) return InvalidArgument("map requires a filter argument");
  const JinjaBuiltin* filter = args.positional[0].is_string() ? FindJinjaFilter(args.positional[0].text()) : nullptr;
  if (filter == nullptr) {
    BELLHOP_TRY_ASSIGN(const std::string name, JinjaStr(rt, args.positional[0]));
    return InvalidArgument("no filter named {}", StringRepr(name));
  }
  JinjaArgs filter_args;
  filter_args.positional.assign(args.positional.begin() + 1, args.positional.end());
  filter_args.named = args.named;
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  for (const JinjaValue& item : items->items) {
    BELLHOP_TRY(rt.Step(1 + static_cast<int64_t>(filter_args.positional.size())));
    BELLHOP_TRY_ASSIGN(JinjaValue value, CallBuiltin(rt, *filter, item, filter_args));
    mapped.push_back(std::move(value));
  }
  return rt.Generator(std::move(mapped));
}

Value FilterSelect(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return SelectOrReject(rt, self, args, true, false);
}
Value FilterReject(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return SelectOrReject(rt, self, args, false, false);
}
Value FilterSelectAttr(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return SelectOrReject(rt, self, args, true, true);
}
Value FilterRejectAttr(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return SelectOrReject(rt, self, args, false, true);
}

Value FilterMin(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return Aggregate(rt, self, args, JinjaCompareOp::kLt);
}
Value FilterMax(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  return Aggregate(rt, self, args, JinjaCompareOp::kGt);
}

Value FilterSum(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const Values path, AttributePath(rt, args.positional[0]));
  JinjaValue total = args.positional[1].missing() ? JinjaValue::Int(0) : args.positional[1];
  if (total.is_string()) return InvalidArgument("sum() can't sum strings");
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  for (const JinjaValue& item : items->items) {
    BELLHOP_TRY(rt.Step());
    BELLHOP_TRY_ASSIGN(const JinjaValue value, Walk(rt, item, path, JinjaValue()));
    BELLHOP_TRY_ASSIGN(total, JinjaBinary(rt, JinjaBinaryOp::kAdd, total, value));
  }
  return total;
}

Value FilterSort(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  const bool case_sensitive = Flag(args.positional[1]);
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  // "a,b" sorts by a, then by b: keys are lists.
  Values attributes{args.positional[2]};
  if (args.positional[2].is_string()) {
    attributes.clear();
    std::string_view rest = args.positional[2].text();
    while (true) {
      BELLHOP_TRY(rt.Step());
      const size_t comma = rest.find(',');
      attributes.push_back(rt.String(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  std::vector<Values> columns;
  for (const JinjaValue& attribute : attributes) {
    BELLHOP_TRY_ASSIGN(Values keys, Keys(rt, items->items, attribute, case_sensitive));
    columns.push_back(std::move(keys));
  }
  Values keys;
  for (size_t i = 0; i < items->items.size(); ++i) {
    Values key;
    for (const Values& column : columns) key.push_back(column[i]);
    BELLHOP_TRY(rt.Step());
    keys.push_back(rt.List(std::move(key)));
  }
  std::vector<size_t> order;
  BELLHOP_TRY(SortByKey(rt, keys, Flag(args.positional[0]), &order));
  Values sorted;
  sorted.reserve(order.size());
  for (size_t i : order) sorted.push_back(items->items[i]);
  return rt.List(std::move(sorted));
}

Value FilterDictSort(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  size_t place = 0;
  if (!args.positional[1].missing()) {
    const bool by_text = args.positional[1].is_string();
    if (by_text && args.positional[1].text() == "value") {
      place = 1;
    } else if (!by_text || args.positional[1].text() != "key") {
      return InvalidArgument("dictsort can only sort by \"key\" or \"value\"");
    }
  }
  if (self.undefined()) return InvalidArgument("{}", self.undefined_message());
  if (!self.is_dict()) return InvalidArgument("'{}' object has no attribute 'items'", TypeName(self));
  BELLHOP_TRY_ASSIGN(const JinjaItems pairs, rt.Items(rt.DictView(JinjaDictView::Kind::kItems, self)));
  Values keys;
  for (const JinjaValue& pair : pairs->items) {
    BELLHOP_TRY(rt.Step());
    const JinjaValue& key = pair.items()[place];
    keys.push_back(Flag(args.positional[0]) ? key : IgnoreCase(rt, key));
  }
  std::vector<size_t> order;
  BELLHOP_TRY(SortByKey(rt, keys, Flag(args.positional[2]), &order));
  Values sorted;
  sorted.reserve(order.size());
  for (size_t i : order) sorted.push_back(pairs->items[i]);
  return rt.List(std::move(sorted));
}

Value FilterUnique(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY_ASSIGN(const Values keys, Keys(rt, items->items, args.positional[1], Flag(args.positional[0])));
  Values unique;
  std::unordered_set<std::string_view> texts;
  Values others;
  for (size_t i = 0; i < keys.size(); ++i) {
    BELLHOP_TRY(rt.Step());
    const JinjaValue& key = keys[i];
    if (key.is(JinjaType::kList) || key.is_dict()) return InvalidArgument("unhashable type: '{}'", TypeName(key));
    if (key.is_string()) {
      if (texts.insert(key.text()).second) unique.push_back(items->items[i]);
      continue;
    }
    bool seen = false;
    for (size_t k = 0; k < others.size() && !seen; ++k) {
      BELLHOP_TRY_ASSIGN(seen, JinjaEqual(rt, others[k], key));
    }
    if (seen) continue;
    others.push_back(key);
    unique.push_back(items->items[i]);
  }
  return rt.Generator(std::move(unique));
}

Value FilterBatch(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY_ASSIGN(const int64_t size, JinjaInteger(args.positional[0], "batch"));
  const JinjaValue& fill = args.positional[1];
  Values batches;
  Values row;
  for (const JinjaValue& item : items->items) {
    BELLHOP_TRY(rt.Step());
    if (static_cast<int64_t>(row.size()) == size) batches.push_back(rt.List(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const int64_t missing = size - static_cast<int64_t>(row.size());
    if (!fill.missing() && !fill.none() && missing > 0) {
      BELLHOP_TRY(rt.CheckBytes(missing > (INT64_MAX >> 6) ? INT64_MAX : missing * int64_t{sizeof(JinjaValue)}));
      row.insert(row.end(), static_cast<size_t>(missing), fill);
    }
    batches.push_back(rt.List(std::move(row)));
  }
  return rt.Generator(std::move(batches));
}

Value FilterSlice(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY_ASSIGN(const int64_t slices, JinjaInteger(args.positional[0], "slice"));
  if (slices == 0) return InvalidArgument("integer division or modulo by zero");
  const JinjaValue& fill = args.positional[1];
  const auto length = static_cast<int64_t>(items->items.size());
  Values result;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    BELLHOP_TRY(rt.Step());
    const bool longer = i < length % slices;
    const int64_t end = begin + length / slices + (longer ? 1 : 0);
    Values part(items->items.begin() + begin, items->items.begin() + end);
    if (!longer && !fill.missing() && !fill.none()) part.push_back(fill);
    result.push_back(rt.List(std::move(part)));
    begin = end;
  }
  return rt.Generator(std::move(result));
}

Value FilterGroupBy(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  const JinjaValue& fallback = args.positional[1];
  const bool case_sensitive = Flag(args.positional[2]);
  BELLHOP_TRY_ASSIGN(const JinjaItems items, rt.Items(self));
  BELLHOP_TRY_ASSIGN(const Values keys, Keys(rt, items->items, args.positional[0], case_sensitive, fallback));
  BELLHOP_TRY_ASSIGN(const Values path, AttributePath(rt, args.positional[0]));
  std::vector<size_t> order;
  BELLHOP_TRY(SortByKey(rt, keys, false, &order));
  Values groups;
  for (size_t begin = 0; begin < order.size();) {
    Values members;
    size_t end = begin;
    for (; end < order.size(); ++end) {
      BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, keys[order[end]], keys[order[begin]]));
      if (!same && end > begin) break;
      members.push_back(items->items[order[end]]);
    }
    JinjaValue key = keys[order[begin]];
    if (!case_sensitive) {
      BELLHOP_TRY_ASSIGN(key, Walk(rt, members.front(), path, fallback));
    }
    groups.push_back(GroupTuple(rt, std::move(key), rt.List(std::move(members))));
    begin = end;
  }
  return rt.List(std::move(groups));
}

}  // namespace bellhop::text
