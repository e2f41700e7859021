// The parser's class, shared by its two halves: statements in jinja_parser.cc, expressions in jinja_parser_expr.cc.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace bellhop::text {

class JinjaParser {
 public:
  explicit JinjaParser(std::vector<JinjaToken> tokens);
  Result<std::unique_ptr<JinjaTemplate>> Run();

 private:
  using Expr = Result<JinjaExprPtr>;
  using Stmt = Result<JinjaStmt>;

  // Counts recursion; every recursive rule holds one and checks it.
  struct Nesting {
    explicit Nesting(int* level) : level_(level) { ++*level_; }
    ~Nesting() { --*level_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int* level_;
  };
  Status CheckNesting() const;

  // Tokens.
  const JinjaToken& Current() const { return tokens_[at_]; }
  const JinjaToken& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Skip(size_t count = 1);
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  Result<std::string> ExpectAnyName();
  Status ExpectBlockEnd();
  Status Fail(std::string_view what) const { return FailAt(Current().line, what); }
  Status FailAt(int line, std::string_view what) const;
  int Symbol(const std::string& name);

  // Statements.
  // Until a block tag with one of the names, which stays current; an empty list means the end of the template.
  Result<JinjaBody> ParseBody(std::initializer_list<std::string_view> end_tags);
  // After a tag's head: its end, the body, and the end tag's name.
  Result<JinjaBody> ParseBlock(std::initializer_list<std::string_view> end_tags);
  Status UnknownTag(const std::string& name, int line);
  Stmt ParseStatement();
  Stmt ParseFor();
  Stmt ParseIf();
  Stmt ParseSet();
  Stmt ParseMacro();
  Stmt ParseCallBlock();
  Stmt ParseFilterBlock();
  Stmt ParseWith();
  Stmt ParseGeneration();
  Stmt ParsePrint();
  Status ParseSignature(JinjaMacroDef* macro);
  Status ParseMacroBody(JinjaMacroDef* macro, std::string_view end_tag);
  Result<JinjaTarget> ParseTarget(bool with_namespace, bool until_in);
  Result<JinjaTarget> ParseSingleTarget(bool with_namespace);

  // Expressions, loosest first.
  Expr ParseTuple(bool with_condition, bool explicit_parentheses);
  Expr ParseExpression(bool with_condition = true);
  Expr ParseConditional();
  Expr ParseOr();
  Expr ParseAnd();
  Expr ParseNot();
  Expr ParseCompare();
  Expr ParseBinary(int level);
  Expr ParseConcat();
  Expr ParseUnary(bool with_filter);
  Expr ParsePrimary();
  Expr ParseListLiteral();
  Expr ParseDictLiteral();
  Expr ParsePostfix(JinjaExprPtr node);
  Expr ParseFilterChain(JinjaExprPtr node);
  Expr ParseFilters(JinjaExprPtr node, bool start_inline);
  Expr ParseTest(JinjaExprPtr node);
  Expr ParseSubscript(JinjaExprPtr node);
  Expr ParseCall(JinjaExprPtr node);
  Result<std::unique_ptr<JinjaCallArgs>> ParseCallArgs();
  Status CheckNamedCallee(const JinjaExpr& filter) const;
  Result<std::string> ParseDottedName();
  bool AtTupleEnd(bool until_in) const;

  JinjaExprPtr NewExpr(JinjaExprKind kind, int line) const;
  // Finishes a node: its depth from its children, checked.
  Expr Done(JinjaExprPtr node) const;

  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // for loops around this place, inside the innermost macro
  std::unique_ptr<JinjaTemplate> result_;
  std::vector<JinjaMacroDef*> macros_;  // whose bodies are being parsed
  std::vector<std::string> open_tags_;
};

}  // namespace bellhop::text
