// Runs a parsed template. One object per render; statements are in jinja_interpreter.cc, expressions in jinja_eval.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace bellhop::text {

// Variables of one block. A scope that a macro was defined in is captured and lives until the render ends; others
// are reused.
struct JinjaScope {
  JinjaScope* parent = nullptr;
  bool captured = false;
  std::vector<std::pair<int, JinjaValue>> variables;
};

class JinjaInterpreter final : public JinjaRuntime {
 public:
  JinjaInterpreter(const JinjaTemplate& source, const TemplateLimits& limits, int64_t now_unix_seconds)
      : JinjaRuntime(limits, now_unix_seconds), template_(source) {}

  Result<std::string> Render(const nlohmann::ordered_json& context);
  // Where the render is, or has failed.
  int line() const { return line_; }

  Result<JinjaValue> LoopAttribute(const JinjaValue& loop, std::string_view name) override;
  Status EnterCall() override;
  void LeaveCall() override { --depth_; }

 private:
  enum class Flow : uint8_t { kNone, kBreak, kContinue };

  // Takes a scope from the pool and gives it back unless it was captured.
  class ScopeHolder {
   public:
    ScopeHolder(JinjaInterpreter* interpreter, JinjaScope* parent);
    ~ScopeHolder();
    ScopeHolder(const ScopeHolder&) = delete;
    ScopeHolder& operator=(const ScopeHolder&) = delete;
    JinjaScope* get() { return scope_; }
    // A scope without variables for the next iteration.
    JinjaScope* Fresh();

   private:
    JinjaInterpreter* interpreter_;
    JinjaScope* parent_;
    JinjaScope* scope_;
  };

  // Leaves the call level on every way out.
  class CallGuard {
   public:
    explicit CallGuard(JinjaInterpreter* interpreter) : interpreter_(interpreter), status_(interpreter->EnterCall()) {}
    ~CallGuard() { interpreter_->LeaveCall(); }
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;
    const Status& status() const { return status_; }

   private:
    JinjaInterpreter* interpreter_;
    Status status_;
  };

  // Variables.
  Status BindContext(const nlohmann::ordered_json& context);
  JinjaScope* NewScope(JinjaScope* parent);
  void ReleaseScope(JinjaScope* scope);
  void Capture(JinjaScope* scope);
  const JinjaValue* Find(const JinjaScope* scope, int symbol) const;
  void Set(JinjaScope* scope, int symbol, JinjaValue value);
  Status Assign(const JinjaTarget& target, const JinjaValue& value, JinjaScope* scope);

  // Statements.
  Status ExecBody(const JinjaBody& body, JinjaScope* scope, std::string* out);
  Status Exec(const JinjaStmt& statement, JinjaScope* scope, std::string* out);
  Status ExecIf(const JinjaStmt& statement, JinjaScope* scope, std::string* out);
  Status ExecLoop(const JinjaStmt& statement, JinjaItems items, int depth0, JinjaScope* scope, std::string* out);
  Status ExecSetBlock(const JinjaStmt& statement, JinjaScope* scope);
  Status ExecFilterBlock(const JinjaStmt& statement, JinjaScope* scope, std::string* out);
  Status ExecCallBlock(const JinjaStmt& statement, JinjaScope* scope, std::string* out);
  Status ExecScope(const JinjaStmt& statement, JinjaScope* scope, std::string* out);
  // Whether the loop has an item number `index`; looks ahead as far as that takes.
  Result<bool> LoopHas(JinjaLoop* loop, size_t index);
  const JinjaValue& LoopItem(const JinjaLoop& loop, size_t index) const;

  // Expressions.
  Result<JinjaValue> Eval(const JinjaExpr& node, JinjaScope* scope);
  // The node's operation on the value of its first operand.
  Result<JinjaValue> Apply(const JinjaExpr& node, JinjaValue first, JinjaScope* scope);
  Result<JinjaValue> EvalWhole(const JinjaExpr& node, JinjaScope* scope);
  Result<JinjaValue> EvalConcat(const JinjaExpr& node, JinjaScope* scope);
  Result<JinjaValue> EvalCompare(const JinjaExpr& node, JinjaScope* scope);
  Result<JinjaValue> EvalDict(const JinjaExpr& node, JinjaScope* scope);
  Result<JinjaValue> EvalConditional(const JinjaExpr& node, JinjaScope* scope);
  Result<std::vector<JinjaValue>> EvalItems(const std::vector<JinjaExprPtr>& items, JinjaScope* scope);
  Result<JinjaArgs> EvalArgs(const JinjaCallArgs* args, JinjaScope* scope);
  Result<JinjaValue> Call(const JinjaValue& callee, JinjaArgs args);
  Result<JinjaValue> CallMacro(const JinjaMacro& macro, JinjaArgs args);
  Status BindMacroArgs(const JinjaMacroDef& def, JinjaArgs* args, JinjaScope* scope);
  Result<JinjaValue> CallLoop(const JinjaValue& loop, const JinjaArgs& args);

  const JinjaTemplate& template_;
  int line_ = 1;
  int depth_ = 0;   // nested calls and expressions
  int frames_ = 0;  // nested statements
  Flow flow_ = Flow::kNone;
  JinjaValue block_input_;
  JinjaScope root_;
  std::vector<JinjaValue> globals_;  // by symbol: what the template's top level sees
  std::deque<JinjaScope> scopes_;
  std::vector<JinjaScope*> free_scopes_;
};

}  // namespace bellhop::text
