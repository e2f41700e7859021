#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

// Statements nest inside calls, so their bound is a multiple of the bound on calls.
constexpr int kFramesPerDepth = 3;

}  // namespace

JinjaInterpreter::ScopeHolder::ScopeHolder(JinjaInterpreter* interpreter, JinjaScope* parent)
    : interpreter_(interpreter), parent_(parent), scope_(interpreter->NewScope(parent)) {}

JinjaInterpreter::ScopeHolder::~ScopeHolder() { interpreter_->ReleaseScope(scope_); }

JinjaScope* JinjaInterpreter::ScopeHolder::Fresh() {
  if (scope_->captured) {
    scope_ = interpreter_->NewScope(parent_);
  } else {
    scope_->variables.clear();
  }
  return scope_;
}

JinjaScope* JinjaInterpreter::NewScope(JinjaScope* parent) {
  JinjaScope* scope = nullptr;
  if (free_scopes_.empty()) {
    scope = &scopes_.emplace_back();
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void JinjaInterpreter::ReleaseScope(JinjaScope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

void JinjaInterpreter::Capture(JinjaScope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    ChargeArena(static_cast<int64_t>(sizeof(JinjaScope) + scope->variables.capacity() * sizeof(scope->variables[0])));
  }
}

const JinjaValue* JinjaInterpreter::Find(const JinjaScope* scope, int symbol) const {
  for (; scope->parent != nullptr; scope = scope->parent) {
    for (const auto& [id, value] : scope->variables) {
      if (id == symbol) return &value;
    }
  }
  const JinjaValue& value = globals_[static_cast<size_t>(symbol)];
  return value.missing() ? nullptr : &value;
}

void JinjaInterpreter::Set(JinjaScope* scope, int symbol, JinjaValue value) {
  if (scope->parent == nullptr) {
    globals_[static_cast<size_t>(symbol)] = std::move(value);
    return;
  }
  for (auto& [id, old] : scope->variables) {
    if (id != symbol) continue;
    old = std::move(value);
    return;
  }
  scope->variables.emplace_back(symbol, std::move(value));
}

Status JinjaInterpreter::EnterCall() {
  if (++depth_ <= limits().max_depth) return Status();
  return InvalidArgument("calls and expressions are nested more than {} levels deep", limits().max_depth);
}

Status JinjaInterpreter::BindContext(const nlohmann::ordered_json& context) {
  if (!context.is_object()) return InvalidArgument("the context is not a JSON object");
  globals_.resize(template_.symbols.size());
  for (size_t i = 0; i < globals_.size(); ++i) {
    const std::string& name = template_.symbols[i];
    if (const auto it = context.find(name); it != context.end()) {
      BELLHOP_TRY_ASSIGN(globals_[i], ValueFromJson(*it));
    } else if (const JinjaBuiltin* builtin = FindJinjaGlobal(name)) {
      globals_[i] = Function(*builtin, JinjaValue());
    }
  }
  return Status();
}

Result<std::string> JinjaInterpreter::Render(const nlohmann::ordered_json& context) {
  BELLHOP_TRY(BindContext(context));
  std::string out;
  BELLHOP_TRY(ExecBody(template_.body, &root_, &out));
  return out;
}

Status JinjaInterpreter::ExecBody(const JinjaBody& body, JinjaScope* scope, std::string* out) {
  if (++frames_ > limits().max_depth * kFramesPerDepth) {
    return InvalidArgument("statements are nested more than {} levels deep", limits().max_depth * kFramesPerDepth);
  }
  for (const JinjaStmt& statement : body) {
    BELLHOP_TRY(Exec(statement, scope, out));
    if (flow_ != Flow::kNone) break;
  }
  --frames_;
  return Status();
}

Status JinjaInterpreter::Exec(const JinjaStmt& statement, JinjaScope* scope, std::string* out) {
  line_ = statement.line;
  BELLHOP_TRY(Step());
  switch (statement.kind) {
    case JinjaStmtKind::kText:
      if (static_cast<int64_t>(out->size() + statement.text.size()) > limits().max_output_bytes) {
        return InvalidArgument("the output exceeds the limit of {} bytes", limits().max_output_bytes);
      }
      *out += statement.text;
      return Step(static_cast<int64_t>(statement.text.size()) / kBytesPerStep);
    case JinjaStmtKind::kOutput: {
      BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*statement.expr, scope));
      return AppendStr(*this, value, out);
    }
    case JinjaStmtKind::kIf: return ExecIf(statement, scope, out);
    case JinjaStmtKind::kFor: {
      BELLHOP_TRY_ASSIGN(const JinjaValue iterable, Eval(*statement.expr, scope));
      line_ = statement.line;
      BELLHOP_TRY_ASSIGN(JinjaItems items, Items(iterable));
      if (statement.recursive) Capture(scope);
      return ExecLoop(statement, std::move(items), 0, scope, out);
    }
    case JinjaStmtKind::kSet: {
      BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*statement.expr, scope));
      return Assign(statement.targets[0], value, scope);
    }
    case JinjaStmtKind::kSetBlock: return ExecSetBlock(statement, scope);
    case JinjaStmtKind::kMacro: {
      Capture(scope);
      JinjaMacro* macro = NewMacro(*statement.macro, scope);
      Set(scope, statement.macro->symbol, JinjaValue::Arena(JinjaType::kMacro, macro));
      return Status();
    }
    case JinjaStmtKind::kCallBlock: return ExecCallBlock(statement, scope, out);
    case JinjaStmtKind::kFilterBlock: return ExecFilterBlock(statement, scope, out);
    case JinjaStmtKind::kScope: return ExecScope(statement, scope, out);
    case JinjaStmtKind::kBreak: flow_ = Flow::kBreak; return Status();
    case JinjaStmtKind::kContinue: flow_ = Flow::kContinue; return Status();
  }
  return Internal("unknown statement");
}

Status JinjaInterpreter::ExecIf(const JinjaStmt& statement, JinjaScope* scope, std::string* out) {
  for (const JinjaStmt::Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      BELLHOP_TRY_ASSIGN(const JinjaValue condition, Eval(*branch.condition, scope));
      if (!Truthy(condition)) continue;
    }
    return ExecBody(branch.body, scope, out);
  }
  return Status();
}

Result<bool> JinjaInterpreter::LoopHas(JinjaLoop* loop, size_t index) {
  const auto& source = loop->source->items;
  if (loop->ready == nullptr) return index < source.size();
  while (loop->ready->items.size() <= index && loop->next_source < source.size() && loop->running) {
    BELLHOP_TRY(Step());
    const JinjaValue& item = source[loop->next_source++];
    ScopeHolder scope(this, loop->scope);
    BELLHOP_TRY(Assign(loop->statement->targets[0], item, scope.get()));
    BELLHOP_TRY_ASSIGN(const JinjaValue passes, Eval(*loop->statement->condition, scope.get()));
    if (Truthy(passes)) loop->ready->items.push_back(item);
  }
  return index < loop->ready->items.size();
}

const JinjaValue& JinjaInterpreter::LoopItem(const JinjaLoop& loop, size_t index) const {
  return loop.ready != nullptr ? loop.ready->items[index] : loop.source->items[index];
}

Status JinjaInterpreter::ExecLoop(const JinjaStmt& statement, JinjaItems items, int depth0, JinjaScope* scope,
                                  std::string* out) {
  const std::shared_ptr<JinjaLoop> loop = Loop();
  loop->statement = &statement;
  loop->scope = scope;
  loop->depth = items->depth + 1;
  loop->source = std::move(items);
  loop->depth0 = depth0;
  loop->running = true;
  if (statement.condition != nullptr) loop->ready = std::make_shared<JinjaList>();
  const JinjaValue loop_value = JinjaValue::Object(JinjaType::kLoop, loop);

  ScopeHolder holder(this, scope);
  for (size_t i = 0;; ++i) {
    BELLHOP_TRY_ASSIGN(const bool has_item, LoopHas(loop.get(), i));
    if (!has_item) break;
    loop->index0 = static_cast<int64_t>(i);
    JinjaScope* inner = holder.Fresh();
    Set(inner, template_.loop, loop_value);
    line_ = statement.line;
    BELLHOP_TRY(Assign(statement.targets[0], LoopItem(*loop, i), inner));
    BELLHOP_TRY(ExecBody(statement.branches[0].body, inner, out));
    if (std::exchange(flow_, Flow::kNone) == Flow::kBreak) break;
  }
  loop->running = false;
  if (loop->index0 >= 0 || statement.branches[1].body.empty()) return Status();
  ScopeHolder otherwise(this, scope);
  return ExecBody(statement.branches[1].body, otherwise.get(), out);
}

Status JinjaInterpreter::ExecSetBlock(const JinjaStmt& statement, JinjaScope* scope) {
  std::string text;
  {
    ScopeHolder inner(this, scope);
    BELLHOP_TRY(ExecBody(statement.branches[0].body, inner.get(), &text));
  }
  if (flow_ != Flow::kNone) return Status();
  const JinjaValue outer_input = std::exchange(block_input_, String(std::move(text)));
  BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*statement.expr, scope));
  block_input_ = outer_input;
  return Assign(statement.targets[0], value, scope);
}

Status JinjaInterpreter::ExecFilterBlock(const JinjaStmt& statement, JinjaScope* scope, std::string* out) {
  std::string text;
  ScopeHolder inner(this, scope);
  BELLHOP_TRY(ExecBody(statement.branches[0].body, inner.get(), &text));
  if (flow_ != Flow::kNone) return Status();
  const JinjaValue outer_input = std::exchange(block_input_, String(std::move(text)));
  BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*statement.expr, inner.get()));
  block_input_ = outer_input;
  return AppendStr(*this, value, out);
}

Status JinjaInterpreter::ExecCallBlock(const JinjaStmt& statement, JinjaScope* scope, std::string* out) {
  BELLHOP_TRY_ASSIGN(const JinjaValue callee, Eval(*statement.expr->items[0], scope));
  BELLHOP_TRY_ASSIGN(JinjaArgs args, EvalArgs(statement.expr->args.get(), scope));
  Capture(scope);
  args.named.emplace_back("caller", JinjaValue::Arena(JinjaType::kMacro, NewMacro(*statement.macro, scope)));
  line_ = statement.line;
  BELLHOP_TRY_ASSIGN(const JinjaValue value, Call(callee, std::move(args)));
  return AppendStr(*this, value, out);
}

Status JinjaInterpreter::ExecScope(const JinjaStmt& statement, JinjaScope* scope, std::string* out) {
  ScopeHolder inner(this, scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    BELLHOP_TRY_ASSIGN(const JinjaValue value, Eval(*statement.values[i], scope));
    BELLHOP_TRY(Assign(statement.targets[i], value, inner.get()));
  }
  return ExecBody(statement.branches[0].body, inner.get(), out);
}

Status JinjaInterpreter::Assign(const JinjaTarget& target, const JinjaValue& value, JinjaScope* scope) {
  switch (target.kind) {
    case JinjaTarget::Kind::kName: Set(scope, target.symbol, value); return Status();
    case JinjaTarget::Kind::kNamespace: {
      const JinjaValue* ns = Find(scope, target.symbol);
      if (ns == nullptr || !ns->is(JinjaType::kNamespace)) {
        line_ = target.line;
        return InvalidArgument("cannot assign attribute on non-namespace object");
      }
      auto& attributes = ns->arena<JinjaNamespace>()->attributes;
      for (auto& [name, old] : attributes) {
        if (name != target.attribute) continue;
        old = value;
        return Status();
      }
      ChargeArena(static_cast<int64_t>(sizeof(attributes[0])));
      attributes.emplace_back(target.attribute, value);
      return Status();
    }
    case JinjaTarget::Kind::kTuple: break;
  }
  Result<JinjaItems> unpacked = Items(value);
  if (!unpacked.ok()) return InvalidArgument("cannot unpack non-iterable {} object", TypeName(value));
  const std::vector<JinjaValue>& items = (*unpacked)->items;
  const size_t expected = target.items.size();
  if (items.size() < expected) {
    return InvalidArgument("not enough values to unpack (expected {}, got {})", expected, items.size());
  }
  if (items.size() > expected) return InvalidArgument("too many values to unpack (expected {})", expected);
  for (size_t i = 0; i < expected; ++i) BELLHOP_TRY(Assign(target.items[i], items[i], scope));
  return Status();
}

Result<JinjaValue> JinjaInterpreter::LoopAttribute(const JinjaValue& value, std::string_view name) {
  auto& loop = value.mutable_as<JinjaLoop>();
  const int64_t index0 = loop.index0;
  const auto next = static_cast<size_t>(index0 + 1);
  if (name == "index") return JinjaValue::Int(index0 + 1);
  if (name == "index0") return JinjaValue::Int(index0);
  if (name == "first") return JinjaValue::Bool(index0 == 0);
  if (name == "depth") return JinjaValue::Int(loop.depth0 + 1);
  if (name == "depth0") return JinjaValue::Int(loop.depth0);
  if (name == "previtem") {
    if (index0 <= 0) return Undefined("there is no previous item");
    return LoopItem(loop, static_cast<size_t>(index0 - 1));
  }
  if (name == "last" || name == "nextitem") {
    BELLHOP_TRY_ASSIGN(const bool has_next, LoopHas(&loop, next));
    if (name == "last") return JinjaValue::Bool(!has_next);
    return has_next ? LoopItem(loop, next) : Undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    BELLHOP_TRY(LoopHas(&loop, loop.source->items.size()).status());
    const auto length = static_cast<int64_t>((loop.ready ? *loop.ready : *loop.source).items.size());
    if (name == "length") return JinjaValue::Int(length);
    return JinjaValue::Int(name == "revindex" ? length - index0 : length - index0 - 1);
  }
  if (const JinjaBuiltin* method = FindJinjaMethod(value, name)) return Function(*method, value);
  return JinjaValue();
}

Result<JinjaValue> MacroAttribute(JinjaRuntime& rt, const JinjaValue& value, std::string_view name) {
  const JinjaMacroDef& def = *value.arena<JinjaMacro>()->def;
  if (name == "name") return def.name.empty() ? JinjaValue::None() : rt.String(def.name);
  if (name == "arguments") {
    std::vector<JinjaValue> names;
    for (const auto& param : def.params) names.push_back(rt.String(param.name));
    return rt.Tuple(std::move(names));
  }
  if (name == "catch_kwargs") return JinjaValue::Bool(def.uses_kwargs);
  if (name == "catch_varargs") return JinjaValue::Bool(def.uses_varargs);
  if (name == "caller") return JinjaValue::Bool(def.uses_caller);
  return JinjaValue();
}

Result<std::string> DescribeJinjaObject(JinjaRuntime& rt, const JinjaValue& value) {
  if (value.is(JinjaType::kMacro)) {
    const std::string& name = value.arena<JinjaMacro>()->def->name;
    return fmt::format("<Macro {}>", name.empty() ? "anonymous" : StringRepr(name));
  }
  BELLHOP_TRY_ASSIGN(const JinjaValue length, rt.LoopAttribute(value, "length"));
  return fmt::format("<LoopContext {}/{}>", value.as<JinjaLoop>().index0 + 1, length.int_value());
}

}  // namespace bellhop::text
