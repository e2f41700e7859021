// The parsed template. Names are numbered per template; filters and tests are resolved, so that an unknown one is an
// error of the parser.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_builtins.h"
#include "text/jinja_ops.h"
#include "text/jinja_value.h"

namespace bellhop::text {

struct JinjaExpr;
struct JinjaStmt;
using JinjaExprPtr = std::unique_ptr<JinjaExpr>;
using JinjaBody = std::vector<JinjaStmt>;

struct JinjaCallArgs {
  std::vector<JinjaExprPtr> positional;
  std::vector<std::pair<std::string, JinjaExprPtr>> named;
  JinjaExprPtr star;         // *args
  JinjaExprPtr double_star;  // **kwargs
};

enum class JinjaExprKind : uint8_t {
  kConst,        // constant
  kName,         // symbol
  kList,         // items
  kTuple,        // items
  kDict,         // items: key, value, key, value, ...
  kGetAttr,      // items[0].text
  kGetItem,      // items[0][items[1]]
  kSlice,        // items[0][items[1]:items[2]:items[3]], absent bounds null
  kCall,         // items[0](args)
  kFilter,       // items[0]|builtin(args)
  kTest,         // items[0] is builtin(args)
  kBlockInput,   // the text that a filter block feeds into its filters
  kNot,          // items[0]
  kNegate,       // items[0]
  kPositive,     // items[0]
  kAnd,          // items[0], items[1]
  kOr,           // items[0], items[1]
  kBinary,       // items[0] binary_op items[1]
  kConcat,       // items joined by ~
  kCompare,      // items[0] compare_ops[0] items[1] compare_ops[1] items[2] ...
  kConditional,  // items[1] if items[0] else items[2], which may be null
};

struct JinjaExpr {
  JinjaExprKind kind = JinjaExprKind::kConst;
  JinjaBinaryOp binary_op = JinjaBinaryOp::kAdd;
  int line = 0;
  int depth = 1;  // of this tree; bounded by the parser
  int symbol = -1;
  std::string text;
  JinjaValue constant;
  std::vector<JinjaExprPtr> items;
  std::vector<JinjaCompareOp> compare_ops;
  const JinjaBuiltin* builtin = nullptr;
  std::unique_ptr<JinjaCallArgs> args;
};

// What a for, set or with assigns to: a name, an attribute of a namespace, or a tuple of targets.
struct JinjaTarget {
  enum class Kind : uint8_t { kName, kNamespace, kTuple } kind = Kind::kName;
  int line = 0;
  int symbol = -1;
  std::string attribute;
  std::vector<JinjaTarget> items;
};

struct JinjaMacroDef {
  struct Param {
    std::string name;
    int symbol = -1;
    JinjaExprPtr fallback;
  };
  std::string name;  // empty for the body of a call block
  int symbol = -1;
  int line = 0;
  std::vector<Param> params;
  std::vector<JinjaStmt> body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

enum class JinjaStmtKind : uint8_t {
  kText,         // text
  kOutput,       // expr
  kIf,           // branches; a branch without expression is the else
  kFor,          // targets[0] in expr if condition; branches[0] body, branches[1] else
  kSet,          // targets[0] = expr
  kSetBlock,     // targets[0] = expr (filters over kBlockInput) of branches[0]
  kMacro,        // macro
  kCallBlock,    // expr is the call, macro its body
  kFilterBlock,  // expr (filters over kBlockInput) of branches[0]
  kScope,        // targets[i] = values[i], then branches[0] in its own scope: with, generation
  kBreak,
  kContinue,
};

struct JinjaStmt {
  struct Branch {
    JinjaExprPtr condition;
    JinjaBody body;
  };
  JinjaStmtKind kind = JinjaStmtKind::kText;
  bool recursive = false;
  int line = 0;
  std::string text;
  JinjaExprPtr expr;
  JinjaExprPtr condition;
  std::vector<JinjaTarget> targets;
  std::vector<JinjaExprPtr> values;
  std::vector<Branch> branches;
  std::unique_ptr<JinjaMacroDef> macro;
};

struct JinjaTemplate {
  JinjaBody body;
  std::vector<std::string> symbols;
  std::unordered_map<std::string, int> symbol_ids;
  int loop = 0;  // symbols that the interpreter itself assigns
  int caller = 0;
  int varargs = 0;
  int kwargs = 0;
};

}  // namespace bellhop::text
