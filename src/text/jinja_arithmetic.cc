// Arithmetic of jinja_ops.h: Python's rules on 64-bit integers. A result outside them is an error, not a wrong number.
#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

std::string_view Symbol(JinjaBinaryOp op) {
  switch (op) {
    case JinjaBinaryOp::kAdd: return "+";
    case JinjaBinaryOp::kSub: return "-";
    case JinjaBinaryOp::kMul: return "*";
    case JinjaBinaryOp::kDiv: return "/";
    case JinjaBinaryOp::kFloorDiv: return "//";
    case JinjaBinaryOp::kMod: return "%";
    case JinjaBinaryOp::kPow: return "** or pow()";
  }
  return "?";
}

Status Overflow() { return InvalidArgument("integer overflow: numbers are limited to 64 bits"); }

Result<JinjaValue> Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return JinjaValue::Int(result);
}

double FloatMod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) mod += b;
  } else {
    mod = std::copysign(0.0, b);
  }
  return mod;
}

double FloatFloorDiv(double a, double b) {
  const double mod = FloatMod(a, b);
  const double quotient = (a - mod) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Result<JinjaValue> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return InvalidArgument("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return InvalidArgument("a negative number cannot be raised to a fractional power");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    return InvalidArgument("numerical result out of range");
  return JinjaValue::Float(result);
}

Result<JinjaValue> IntegerBinary(JinjaBinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case JinjaBinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return JinjaValue::Int(result);
    case JinjaBinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return JinjaValue::Int(result);
    case JinjaBinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return JinjaValue::Int(result);
    case JinjaBinaryOp::kDiv:
      if (b == 0) return InvalidArgument("division by zero");
      return JinjaValue::Float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case JinjaBinaryOp::kFloorDiv:
    case JinjaBinaryOp::kMod: {
      if (b == 0) return InvalidArgument("integer division or modulo by zero");
      if (b == -1) {
        if (op == JinjaBinaryOp::kMod) return JinjaValue::Int(0);
        return IntegerBinary(JinjaBinaryOp::kSub, 0, a);
      }
      const bool adjust = a % b != 0 && ((a < 0) != (b < 0));
      if (op == JinjaBinaryOp::kMod) return JinjaValue::Int(a % b + (adjust ? b : 0));
      return JinjaValue::Int(a / b - (adjust ? 1 : 0));
    }
    case JinjaBinaryOp::kPow:
      if (b < 0) return FloatPower(static_cast<double>(a), static_cast<double>(b));
      return Power(a, b);
  }
  return Overflow();
}

Result<JinjaValue> FloatBinary(JinjaBinaryOp op, double a, double b) {
  switch (op) {
    case JinjaBinaryOp::kAdd: return JinjaValue::Float(a + b);
    case JinjaBinaryOp::kSub: return JinjaValue::Float(a - b);
    case JinjaBinaryOp::kMul: return JinjaValue::Float(a * b);
    case JinjaBinaryOp::kPow: return FloatPower(a, b);
    default: break;
  }
  if (b == 0) return InvalidArgument("{}", op == JinjaBinaryOp::kDiv ? "float division by zero" : "float modulo");
  switch (op) {
    case JinjaBinaryOp::kDiv: return JinjaValue::Float(a / b);
    case JinjaBinaryOp::kFloorDiv: return JinjaValue::Float(FloatFloorDiv(a, b));
    default: return JinjaValue::Float(FloatMod(a, b));
  }
}

Result<JinjaValue> Repeat(JinjaRuntime& rt, const JinjaValue& sequence, int64_t count) {
  if (count < 0) count = 0;
  const auto size = static_cast<int64_t>(sequence.is_string() ? sequence.text().size()
                                                              : sequence.items().size() * sizeof(JinjaValue));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes)) bytes = INT64_MAX;
  BELLHOP_TRY(rt.CheckBytes(bytes));
  if (size == 0) count = 0;
  if (sequence.is_string()) {
    std::string out;
    out.reserve(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < count; ++i) out += sequence.text();
    return rt.StringLike(sequence, std::move(out));
  }
  BELLHOP_TRY(rt.Step(bytes / static_cast<int64_t>(sizeof(JinjaValue))));
  std::vector<JinjaValue> items;
  items.reserve(static_cast<size_t>(bytes) / sizeof(JinjaValue));
  for (int64_t i = 0; i < count; ++i) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return sequence.is(JinjaType::kList) ? rt.List(std::move(items)) : rt.Tuple(std::move(items));
}

Result<JinjaValue> Concatenate(JinjaRuntime& rt, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    const int64_t growth = markup ? 5 : 1;  // an escaped character has up to 5 bytes
    BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(a.text().size() + b.text().size()) * growth));
    if (!markup) return rt.String(a.text() + b.text());
    const auto safe = [](const JinjaValue& v) { return v.is_markup() ? v.text() : EscapeHtml(v.text()); };
    return rt.Markup(safe(a) + safe(b));
  }
  const size_t count = a.items().size() + b.items().size();
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(count * sizeof(JinjaValue))));
  BELLHOP_TRY(rt.Step(static_cast<int64_t>(count)));
  std::vector<JinjaValue> items;
  items.reserve(count);
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(JinjaType::kList) ? rt.List(std::move(items)) : rt.Tuple(std::move(items));
}

}  // namespace

Result<JinjaValue> JinjaBinary(JinjaRuntime& rt, JinjaBinaryOp op, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_string() && op == JinjaBinaryOp::kMod) {
    BELLHOP_TRY_ASSIGN(std::string text, PrintfFormat(rt, a.string(), b));
    return rt.StringLike(a, std::move(text));
  }
  if (a.undefined() || b.undefined()) return InvalidArgument("{}", (a.undefined() ? a : b).undefined_message());
  if (a.is_integer() && b.is_integer()) return IntegerBinary(op, a.int_value(), b.int_value());
  if (a.is_number() && b.is_number()) return FloatBinary(op, a.float_value(), b.float_value());
  const bool a_sequence = a.is_string() || a.is_sequence();
  const bool b_sequence = b.is_string() || b.is_sequence();
  if (op == JinjaBinaryOp::kAdd && a_sequence && a.type() == b.type()) return Concatenate(rt, a, b);
  if (op == JinjaBinaryOp::kMul && a_sequence && b.is_integer()) return Repeat(rt, a, b.int_value());
  if (op == JinjaBinaryOp::kMul && b_sequence && a.is_integer()) return Repeat(rt, b, a.int_value());
  if (op == JinjaBinaryOp::kAdd && a.is_string()) {
    return InvalidArgument("can only concatenate str (not \"{}\") to str", TypeName(b));
  }
  if (op == JinjaBinaryOp::kAdd && a.is_sequence()) {
    return InvalidArgument("can only concatenate {0} (not \"{1}\") to {0}", TypeName(a), TypeName(b));
  }
  return InvalidArgument("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(op), TypeName(a), TypeName(b));
}

Result<JinjaValue> JinjaNegate(const JinjaValue& value) {
  if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
  if (value.is_integer()) return IntegerBinary(JinjaBinaryOp::kSub, 0, value.int_value());
  if (value.is_number()) return JinjaValue::Float(-value.float_value());
  return InvalidArgument("bad operand type for unary -: '{}'", TypeName(value));
}

Result<JinjaValue> JinjaPositive(const JinjaValue& value) {
  if (value.undefined()) return InvalidArgument("{}", value.undefined_message());
  if (value.is_integer()) return JinjaValue::Int(value.int_value());
  if (value.is_number()) return value;
  return InvalidArgument("bad operand type for unary +: '{}'", TypeName(value));
}

}  // namespace bellhop::text
