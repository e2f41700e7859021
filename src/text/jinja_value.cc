#include "text/jinja_value.h"

#include "text/jinja_text.h"

namespace bellhop::text {

JinjaValue JinjaValue::Bool(bool value) {
  JinjaValue v(JinjaType::kBool);
  v.scalar_.b = value;
  return v;
}

JinjaValue JinjaValue::Int(int64_t value) {
  JinjaValue v(JinjaType::kInt);
  v.scalar_.i = value;
  return v;
}

JinjaValue JinjaValue::Float(double value) {
  JinjaValue v(JinjaType::kFloat);
  v.scalar_.d = value;
  return v;
}

JinjaValue JinjaValue::BigInteger(uint64_t value) {
  JinjaValue v = UnmeteredString(std::to_string(value));
  v.type_ = JinjaType::kFloat;
  v.scalar_.d = static_cast<double>(value);
  return v;
}

JinjaValue JinjaValue::UnmeteredString(std::string text) {
  auto object = std::make_shared<JinjaString>();
  object->length = CountChars(text);
  object->text = std::move(text);
  return Object(JinjaType::kString, std::move(object));
}

JinjaValue JinjaValue::Object(JinjaType type, std::shared_ptr<JinjaObject> object) {
  JinjaValue v(type);
  v.object_ = std::move(object);
  return v;
}

JinjaValue JinjaValue::Arena(JinjaType type, void* pointer) {
  JinjaValue v(type);
  v.scalar_.p = pointer;
  return v;
}

bool JinjaValue::SameAs(const JinjaValue& other) const {
  if (type_ != other.type_) return false;
  switch (type_) {
    case JinjaType::kMissing:
    case JinjaType::kNone: return true;
    case JinjaType::kBool: return scalar_.b == other.scalar_.b;
    case JinjaType::kInt: return scalar_.i == other.scalar_.i;
    case JinjaType::kFloat: return scalar_.d == other.scalar_.d;
    case JinjaType::kString: return object_ == other.object_ || text() == other.text();
    case JinjaType::kNamespace:
    case JinjaType::kMacro:
    case JinjaType::kCycler:
    case JinjaType::kJoiner: return scalar_.p == other.scalar_.p;
    default: return object_ == other.object_;
  }
}

std::string_view TypeName(const JinjaValue& value) {
  switch (value.type()) {
    case JinjaType::kMissing:
    case JinjaType::kUndefined: return "Undefined";
    case JinjaType::kNone: return "NoneType";
    case JinjaType::kBool: return "bool";
    case JinjaType::kInt: return "int";
    case JinjaType::kFloat: return "float";
    case JinjaType::kString: return "str";
    case JinjaType::kList: return "list";
    case JinjaType::kTuple: return "tuple";
    case JinjaType::kDict: return "dict";
    case JinjaType::kRange: return "range";
    case JinjaType::kDictView:
      switch (value.as<JinjaDictView>().kind) {
        case JinjaDictView::Kind::kKeys: return "dict_keys";
        case JinjaDictView::Kind::kValues: return "dict_values";
        case JinjaDictView::Kind::kItems: return "dict_items";
      }
      return "dict_view";
    case JinjaType::kGenerator: return "generator";
    case JinjaType::kNamespace: return "Namespace";
    case JinjaType::kMacro: return "Macro";
    case JinjaType::kLoop: return "LoopContext";
    case JinjaType::kFunction:
      return value.as<JinjaFunction>().self.missing() ? "function" : "builtin_function_or_method";
    case JinjaType::kCycler: return "Cycler";
    case JinjaType::kJoiner: return "Joiner";
  }
  return "object";
}

bool Truthy(const JinjaValue& value) {
  switch (value.type()) {
    case JinjaType::kMissing:
    case JinjaType::kUndefined:
    case JinjaType::kNone: return false;
    case JinjaType::kBool: return value.bool_value();
    case JinjaType::kInt: return value.int_value() != 0;
    case JinjaType::kFloat: return value.float_value() != 0;
    case JinjaType::kString: return !value.text().empty();
    case JinjaType::kList:
    case JinjaType::kTuple: return !value.items().empty();
    case JinjaType::kDict: return !value.dict().entries.empty();
    case JinjaType::kRange: return value.as<JinjaRange>().count != 0;
    case JinjaType::kDictView: return !value.as<JinjaDictView>().dict->entries.empty();
    default: return true;
  }
}

}  // namespace bellhop::text
