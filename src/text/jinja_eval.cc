#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

// Kinds whose first operand is always evaluated first. Chains of them (a.b.c|d, x + y + z) are walked in a loop.
bool HasSpine(JinjaExprKind kind) {
  switch (kind) {
    case JinjaExprKind::kGetAttr:
    case JinjaExprKind::kGetItem:
    case JinjaExprKind::kSlice:
    case JinjaExprKind::kCall:
    case JinjaExprKind::kFilter:
    case JinjaExprKind::kTest:
    case JinjaExprKind::kNot:
    case JinjaExprKind::kNegate:
    case JinjaExprKind::kPositive:
    case JinjaExprKind::kAnd:
    case JinjaExprKind::kOr:
    case JinjaExprKind::kBinary: return true;
    default: return false;
  }
}

}  // namespace

Result<JinjaValue> JinjaInterpreter::Eval(const JinjaExpr& node, JinjaScope* scope) {
  BELLHOP_TRY(Step());
  switch (node.kind) {
    case JinjaExprKind::kConst: return node.constant;
    case JinjaExprKind::kBlockInput: return block_input_;
    case JinjaExprKind::kName: {
      const JinjaValue* value = Find(scope, node.symbol);
      if (value != nullptr) return *value;
      return Undefined(fmt::format("{} is undefined", StringRepr(node.text)));
    }
    default: break;
  }
  const CallGuard guard(this);
  line_ = node.line;
  BELLHOP_TRY(guard.status());
  if (!HasSpine(node.kind)) return EvalWhole(node, scope);

  constexpr size_t kInline = 12;
  const JinjaExpr* short_spine[kInline];
  std::vector<const JinjaExpr*> long_spine;
  size_t length = 0;
  const JinjaExpr* base = &node;
  for (; HasSpine(base->kind); base = base->items[0].get()) {
    if (length < kInline) {
      short_spine[length] = base;
    } else {
      long_spine.push_back(base);
    }
    ++length;
  }
  BELLHOP_TRY(Step(static_cast<int64_t>(length)));
  BELLHOP_TRY_ASSIGN(JinjaValue value, Eval(*base, scope));
  while (length > 0) {
    --length;
    const JinjaExpr& outer = length < kInline ? *short_spine[length] : *long_spine[length - kInline];
    line_ = outer.line;
    BELLHOP_TRY_ASSIGN(value, Apply(outer, std::move(value), scope));
  }
  return value;
}

Result<JinjaValue> JinjaInterpreter::Apply(const JinjaExpr& node, JinjaValue first, JinjaScope* scope) {
  switch (node.kind) {
    case JinjaExprKind::kGetAttr: return JinjaGetAttr(*this, first, node.text);
    case JinjaExprKind::kGetItem: {
      BELLHOP_TRY_ASSIGN(const JinjaValue key, Eval(*node.items[1], scope));
      line_ = node.line;
      return JinjaGetItem(*this, first, key);
    }
    case JinjaExprKind::kSlice: {
      JinjaValue bounds[3];
      for (size_t i = 0; i < 3; ++i) {
        if (node.items[i + 1] == nullptr) continue;
        BELLHOP_TRY_ASSIGN(bounds[i], Eval(*node.items[i + 1], scope));
      }
      line_ = node.line;
      return JinjaSlice(*this, first, bounds[0], bounds[1], bounds[2]);
    }
    case JinjaExprKind::kCall: {
      BELLHOP_TRY_ASSIGN(JinjaArgs args, EvalArgs(node.args.get(), scope));
      line_ = node.line;
      return Call(first, std::move(args));
    }
    case JinjaExprKind::kFilter:
    case JinjaExprKind::kTest: {
      BELLHOP_TRY_ASSIGN(JinjaArgs args, EvalArgs(node.args.get(), scope));
      line_ = node.line;
      return CallBuiltin(*this, *node.builtin, first, std::move(args));
    }
    case JinjaExprKind::kNot: return JinjaValue::Bool(!Truthy(first));
    case JinjaExprKind::kNegate: return JinjaNegate(first);
    case JinjaExprKind::kPositive: return JinjaPositive(first);
    case JinjaExprKind::kAnd:
      if (!Truthy(first)) return first;
      return Eval(*node.items[1], scope);
    case JinjaExprKind::kOr:
      if (Truthy(first)) return first;
      return Eval(*node.items[1], scope);
    case JinjaExprKind::kBinary: {
      BELLHOP_TRY_ASSIGN(const JinjaValue second, Eval(*node.items[1], scope));
      line_ = node.line;
      return JinjaBinary(*this, node.binary_op, first, second);
    }
    default: return Internal("expression without a first operand");
  }
}

Result<JinjaValue> JinjaInterpreter::EvalWhole(const JinjaExpr& node, JinjaScope* scope) {
  switch (node.kind) {
    case JinjaExprKind::kList: {
      BELLHOP_TRY_ASSIGN(std::vector<JinjaValue> items, EvalItems(node.items, scope));
      return List(std::move(items));
    }
    case JinjaExprKind::kTuple: {
      BELLHOP_TRY_ASSIGN(std::vector<JinjaValue> items, EvalItems(node.items, scope));
      return Tuple(std::move(items));
    }
    case JinjaExprKind::kDict: return EvalDict(node, scope);
    case JinjaExprKind::kConcat: return EvalConcat(node, scope);
    case JinjaExprKind::kCompare: return EvalCompare(node, scope);
    case JinjaExprKind::kConditional: return EvalConditional(node, scope);
    default: return Internal("unknown expression");
  }
}

Result<JinjaValue> JinjaInterpreter::EvalConcat(const JinjaExpr& node, JinjaScope* scope) {
  std::string out;
  for (const JinjaExprPtr& item : node.items) {
    BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*item, scope));
    line_ = node.line;
    BELLHOP_TRY(AppendStr(*this, value, &out));
  }
  return String(std::move(out));
}

Result<JinjaValue> JinjaInterpreter::EvalCompare(const JinjaExpr& node, JinjaScope* scope) {
  BELLHOP_TRY_ASSIGN(JinjaValue left, Eval(*node.items[0], scope));
  for (size_t i = 0; i < node.compare_ops.size(); ++i) {
    BELLHOP_TRY_ASSIGN(JinjaValue right, Eval(*node.items[i + 1], scope));
    line_ = node.line;
    BELLHOP_TRY_ASSIGN(const bool holds, JinjaCompare(*this, node.compare_ops[i], left, right));
    if (!holds) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

Result<JinjaValue> JinjaInterpreter::EvalDict(const JinjaExpr& node, JinjaScope* scope) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    BELLHOP_TRY_ASSIGN(JinjaValue key, Eval(*node.items[i], scope));
    BELLHOP_TRY_ASSIGN(JinjaValue value, Eval(*node.items[i + 1], scope));
    entries.emplace_back(std::move(key), std::move(value));
  }
  line_ = node.line;
  return Dict(std::move(entries));
}

Result<JinjaValue> JinjaInterpreter::EvalConditional(const JinjaExpr& node, JinjaScope* scope) {
  BELLHOP_TRY_ASSIGN(const JinjaValue condition, Eval(*node.items[0], scope));
  if (Truthy(condition)) return Eval(*node.items[1], scope);
  if (node.items[2] != nullptr) return Eval(*node.items[2], scope);
  return Undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", node.line));
}

Result<std::vector<JinjaValue>> JinjaInterpreter::EvalItems(const std::vector<JinjaExprPtr>& items, JinjaScope* scope) {
  std::vector<JinjaValue> values;
  values.reserve(items.size());
  for (const JinjaExprPtr& item : items) {
    BELLHOP_TRY_ASSIGN(JinjaValue value, Eval(*item, scope));
    values.push_back(std::move(value));
  }
  return values;
}

Result<JinjaArgs> JinjaInterpreter::EvalArgs(const JinjaCallArgs* args, JinjaScope* scope) {
  JinjaArgs result;
  if (args == nullptr) return result;
  BELLHOP_TRY_ASSIGN(result.positional, EvalItems(args->positional, scope));
  for (const auto& [name, item] : args->named) {
    BELLHOP_TRY_ASSIGN(JinjaValue value, Eval(*item, scope));
    result.named.emplace_back(name, std::move(value));
  }
  if (args->star != nullptr) {
    BELLHOP_TRY_ASSIGN(const JinjaValue star, Eval(*args->star, scope));
    BELLHOP_TRY_ASSIGN(const JinjaItems items, Items(star));
    BELLHOP_TRY(Step(static_cast<int64_t>(items->items.size())));
    result.positional.insert(result.positional.end(), items->items.begin(), items->items.end());
  }
  if (args->double_star != nullptr) {
    BELLHOP_TRY_ASSIGN(const JinjaValue mapping, Eval(*args->double_star, scope));
    if (!mapping.is_dict()) return InvalidArgument("argument after ** must be a mapping, not {}", TypeName(mapping));
    for (const auto& entry : mapping.dict().entries) {
      BELLHOP_TRY(Step(1 + static_cast<int64_t>(result.named.size())));
      if (!entry.first.is_string()) return InvalidArgument("keywords must be strings");
      const std::string& name = entry.first.text();
      const bool repeated =
          std::any_of(result.named.begin(), result.named.end(), [&](const auto& other) { return other.first == name; });
      if (repeated) return InvalidArgument("got multiple values for keyword argument '{}'", name);
      result.named.emplace_back(name, entry.second);
    }
  }
  return result;
}

Result<JinjaValue> JinjaInterpreter::Call(const JinjaValue& callee, JinjaArgs args) {
  switch (callee.type()) {
    case JinjaType::kFunction: {
      const auto& function = callee.as<JinjaFunction>();
      if (function.self.is_markup()) {
        return CallMarkupMethod(*this, *function.builtin, function.self, std::move(args));
      }
      return CallBuiltin(*this, *function.builtin, function.self, std::move(args));
    }
    case JinjaType::kMacro: return CallMacro(*callee.arena<JinjaMacro>(), std::move(args));
    case JinjaType::kLoop: return CallLoop(callee, args);
    case JinjaType::kJoiner: {
      if (!args.positional.empty() || !args.named.empty()) return InvalidArgument("joiner takes no arguments");
      auto& joiner = *callee.arena<JinjaJoiner>();
      return String(std::exchange(joiner.used, true) ? joiner.separator : std::string());
    }
    case JinjaType::kUndefined: return InvalidArgument("{}", callee.undefined_message());
    default: return InvalidArgument("'{}' object is not callable", TypeName(callee));
  }
}

Status JinjaInterpreter::BindMacroArgs(const JinjaMacroDef& def, JinjaArgs* args, JinjaScope* scope) {
  const auto take_named = [&](std::string_view name) {
    const auto it = std::find_if(args->named.begin(), args->named.end(), [&](auto& n) { return n.first == name; });
    if (it == args->named.end()) return JinjaValue();
    JinjaValue value = std::move(it->second);
    args->named.erase(it);
    return value;
  };
  std::vector<const JinjaMacroDef::Param*> absent;
  bool explicit_caller = false;
  for (size_t i = 0; i < def.params.size(); ++i) {
    const JinjaMacroDef::Param& param = def.params[i];
    explicit_caller |= param.name == "caller";
    JinjaValue value = i < args->positional.size() ? args->positional[i] : take_named(param.name);
    if (value.missing()) {
      absent.push_back(&param);
    } else {
      Set(scope, param.symbol, std::move(value));
    }
  }
  if (def.uses_caller && !explicit_caller) {
    JinjaValue caller = take_named("caller");
    Set(scope, template_.caller,
        caller.missing() || caller.none() ? Undefined("No caller defined") : std::move(caller));
  }
  if (def.uses_kwargs) {
    std::vector<std::pair<JinjaValue, JinjaValue>> entries;
    for (auto& [name, value] : args->named) entries.emplace_back(String(name), std::move(value));
    BELLHOP_TRY_ASSIGN(JinjaValue kwargs, Dict(std::move(entries)));
    Set(scope, template_.kwargs, std::move(kwargs));
  } else if (!args->named.empty()) {
    return InvalidArgument("macro {} takes no keyword argument {}", StringRepr(def.name),
                           StringRepr(args->named.front().first));
  }
  if (def.uses_varargs) {
    std::vector<JinjaValue> rest;
    for (size_t i = def.params.size(); i < args->positional.size(); ++i) rest.push_back(args->positional[i]);
    Set(scope, template_.varargs, Tuple(std::move(rest)));
  } else if (args->positional.size() > def.params.size()) {
    return InvalidArgument("macro {} takes not more than {} argument(s)", StringRepr(def.name), def.params.size());
  }
  for (const JinjaMacroDef::Param* param : absent) {
    if (param->fallback == nullptr) {
      Set(scope, param->symbol, Undefined(fmt::format("parameter {} was not provided", StringRepr(param->name))));
    } else {
      BELLHOP_TRY_ASSIGN(JinjaValue value, Eval(*param->fallback, scope));
      Set(scope, param->symbol, std::move(value));
    }
  }
  return Status();
}

Result<JinjaValue> JinjaInterpreter::CallMacro(const JinjaMacro& macro, JinjaArgs args) {
  const CallGuard guard(this);
  BELLHOP_TRY(guard.status());
  ScopeHolder scope(this, macro.scope);
  BELLHOP_TRY(BindMacroArgs(*macro.def, &args, scope.get()));
  std::string out;
  const JinjaValue outer_input = block_input_;
  BELLHOP_TRY(ExecBody(macro.def->body, scope.get(), &out));
  block_input_ = outer_input;
  return String(std::move(out));
}

Result<JinjaValue> JinjaInterpreter::CallLoop(const JinjaValue& value, const JinjaArgs& args) {
  const auto& loop = value.as<JinjaLoop>();
  if (!loop.statement->recursive) {
    return InvalidArgument("the loop must have the 'recursive' marker to be called recursively");
  }
  if (args.positional.size() != 1 || !args.named.empty()) return InvalidArgument("loop() takes exactly one argument");
  const CallGuard guard(this);
  BELLHOP_TRY(guard.status());
  BELLHOP_TRY_ASSIGN(JinjaItems items, Items(args.positional[0]));
  std::string out;
  BELLHOP_TRY(ExecLoop(*loop.statement, std::move(items), loop.depth0 + 1, loop.scope, &out));
  return String(std::move(out));
}

}  // namespace bellhop::text
