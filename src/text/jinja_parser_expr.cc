#include <algorithm>

#include "text/jinja_parser_impl.h"

namespace bellhop::text {
namespace {

// Longest path in an expression tree. Chains such as a + b + ... + z are as deep as they are long.
constexpr int kMaxExpressionDepth = 1000;

struct BinaryRule {
  std::string_view symbol;
  JinjaBinaryOp op;
  int level;  // 0: + -, 1: * / // %, 2: **; the ~ operator stands between 0 and 1
};
constexpr BinaryRule kBinaryRules[] = {
    {"+", JinjaBinaryOp::kAdd, 0},  {"-", JinjaBinaryOp::kSub, 0}, {"*", JinjaBinaryOp::kMul, 1},
    {"/", JinjaBinaryOp::kDiv, 1},  {"%", JinjaBinaryOp::kMod, 1}, {"//", JinjaBinaryOp::kFloorDiv, 1},
    {"**", JinjaBinaryOp::kPow, 2},
};

constexpr std::pair<std::string_view, JinjaCompareOp> kCompareRules[] = {
    {"==", JinjaCompareOp::kEq}, {"!=", JinjaCompareOp::kNe}, {"<", JinjaCompareOp::kLt},
    {"<=", JinjaCompareOp::kLe}, {">", JinjaCompareOp::kGt},  {">=", JinjaCompareOp::kGe},
};

}  // namespace

JinjaExprPtr JinjaParser::NewExpr(JinjaExprKind kind, int line) const {
  auto node = std::make_unique<JinjaExpr>();
  node->kind = kind;
  node->line = line;
  return node;
}

JinjaParser::Expr JinjaParser::Done(JinjaExprPtr node) const {
  int below = 0;
  const auto look = [&](const JinjaExprPtr& child) {
    if (child != nullptr) below = std::max(below, child->depth);
  };
  for (const JinjaExprPtr& item : node->items) look(item);
  if (node->args != nullptr) {
    for (const JinjaExprPtr& item : node->args->positional) look(item);
    for (const auto& [name, item] : node->args->named) look(item);
    look(node->args->star);
    look(node->args->double_star);
  }
  node->depth = below + 1;
  if (node->depth > kMaxExpressionDepth) {
    return FailAt(node->line, fmt::format("an expression is nested more than {} levels deep", kMaxExpressionDepth));
  }
  return node;
}

bool JinjaParser::AtTupleEnd(bool until_in) const {
  const JinjaToken& token = Current();
  return token.type == JinjaTokenType::kVariableEnd || token.type == JinjaTokenType::kBlockEnd ||
         token.IsOperator(")") || (until_in && token.IsName("in"));
}

// One expression, or a tuple when a comma follows. Before `recursive` and `if` tags `with_condition` is false.
JinjaParser::Expr JinjaParser::ParseTuple(bool with_condition, bool explicit_parentheses) {
  JinjaExprPtr tuple = NewExpr(JinjaExprKind::kTuple, Current().line);
  bool is_tuple = false;
  while (!AtTupleEnd(false) && !(!with_condition && is_tuple && Current().IsName("recursive"))) {
    BELLHOP_TRY_ASSIGN(JinjaExprPtr item, ParseExpression(with_condition));
    tuple->items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple->items.empty()) return std::move(tuple->items.front());
  if (tuple->items.empty() && !explicit_parentheses) {
    return Fail(fmt::format("expected an expression, got '{}'", DescribeToken(Current())));
  }
  return Done(std::move(tuple));
}

JinjaParser::Expr JinjaParser::ParseExpression(bool with_condition) {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  return with_condition ? ParseConditional() : ParseOr();
}

JinjaParser::Expr JinjaParser::ParseConditional() {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  BELLHOP_TRY_ASSIGN(JinjaExprPtr value, ParseOr());
  while (Current().IsName("if")) {
    JinjaExprPtr node = NewExpr(JinjaExprKind::kConditional, Current().line);
    Skip();
    BELLHOP_TRY_ASSIGN(JinjaExprPtr condition, ParseOr());
    JinjaExprPtr otherwise;
    if (SkipName("else")) {
      BELLHOP_TRY_ASSIGN(otherwise, ParseConditional());
    }
    node->items.push_back(std::move(condition));
    node->items.push_back(std::move(value));
    node->items.push_back(std::move(otherwise));
    BELLHOP_TRY_ASSIGN(value, Done(std::move(node)));
  }
  return value;
}

JinjaParser::Expr JinjaParser::ParseOr() {
  BELLHOP_TRY_ASSIGN(JinjaExprPtr left, ParseAnd());
  while (Current().IsName("or")) {
    JinjaExprPtr node = NewExpr(JinjaExprKind::kOr, Current().line);
    Skip();
    node->items.push_back(std::move(left));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr right, ParseAnd());
    node->items.push_back(std::move(right));
    BELLHOP_TRY_ASSIGN(left, Done(std::move(node)));
  }
  return left;
}

JinjaParser::Expr JinjaParser::ParseAnd() {
  BELLHOP_TRY_ASSIGN(JinjaExprPtr left, ParseNot());
  while (Current().IsName("and")) {
    JinjaExprPtr node = NewExpr(JinjaExprKind::kAnd, Current().line);
    Skip();
    node->items.push_back(std::move(left));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr right, ParseNot());
    node->items.push_back(std::move(right));
    BELLHOP_TRY_ASSIGN(left, Done(std::move(node)));
  }
  return left;
}

JinjaParser::Expr JinjaParser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  JinjaExprPtr node = NewExpr(JinjaExprKind::kNot, Current().line);
  Skip();
  BELLHOP_TRY_ASSIGN(JinjaExprPtr operand, ParseNot());
  node->items.push_back(std::move(operand));
  return Done(std::move(node));
}

JinjaParser::Expr JinjaParser::ParseCompare() {
  const int line = Current().line;
  BELLHOP_TRY_ASSIGN(JinjaExprPtr first, ParseBinary(0));
  JinjaExprPtr node;
  while (true) {
    const auto rule = std::find_if(std::begin(kCompareRules), std::end(kCompareRules),
                                   [&](const auto& r) { return Current().IsOperator(r.first); });
    JinjaCompareOp op;
    if (rule != std::end(kCompareRules)) {
      op = rule->second;
      Skip();
    } else if (SkipName("in")) {
      op = JinjaCompareOp::kIn;
    } else if (Current().IsName("not") && Next().IsName("in")) {
      op = JinjaCompareOp::kNotIn;
      Skip(2);
    } else {
      break;
    }
    if (node == nullptr) {
      node = NewExpr(JinjaExprKind::kCompare, line);
      node->items.push_back(std::move(first));
    }
    node->compare_ops.push_back(op);
    BELLHOP_TRY_ASSIGN(JinjaExprPtr operand, ParseBinary(0));
    node->items.push_back(std::move(operand));
  }
  if (node == nullptr) return first;
  return Done(std::move(node));
}

JinjaParser::Expr JinjaParser::ParseBinary(int level) {
  const auto operand = [&]() -> Expr {
    if (level == 0) return ParseConcat();
    return level == 1 ? ParseBinary(2) : ParseUnary(true);
  };
  BELLHOP_TRY_ASSIGN(JinjaExprPtr left, operand());
  while (true) {
    const auto rule = std::find_if(std::begin(kBinaryRules), std::end(kBinaryRules), [&](const BinaryRule& r) {
      return r.level == level && Current().IsOperator(r.symbol);
    });
    if (rule == std::end(kBinaryRules)) return left;
    JinjaExprPtr node = NewExpr(JinjaExprKind::kBinary, Current().line);
    node->binary_op = rule->op;
    Skip();
    node->items.push_back(std::move(left));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr right, operand());
    node->items.push_back(std::move(right));
    BELLHOP_TRY_ASSIGN(left, Done(std::move(node)));
  }
}

JinjaParser::Expr JinjaParser::ParseConcat() {
  const int line = Current().line;
  BELLHOP_TRY_ASSIGN(JinjaExprPtr first, ParseBinary(1));
  if (!Current().IsOperator("~")) return first;
  JinjaExprPtr node = NewExpr(JinjaExprKind::kConcat, line);
  node->items.push_back(std::move(first));
  while (SkipOperator("~")) {
    BELLHOP_TRY_ASSIGN(JinjaExprPtr item, ParseBinary(1));
    node->items.push_back(std::move(item));
  }
  return Done(std::move(node));
}

JinjaParser::Expr JinjaParser::ParseUnary(bool with_filter) {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  JinjaExprPtr node;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const auto kind = Current().text == "-" ? JinjaExprKind::kNegate : JinjaExprKind::kPositive;
    JinjaExprPtr unary = NewExpr(kind, Current().line);
    Skip();
    BELLHOP_TRY_ASSIGN(JinjaExprPtr operand, ParseUnary(false));
    unary->items.push_back(std::move(operand));
    BELLHOP_TRY_ASSIGN(node, Done(std::move(unary)));
  } else {
    BELLHOP_TRY_ASSIGN(node, ParsePrimary());
  }
  BELLHOP_TRY_ASSIGN(node, ParsePostfix(std::move(node)));
  if (!with_filter) return node;
  return ParseFilterChain(std::move(node));
}

JinjaParser::Expr JinjaParser::ParsePrimary() {
  const JinjaToken& token = Current();
  JinjaExprPtr node = NewExpr(JinjaExprKind::kConst, token.line);
  switch (token.type) {
    case JinjaTokenType::kName:
      if (token.text == "true" || token.text == "True") {
        node->constant = JinjaValue::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        node->constant = JinjaValue::Bool(false);
      } else if (token.text == "none" || token.text == "None") {
        node->constant = JinjaValue::None();
      } else {
        node->kind = JinjaExprKind::kName;
        node->text = token.text;
        node->symbol = Symbol(token.text);
        for (JinjaMacroDef* macro : macros_) {
          macro->uses_caller |= token.text == "caller";
          macro->uses_varargs |= token.text == "varargs";
          macro->uses_kwargs |= token.text == "kwargs";
        }
      }
      Skip();
      return node;
    case JinjaTokenType::kString: {
      std::string text;
      for (; Current().type == JinjaTokenType::kString; Skip()) text += Current().text;
      node->constant = JinjaValue::UnmeteredString(std::move(text));
      return node;
    }
    case JinjaTokenType::kInteger:
      node->constant = JinjaValue::Int(token.integer);
      Skip();
      return node;
    case JinjaTokenType::kFloat:
      node->constant = JinjaValue::Float(token.number);
      Skip();
      return node;
    case JinjaTokenType::kOperator:
      if (token.text == "(") {
        Skip();
        BELLHOP_TRY_ASSIGN(node, ParseTuple(true, true));
        BELLHOP_TRY(ExpectOperator(")"));
        return node;
      }
      if (token.text == "[") return ParseListLiteral();
      if (token.text == "{") return ParseDictLiteral();
      break;
    default: break;
  }
  return Fail(fmt::format("unexpected '{}'", DescribeToken(token)));
}

JinjaParser::Expr JinjaParser::ParseListLiteral() {
  JinjaExprPtr node = NewExpr(JinjaExprKind::kList, Current().line);
  BELLHOP_TRY(ExpectOperator("["));
  while (!Current().IsOperator("]")) {
    BELLHOP_TRY_ASSIGN(JinjaExprPtr item, ParseExpression());
    node->items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  BELLHOP_TRY(ExpectOperator("]"));
  return Done(std::move(node));
}

JinjaParser::Expr JinjaParser::ParseDictLiteral() {
  JinjaExprPtr node = NewExpr(JinjaExprKind::kDict, Current().line);
  BELLHOP_TRY(ExpectOperator("{"));
  while (!Current().IsOperator("}")) {
    BELLHOP_TRY_ASSIGN(JinjaExprPtr key, ParseExpression());
    BELLHOP_TRY(ExpectOperator(":"));
    BELLHOP_TRY_ASSIGN(JinjaExprPtr value, ParseExpression());
    node->items.push_back(std::move(key));
    node->items.push_back(std::move(value));
    if (!SkipOperator(",")) break;
  }
  BELLHOP_TRY(ExpectOperator("}"));
  return Done(std::move(node));
}

JinjaParser::Expr JinjaParser::ParsePostfix(JinjaExprPtr node) {
  while (true) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      BELLHOP_TRY_ASSIGN(node, ParseSubscript(std::move(node)));
    } else if (Current().IsOperator("(")) {
      BELLHOP_TRY_ASSIGN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

JinjaParser::Expr JinjaParser::ParseFilterChain(JinjaExprPtr node) {
  while (true) {
    if (Current().IsOperator("|")) {
      BELLHOP_TRY_ASSIGN(node, ParseFilters(std::move(node), false));
    } else if (Current().IsName("is")) {
      BELLHOP_TRY_ASSIGN(node, ParseTest(std::move(node)));
    } else if (Current().IsOperator("(")) {
      BELLHOP_TRY_ASSIGN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<std::string> JinjaParser::ParseDottedName() {
  BELLHOP_TRY_ASSIGN(std::string name, ExpectAnyName());
  while (SkipOperator(".")) {
    BELLHOP_TRY_ASSIGN(const std::string part, ExpectAnyName());
    name += "." + part;
  }
  return name;
}

// map('name') and select('name') call what they name: a literal name is checked like one after a bar.
Status JinjaParser::CheckNamedCallee(const JinjaExpr& filter) const {
  const bool by_attribute = filter.text == "selectattr" || filter.text == "rejectattr";
  const bool maps = filter.text == "map";
  if (!by_attribute && !maps && filter.text != "select" && filter.text != "reject") return Status();
  const size_t place = by_attribute ? 1 : 0;
  if (filter.args == nullptr || filter.args->positional.size() <= place) return Status();
  const JinjaExpr& name = *filter.args->positional[place];
  if (name.kind != JinjaExprKind::kConst || !name.constant.is_string()) return Status();
  const std::string& text = name.constant.text();
  if (maps && FindJinjaFilter(text) == nullptr) return FailAt(name.line, fmt::format("no filter named '{}'", text));
  if (!maps && FindJinjaTest(text) == nullptr) return FailAt(name.line, fmt::format("no test named '{}'", text));
  return Status();
}

JinjaParser::Expr JinjaParser::ParseFilters(JinjaExprPtr node, bool start_inline) {
  while (start_inline || SkipOperator("|")) {
    start_inline = false;
    JinjaExprPtr filter = NewExpr(JinjaExprKind::kFilter, Current().line);
    BELLHOP_TRY_ASSIGN(filter->text, ParseDottedName());
    filter->builtin = FindJinjaFilter(filter->text);
    if (filter->builtin == nullptr) return FailAt(filter->line, fmt::format("no filter named '{}'", filter->text));
    if (Current().IsOperator("(")) {
      BELLHOP_TRY_ASSIGN(filter->args, ParseCallArgs());
    }
    BELLHOP_TRY(CheckNamedCallee(*filter));
    filter->items.push_back(std::move(node));
    BELLHOP_TRY_ASSIGN(node, Done(std::move(filter)));
  }
  return node;
}

JinjaParser::Expr JinjaParser::ParseTest(JinjaExprPtr node) {
  const Nesting nesting(&nesting_);
  BELLHOP_TRY(CheckNesting());
  JinjaExprPtr test = NewExpr(JinjaExprKind::kTest, Current().line);
  Skip();
  const bool negated = SkipName("not");
  BELLHOP_TRY_ASSIGN(test->text, ParseDottedName());
  test->builtin = FindJinjaTest(test->text);
  if (test->builtin == nullptr) return FailAt(test->line, fmt::format("no test named '{}'", test->text));
  const JinjaToken& token = Current();
  const bool argument_follows =
      token.type == JinjaTokenType::kString || token.type == JinjaTokenType::kInteger ||
      token.type == JinjaTokenType::kFloat || token.IsOperator("[") || token.IsOperator("{") ||
      (token.type == JinjaTokenType::kName && token.text != "else" && token.text != "or" && token.text != "and");
  if (token.IsOperator("(")) {
    BELLHOP_TRY_ASSIGN(test->args, ParseCallArgs());
  } else if (argument_follows) {
    if (token.IsName("is")) return Fail("you cannot chain multiple tests with is");
    BELLHOP_TRY_ASSIGN(JinjaExprPtr argument, ParsePrimary());
    BELLHOP_TRY_ASSIGN(argument, ParsePostfix(std::move(argument)));
    test->args = std::make_unique<JinjaCallArgs>();
    test->args->positional.push_back(std::move(argument));
  }
  test->items.push_back(std::move(node));
  if (!negated) return Done(std::move(test));
  JinjaExprPtr inverse = NewExpr(JinjaExprKind::kNot, test->line);
  BELLHOP_TRY_ASSIGN(JinjaExprPtr operand, Done(std::move(test)));
  inverse->items.push_back(std::move(operand));
  return Done(std::move(inverse));
}

JinjaParser::Expr JinjaParser::ParseSubscript(JinjaExprPtr node) {
  const int line = Current().line;
  if (SkipOperator(".")) {
    const JinjaToken& token = Current();
    if (token.type == JinjaTokenType::kName) {
      JinjaExprPtr attribute = NewExpr(JinjaExprKind::kGetAttr, line);
      attribute->text = token.text;
      Skip();
      attribute->items.push_back(std::move(node));
      return Done(std::move(attribute));
    }
    if (token.type != JinjaTokenType::kInteger) return Fail("expected name or number");
    JinjaExprPtr item = NewExpr(JinjaExprKind::kGetItem, line);
    JinjaExprPtr index = NewExpr(JinjaExprKind::kConst, line);
    index->constant = JinjaValue::Int(token.integer);
    Skip();
    item->items.push_back(std::move(node));
    item->items.push_back(std::move(index));
    return Done(std::move(item));
  }
  BELLHOP_TRY(ExpectOperator("["));
  JinjaExprPtr bounds[3];
  int colons = 0;
  const auto at_end = [&] { return Current().IsOperator("]") || Current().IsOperator(","); };
  while (colons < 3 && !at_end()) {
    if (!Current().IsOperator(":")) {
      BELLHOP_TRY_ASSIGN(bounds[colons], ParseExpression());
    }
    if (colons == 2 || !SkipOperator(":")) break;
    ++colons;
  }
  if (Current().IsOperator(",")) return Fail("subscripts with a comma are not supported");
  BELLHOP_TRY(ExpectOperator("]"));
  if (colons == 0 && bounds[0] == nullptr) return FailAt(line, "expected subscript expression");
  JinjaExprPtr result = NewExpr(colons == 0 ? JinjaExprKind::kGetItem : JinjaExprKind::kSlice, line);
  result->items.push_back(std::move(node));
  for (int i = 0; i < (colons == 0 ? 1 : 3); ++i) result->items.push_back(std::move(bounds[i]));
  return Done(std::move(result));
}

JinjaParser::Expr JinjaParser::ParseCall(JinjaExprPtr node) {
  JinjaExprPtr call = NewExpr(JinjaExprKind::kCall, Current().line);
  BELLHOP_TRY_ASSIGN(call->args, ParseCallArgs());
  call->items.push_back(std::move(node));
  return Done(std::move(call));
}

Result<std::unique_ptr<JinjaCallArgs>> JinjaParser::ParseCallArgs() {
  auto args = std::make_unique<JinjaCallArgs>();
  BELLHOP_TRY(ExpectOperator("("));
  while (!Current().IsOperator(")")) {
    const bool star = Current().IsOperator("*");
    const bool double_star = Current().IsOperator("**");
    const bool named = Current().type == JinjaTokenType::kName && Next().IsOperator("=");
    const bool in_order = double_star ? args->double_star == nullptr
                          : star      ? args->star == nullptr && args->double_star == nullptr
                          : named     ? args->double_star == nullptr
                                      : args->star == nullptr && args->double_star == nullptr && args->named.empty();
    if (!in_order) return Fail("invalid syntax for function call expression");
    std::string name = named ? Current().text : std::string();
    if (star || double_star) Skip();
    if (named) Skip(2);
    BELLHOP_TRY_ASSIGN(JinjaExprPtr value, ParseExpression());
    if (star) {
      args->star = std::move(value);
    } else if (double_star) {
      args->double_star = std::move(value);
    } else if (named) {
      for (const auto& other : args->named) {
        if (other.first == name) return Fail(fmt::format("keyword argument repeated: {}", name));
      }
      args->named.emplace_back(std::move(name), std::move(value));
    } else {
      args->positional.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  BELLHOP_TRY(ExpectOperator(")"));
  return args;
}

}  // namespace bellhop::text
