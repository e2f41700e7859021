// A JSON Schema validator for the tests: written against the specification, knows nothing of grammars. Header-only.
#pragma once

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

#include <nlohmann/json.hpp>

namespace bellhop::decode {

inline bool TypeHoldsForTest(const std::string& type, const nlohmann::ordered_json& value) {
  if (type == "integer") return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

inline size_t CharactersForTest(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

inline bool ValidatesForTest(const nlohmann::ordered_json& root, const nlohmann::ordered_json& schema,
                             const nlohmann::ordered_json& value) {
  using Json = nlohmann::ordered_json;
  if (schema.is_boolean()) return schema.get<bool>();
  if (value.is_null() && schema.value("nullable", false)) return true;
  const auto valid = [&](const Json& part, const Json& of) { return ValidatesForTest(root, part, of); };
  if (schema.contains("$ref")) {
    const std::string reference = schema["$ref"].get<std::string>().substr(1);
    if (!valid(root[Json::json_pointer(reference)], value)) return false;
  }
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](const Json& t) { return TypeHoldsForTest(t.get<std::string>(), value); })) {
      return false;
    }
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum")) {
    const Json& list = schema["enum"];
    if (std::find(list.begin(), list.end(), value) == list.end()) return false;
  }
  const auto matches = [&](const char* key) {
    return std::count_if(schema[key].begin(), schema[key].end(), [&](const Json& part) { return valid(part, value); });
  };
  if (schema.contains("anyOf") && matches("anyOf") == 0) return false;
  if (schema.contains("oneOf") && matches("oneOf") != 1) return false;
  if (schema.contains("allOf") && matches("allOf") != static_cast<ptrdiff_t>(schema["allOf"].size())) return false;
  if (value.is_number()) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) return false;
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) return false;
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (CharactersForTest(text) < schema.value("minLength", size_t{0})) return false;
    if (CharactersForTest(text) > schema.value("maxLength", size_t{1} << 40)) return false;
    if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return false;
    }
    const std::string format = schema.value("format", "");
    const std::string date = "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])";
    const std::string time = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
    const std::string hex = "[0-9a-fA-F]";
    const std::string uuid = hex + "{8}-" + hex + "{4}-" + hex + "{4}-" + hex + "{4}-" + hex + "{12}";
    const std::string of_format = format == "date"        ? date
                                  : format == "time"      ? time
                                  : format == "date-time" ? date + "T" + time
                                  : format == "uuid"      ? uuid
                                                          : "";
    if (!of_format.empty() && !std::regex_match(text, std::regex(of_format))) return false;
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0})) return false;
    if (value.size() > schema.value("maxItems", size_t{1} << 40)) return false;
    const Json prefix = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < prefix.size() ? !valid(prefix[i], value[i])
                            : schema.contains("items") && !valid(schema["items"], value[i])) {
        return false;
      }
    }
  }
  if (value.is_object()) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& entry : value.items()) {
      const bool declared = properties.contains(entry.key());
      if (declared && !valid(properties[entry.key()], entry.value())) return false;
      if (!declared && schema.contains("additionalProperties") &&
          !valid(schema["additionalProperties"], entry.value())) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace bellhop::decode
