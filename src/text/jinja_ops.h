// Operators and conversions on template values, with Python's rules and, where a message can reach a user, its wording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace bellhop::text {

enum class JinjaBinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class JinjaCompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

// str() and repr(). Append bounds the text by the output limit.
Status AppendStr(JinjaRuntime& rt, const JinjaValue& value, std::string* out);
Status AppendRepr(JinjaRuntime& rt, const JinjaValue& value, std::string* out);
Result<std::string> JinjaStr(JinjaRuntime& rt, const JinjaValue& value);

Result<bool> JinjaEqual(JinjaRuntime& rt, const JinjaValue& a, const JinjaValue& b);
// `op` is one of the four orderings.
Result<bool> JinjaOrder(JinjaRuntime& rt, JinjaCompareOp op, const JinjaValue& a, const JinjaValue& b);
Result<bool> JinjaContains(JinjaRuntime& rt, const JinjaValue& container, const JinjaValue& item);
Result<bool> JinjaCompare(JinjaRuntime& rt, JinjaCompareOp op, const JinjaValue& a, const JinjaValue& b);

Result<JinjaValue> JinjaBinary(JinjaRuntime& rt, JinjaBinaryOp op, const JinjaValue& a, const JinjaValue& b);
Result<JinjaValue> JinjaNegate(const JinjaValue& value);
Result<JinjaValue> JinjaPositive(const JinjaValue& value);

// len(); fails for what has none.
Result<int64_t> JinjaLength(JinjaRuntime& rt, const JinjaValue& value);

// `obj.name`: methods first, then keys. `obj[key]`: keys first, then methods. What is not there is undefined.
Result<JinjaValue> JinjaGetAttr(JinjaRuntime& rt, const JinjaValue& object, std::string_view name);
Result<JinjaValue> JinjaGetItem(JinjaRuntime& rt, const JinjaValue& object, const JinjaValue& key);
// The attribute proper, without the fall-back to keys; missing when there is none.
Result<JinjaValue> JinjaOwnAttr(JinjaRuntime& rt, const JinjaValue& object, std::string_view name);
// The undefined value for an attribute that the object lacks.
JinjaValue UndefinedAttribute(JinjaRuntime& rt, const JinjaValue& object, std::string_view name);
// `obj[start:stop:step]`; missing bounds are kMissing or none.
Result<JinjaValue> JinjaSlice(JinjaRuntime& rt, const JinjaValue& object, const JinjaValue& start,
                              const JinjaValue& stop, const JinjaValue& step);

// An argument that must be an integer (bool included).
Result<int64_t> JinjaInteger(const JinjaValue& value, std::string_view what);

}  // namespace bellhop::text
