#include "text/jinja_parser.h"

#include <algorithm>

#include "text/jinja_parser_impl.h"

namespace bellhop::text {
namespace {

// Each level costs about 15 C++ frames in the parser and a few in the interpreter.
constexpr int kMaxNesting = 150;

constexpr std::string_view kUnsupportedTags[] = {"include", "import", "from",       "extends",
                                                 "block",   "trans",  "autoescape", "do"};

}  // namespace

JinjaParser::JinjaParser(std::vector<JinjaToken> tokens)
    : tokens_(std::move(tokens)), result_(std::make_unique<JinjaTemplate>()) {
  result_->loop = Symbol("loop");
  result_->caller = Symbol("caller");
  result_->varargs = Symbol("varargs");
  result_->kwargs = Symbol("kwargs");
}

Result<std::unique_ptr<JinjaTemplate>> JinjaParser::Run() {
  BELLHOP_TRY_ASSIGN(result_->body, ParseBody({}));
  return std::move(result_);
}

Status JinjaParser::FailAt(int line, std::string_view what) const { return InvalidArgument("{}: {}", line, what); }

Status JinjaParser::CheckNesting() const {
  if (nesting_ <= kMaxNesting) return Status();
  return Fail(fmt::format("nested more than {} levels deep", kMaxNesting));
}

void JinjaParser::Skip(size_t count) { at_ = std::min(at_ + count, tokens_.size() - 1); }

bool JinjaParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Skip();
  return true;
}

bool JinjaParser::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Skip();
  return true;
}

Status JinjaParser::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return Status();
  return Fail(fmt::format("expected token '{}', got '{}'", op, DescribeToken(Current())));
}

Status JinjaParser::ExpectName(std::string_view name) {
  if (SkipName(name)) return Status();
  return Fail(fmt::format("expected token '{}', got '{}'", name, DescribeToken(Current())));
}

Result<std::string> JinjaParser::ExpectAnyName() {
  if (Current().type != JinjaTokenType::kName) {
    return Fail(fmt::format("expected token 'name', got '{}'", DescribeToken(Current())));
  }
  std::string name = Current().text;
  Skip();
  return name;
}

Status JinjaParser::ExpectBlockEnd() {
  if (Current().type != JinjaTokenType::kBlockEnd) {
    return Fail(fmt::format("expected token 'end of statement block', got '{}'", DescribeToken(Current())));
  }
  Skip();
  return Status();
}

int JinjaParser::Symbol(const std::string& name) {
  const auto [it, added] = result_->symbol_ids.emplace(name, static_cast<int>(result_->symbols.size()));
  if (added) result_->symbols.push_back(name);
  return it->second;
}

Result<JinjaBody> JinjaParser::ParseBody(std::initializer_list<std::string_view> end_tags) {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  JinjaBody body;
  while (true) {
    const JinjaToken& token = Current();
    switch (token.type) {
      case JinjaTokenType::kEnd:
        if (end_tags.size() == 0) return body;
        return Fail(fmt::format("unexpected end of template; the block '{}' is not closed", open_tags_.back()));
      case JinjaTokenType::kData: {
        JinjaStmt text;
        text.kind = JinjaStmtKind::kText;
        text.line = token.line;
        text.text = token.text;
        body.push_back(std::move(text));
        Skip();
        break;
      }
      case JinjaTokenType::kVariableBegin: {
        JinjaStmt output;
        output.kind = JinjaStmtKind::kOutput;
        output.line = token.line;
        Skip();
        BELLHOP_TRY_ASSIGN(output.expr, ParseTuple(true, false));
        if (Current().type != JinjaTokenType::kVariableEnd) {
          return Fail(fmt::format("expected token 'end of print statement', got '{}'", DescribeToken(Current())));
        }
        Skip();
        body.push_back(std::move(output));
        break;
      }
      case JinjaTokenType::kBlockBegin: {
        Skip();
        if (std::any_of(end_tags.begin(), end_tags.end(), [&](auto tag) { return Current().IsName(tag); })) {
          return body;
        }
        BELLHOP_TRY_ASSIGN(JinjaStmt statement, ParseStatement());
        BELLHOP_TRY(ExpectBlockEnd());
        body.push_back(std::move(statement));
        break;
      }
      default: return Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
    }
  }
}

Result<JinjaBody> JinjaParser::ParseBlock(std::initializer_list<std::string_view> end_tags) {
  SkipOperator(":");
  BELLHOP_TRY(ExpectBlockEnd());
  return ParseBody(end_tags);
}

Status JinjaParser::UnknownTag(const std::string& name, int line) {
  if (std::find(std::begin(kUnsupportedTags), std::end(kUnsupportedTags), name) != std::end(kUnsupportedTags)) {
    return FailAt(line, fmt::format("the tag '{}' is not supported in chat templates", name));
  }
  std::string what = fmt::format("encountered unknown tag '{}'", name);
  if (!open_tags_.empty()) what += fmt::format("; the innermost block to be closed is '{}'", open_tags_.back());
  return FailAt(line, what);
}

JinjaParser::Stmt JinjaParser::ParseStatement() {
  const int line = Current().line;
  if (Current().type != JinjaTokenType::kName) return Fail("tag name expected");
  const std::string name = Current().text;
  using Parse = Stmt (JinjaParser::*)();
  static constexpr std::pair<std::string_view, Parse> kTags[] = {
      {"for", &JinjaParser::ParseFor},        {"if", &JinjaParser::ParseIf},
      {"set", &JinjaParser::ParseSet},        {"macro", &JinjaParser::ParseMacro},
      {"call", &JinjaParser::ParseCallBlock}, {"filter", &JinjaParser::ParseFilterBlock},
      {"with", &JinjaParser::ParseWith},      {"generation", &JinjaParser::ParseGeneration},
      {"print", &JinjaParser::ParsePrint},
  };
  for (const auto& [tag, parse] : kTags) {
    if (tag != name) continue;
    Skip();
    open_tags_.push_back(name);
    BELLHOP_TRY_ASSIGN(JinjaStmt statement, (this->*parse)());
    open_tags_.pop_back();
    statement.line = line;
    return statement;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) return Fail(fmt::format("'{}' outside of a loop", name));
    Skip();
    JinjaStmt statement;
    statement.kind = name == "break" ? JinjaStmtKind::kBreak : JinjaStmtKind::kContinue;
    statement.line = line;
    return statement;
  }
  return UnknownTag(name, line);
}

JinjaParser::Stmt JinjaParser::ParseFor() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kFor;
  BELLHOP_TRY_ASSIGN(JinjaTarget target, ParseTarget(false, true));
  const auto assigns_loop = [&](const auto& self, const JinjaTarget& t) -> bool {
    return t.symbol == result_->loop ||
           std::any_of(t.items.begin(), t.items.end(), [&](const JinjaTarget& item) { return self(self, item); });
  };
  if (assigns_loop(assigns_loop, target)) return Fail("can't assign to special loop variable in for-loop target");
  statement.targets.push_back(std::move(target));
  BELLHOP_TRY(ExpectName("in"));
  BELLHOP_TRY_ASSIGN(statement.expr, ParseTuple(false, false));
  if (SkipName("if")) {
    BELLHOP_TRY_ASSIGN(statement.condition, ParseExpression());
  }
  statement.recursive = SkipName("recursive");
  ++loops_;
  BELLHOP_TRY_ASSIGN(JinjaBody body, ParseBlock({"endfor", "else"}));
  --loops_;
  statement.branches.resize(2);
  statement.branches[0].body = std::move(body);
  if (SkipName("else")) {
    BELLHOP_TRY_ASSIGN(statement.branches[1].body, ParseBlock({"endfor"}));
  }
  Skip();
  return statement;
}

JinjaParser::Stmt JinjaParser::ParseIf() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kIf;
  while (true) {
    JinjaStmt::Branch branch;
    BELLHOP_TRY_ASSIGN(branch.condition, ParseTuple(false, false));
    BELLHOP_TRY_ASSIGN(branch.body, ParseBlock({"elif", "else", "endif"}));
    statement.branches.push_back(std::move(branch));
    if (SkipName("elif")) continue;
    if (SkipName("else")) {
      JinjaStmt::Branch last;
      BELLHOP_TRY_ASSIGN(last.body, ParseBlock({"endif"}));
      statement.branches.push_back(std::move(last));
    }
    Skip();
    return statement;
  }
}

JinjaParser::Stmt JinjaParser::ParseSet() {
  JinjaStmt statement;
  BELLHOP_TRY_ASSIGN(JinjaTarget target, ParseTarget(true, false));
  statement.targets.push_back(std::move(target));
  if (SkipOperator("=")) {
    statement.kind = JinjaStmtKind::kSet;
    BELLHOP_TRY_ASSIGN(statement.expr, ParseTuple(true, false));
    return statement;
  }
  statement.kind = JinjaStmtKind::kSetBlock;
  BELLHOP_TRY_ASSIGN(statement.expr, ParseFilters(NewExpr(JinjaExprKind::kBlockInput, Current().line), false));
  statement.branches.resize(1);
  BELLHOP_TRY_ASSIGN(statement.branches[0].body, ParseBlock({"endset"}));
  Skip();
  return statement;
}

Status JinjaParser::ParseSignature(JinjaMacroDef* macro) {
  BELLHOP_TRY(ExpectOperator("("));
  while (!Current().IsOperator(")")) {
    if (!macro->params.empty()) BELLHOP_TRY(ExpectOperator(","));
    JinjaMacroDef::Param param;
    BELLHOP_TRY_ASSIGN(param.name, ExpectAnyName());
    param.symbol = Symbol(param.name);
    if (SkipOperator("=")) {
      BELLHOP_TRY_ASSIGN(param.fallback, ParseExpression());
    } else if (!macro->params.empty() && macro->params.back().fallback != nullptr) {
      return Fail("non-default argument follows default argument");
    } else if (param.name == "caller") {
      return Fail("the special argument 'caller' must be omitted or be given a default");
    }
    macro->params.push_back(std::move(param));
  }
  Skip();
  return Status();
}

Status JinjaParser::ParseMacroBody(JinjaMacroDef* macro, std::string_view end_tag) {
  const int loops = std::exchange(loops_, 0);
  macros_.push_back(macro);
  BELLHOP_TRY_ASSIGN(macro->body, ParseBlock({end_tag}));
  macros_.pop_back();
  loops_ = loops;
  Skip();
  return Status();
}

JinjaParser::Stmt JinjaParser::ParseMacro() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kMacro;
  statement.macro = std::make_unique<JinjaMacroDef>();
  statement.macro->line = Current().line;
  BELLHOP_TRY_ASSIGN(statement.macro->name, ExpectAnyName());
  statement.macro->symbol = Symbol(statement.macro->name);
  BELLHOP_TRY(ParseSignature(statement.macro.get()));
  BELLHOP_TRY(ParseMacroBody(statement.macro.get(), "endmacro"));
  return statement;
}

JinjaParser::Stmt JinjaParser::ParseCallBlock() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kCallBlock;
  statement.macro = std::make_unique<JinjaMacroDef>();
  statement.macro->line = Current().line;
  if (Current().IsOperator("(")) BELLHOP_TRY(ParseSignature(statement.macro.get()));
  BELLHOP_TRY_ASSIGN(statement.expr, ParseExpression());
  if (statement.expr->kind != JinjaExprKind::kCall) return FailAt(statement.macro->line, "expected call");
  BELLHOP_TRY(ParseMacroBody(statement.macro.get(), "endcall"));
  return statement;
}

JinjaParser::Stmt JinjaParser::ParseFilterBlock() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kFilterBlock;
  BELLHOP_TRY_ASSIGN(statement.expr, ParseFilters(NewExpr(JinjaExprKind::kBlockInput, Current().line), true));
  statement.branches.resize(1);
  BELLHOP_TRY_ASSIGN(statement.branches[0].body, ParseBlock({"endfilter"}));
  Skip();
  return statement;
}

JinjaParser::Stmt JinjaParser::ParseWith() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kScope;
  while (Current().type != JinjaTokenType::kBlockEnd) {
    if (!statement.targets.empty()) BELLHOP_TRY(ExpectOperator(","));
    BELLHOP_TRY_ASSIGN(JinjaTarget target, ParseTarget(false, false));
    BELLHOP_TRY(ExpectOperator("="));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr value, ParseExpression());
    statement.targets.push_back(std::move(target));
    statement.values.push_back(std::move(value));
  }
  statement.branches.resize(1);
  BELLHOP_TRY_ASSIGN(statement.branches[0].body, ParseBlock({"endwith"}));
  Skip();
  return statement;
}

// transformers marks the assistant's text with this tag; for rendering it is a scope.
JinjaParser::Stmt JinjaParser::ParseGeneration() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kScope;
  statement.branches.resize(1);
  const int loops = std::exchange(loops_, 0);
  BELLHOP_TRY_ASSIGN(statement.branches[0].body, ParseBlock({"endgeneration"}));
  loops_ = loops;
  Skip();
  return statement;
}

JinjaParser::Stmt JinjaParser::ParsePrint() {
  JinjaStmt statement;
  statement.kind = JinjaStmtKind::kOutput;
  JinjaExprPtr all = NewExpr(JinjaExprKind::kConcat, Current().line);
  while (Current().type != JinjaTokenType::kBlockEnd) {
    if (!all->items.empty()) BELLHOP_TRY(ExpectOperator(","));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr item, ParseExpression());
    all->items.push_back(std::move(item));
  }
  BELLHOP_TRY_ASSIGN(statement.expr, Done(std::move(all)));
  return statement;
}

Result<JinjaTarget> JinjaParser::ParseSingleTarget(bool with_namespace) {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  JinjaTarget target;
  target.line = Current().line;
  if (SkipOperator("(")) {
    BELLHOP_TRY_ASSIGN(target, ParseTarget(with_namespace, false));
    BELLHOP_TRY(ExpectOperator(")"));
    return target;
  }
  const bool constant = Current().IsName("true") || Current().IsName("false") || Current().IsName("none") ||
                        Current().IsName("True") || Current().IsName("False") || Current().IsName("None");
  if (constant || Current().type != JinjaTokenType::kName) {
    return Fail(fmt::format("can't assign to '{}'", DescribeToken(Current())));
  }
  target.symbol = Symbol(Current().text);
  Skip();
  if (with_namespace && SkipOperator(".")) {
    target.kind = JinjaTarget::Kind::kNamespace;
    BELLHOP_TRY_ASSIGN(target.attribute, ExpectAnyName());
  }
  return target;
}

Result<JinjaTarget> JinjaParser::ParseTarget(bool with_namespace, bool until_in) {
  JinjaTarget tuple;
  tuple.kind = JinjaTarget::Kind::kTuple;
  tuple.line = Current().line;
  bool is_tuple = false;
  while (!AtTupleEnd(until_in)) {
    BELLHOP_TRY_ASSIGN(JinjaTarget item, ParseSingleTarget(with_namespace));
    tuple.items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (tuple.items.empty())
    return Fail(fmt::format("expected an assignment target, got '{}'", DescribeToken(Current())));
  if (is_tuple) return tuple;
  return JinjaTarget(std::move(tuple.items.front()));
}

Result<std::unique_ptr<JinjaTemplate>> JinjaParse(std::string_view source) {
  BELLHOP_TRY_ASSIGN(std::vector<JinjaToken> tokens, JinjaTokenize(source));
  return JinjaParser(std::move(tokens)).Run();
}

}  // namespace bellhop::text
