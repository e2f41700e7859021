// Schemas that are combined: references, allOf, and whether two schemas exclude each other.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "decode/json_schema_parts.h"

namespace bellhop::decode {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxDisjointDepth = 6;

bool Contains(const std::vector<std::string>& list, std::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

// The types that both lists allow.
std::vector<std::string> CommonTypes(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> common;
  for (const std::string& type : a) {
    if (Contains(b, type) || (type == "integer" && Contains(b, "number"))) common.push_back(type);
  }
  for (const std::string& type : b) {
    if (type == "integer" && Contains(a, "number") && !Contains(common, type)) common.push_back(type);
  }
  return common;
}

// The values that a schema lists, if it does.
std::optional<std::vector<SchemaJson>> ListedValues(const SchemaJson& schema) {
  if (const auto value = schema.find("const"); value != schema.end()) return std::vector<SchemaJson>{*value};
  const auto values = schema.find("enum");
  if (values == schema.end() || !values->is_array()) return std::nullopt;
  return std::vector<SchemaJson>(values->begin(), values->end());
}

}  // namespace

Status SchemaInvalid(std::string_view path, std::string_view what) {
  return InvalidArgument("json schema: {}: {}", path, what);
}
Status SchemaUnsupported(std::string_view path, std::string_view what) {
  return Unsupported("json schema: {}: {}", path, what);
}

std::string SchemaPath(std::string_view path, std::string_view key) {
  std::string out = std::string(path) + "/";
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

bool IsSchemaAnnotation(std::string_view keyword) {
  constexpr std::array<std::string_view, 21> kAnnotations = {
      "title",       "description",      "default",         "examples",      "example", "$schema",      "$id",
      "$comment",    "deprecated",       "readOnly",        "writeOnly",     "$defs",   "definitions",  "$anchor",
      "$vocabulary", "contentMediaType", "contentEncoding", "discriminator", "xml",     "externalDocs", "id"};
  return std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end() ||
         keyword.substr(0, 2) == "x-";
}

Result<std::optional<std::vector<std::string>>> SchemaTypes(const SchemaJson& schema, const std::string& path) {
  const auto entry = schema.find("type");
  if (entry == schema.end()) return std::optional<std::vector<std::string>>();
  std::vector<std::string> types;
  const SchemaJson list = entry->is_array() ? *entry : SchemaJson::array({*entry});
  for (const SchemaJson& type : list) {
    constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                        "integer", "boolean", "null"};
    if (!type.is_string() ||
        std::find(kTypes.begin(), kTypes.end(), type.get_ref<const std::string&>()) == kTypes.end()) {
      return SchemaInvalid(SchemaPath(path, "type"),
                           "a type is object, array, string, number, integer, boolean or null");
    }
    if (!Contains(types, type.get_ref<const std::string&>())) types.push_back(type.get<std::string>());
  }
  if (types.empty()) return SchemaInvalid(SchemaPath(path, "type"), "no type is allowed: nothing satisfies the schema");
  return std::optional(types);
}

bool SchemaTypeHolds(std::string_view type, const SchemaJson& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == static_cast<double>(static_cast<int64_t>(
                                                                std::clamp(value.get<double>(), -1e15, 1e15))));
}

Status CheckSchemaSize(const SchemaJson& schema) {
  constexpr size_t kMaxLevels = 200, kMaxValues = 200'000;
  std::vector<std::pair<const SchemaJson*, size_t>> todo = {{&schema, 1}};
  size_t values = 0;
  while (!todo.empty()) {
    const auto [at, level] = todo.back();
    todo.pop_back();
    if (level > kMaxLevels) return SchemaInvalid("#", fmt::format("more than {} nested levels", kMaxLevels));
    if (++values > kMaxValues) return SchemaInvalid("#", fmt::format("more than {} JSON values", kMaxValues));
    if (!at->is_structured()) continue;
    for (const SchemaJson& part : *at) todo.emplace_back(&part, level + 1);
  }
  return Status();
}

bool SchemaResolver::Charge(const SchemaJson& schema) const {
  --work_left_;
  if (work_left_ > 0 && schema.is_structured()) {
    for (const SchemaJson& part : schema) {
      if (!Charge(part)) return false;
    }
  }
  return work_left_ > 0;
}

Result<const SchemaJson*> SchemaResolver::Find(const std::string& reference, std::string_view path) const {
  const std::string where = SchemaPath(path, "$ref");
  if (reference.empty() || reference[0] != '#' || (reference.size() > 1 && reference[1] != '/')) {
    return SchemaUnsupported(where,
                             fmt::format("'{}': only references into this schema (#/...) can be followed", reference));
  }
  const SchemaJson* at = &root_;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      const bool tilde = reference[i] == '~' && i + 1 < end;
      if (tilde && reference[i + 1] == '0') key += '~';
      if (tilde && reference[i + 1] == '1') key += '/';
      if (tilde) ++i;
      if (!tilde) key += reference[i];
    }
    const SchemaJson* next = nullptr;
    if (at->is_object() && at->contains(key)) next = &(*at)[key];
    if (at->is_array() && !key.empty() && key.size() < 6 && key.find_first_not_of("0123456789") == std::string::npos) {
      const size_t index = static_cast<size_t>(std::stoul(key));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return SchemaInvalid(where, fmt::format("'{}' leads nowhere", reference));
    at = next;
    begin = end + 1;
  }
  return at;
}

Result<SchemaJson> SchemaResolver::Flatten(const SchemaJson& schema, const std::string& path, int depth) const {
  if (!schema.is_object()) return schema;
  if (depth > kMaxDepth || !Charge(schema)) {
    return SchemaUnsupported(path, "$ref and allOf are nested too deeply, or without an end");
  }
  SchemaJson out = schema;
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (!reference->is_string()) return SchemaInvalid(SchemaPath(path, "$ref"), "give a string");
    BELLHOP_TRY_ASSIGN(const SchemaJson* const target, Find(reference->get<std::string>(), path));
    BELLHOP_TRY_ASSIGN(const SchemaJson flat, Flatten(*target, path, depth + 1));
    out.erase("$ref");
    BELLHOP_TRY_ASSIGN(out, Merge(flat, out, path, depth + 1));
  }
  if (!out.is_object() || !out.contains("allOf")) return out;
  const SchemaJson all = out["allOf"];
  const std::string where = SchemaPath(path, "allOf");
  if (!all.is_array() || all.empty()) return SchemaInvalid(where, "give an array of schemas");
  out.erase("allOf");
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string part_path = fmt::format("{}/{}", where, i);
    BELLHOP_TRY_ASSIGN(const SchemaJson part, Flatten(all[i], part_path, depth + 1));
    BELLHOP_TRY_ASSIGN(out, Merge(out, part, part_path, depth + 1));
  }
  return out;
}

Result<SchemaJson> SchemaResolver::Merge(const SchemaJson& a, const SchemaJson& b, const std::string& path,
                                         int depth) const {
  if (depth > kMaxDepth || !Charge(a) || !Charge(b)) {
    return SchemaUnsupported(path, "schemas that are combined are too many, or nested too deeply");
  }
  for (const SchemaJson* side : {&a, &b}) {
    if (!side->is_object() && !side->is_boolean()) return SchemaInvalid(path, "a schema is an object or a boolean");
  }
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  // With further properties restricted, a side has a say on the properties that only the other one knows.
  const auto names = [](const SchemaJson& s) {
    std::vector<std::string> out;
    if (s.contains("properties") && s["properties"].is_object()) {
      for (const auto& entry : s["properties"].items()) out.push_back(entry.key());
    }
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto restricts = [](const SchemaJson& s) {
    const auto extra = s.find("additionalProperties");
    return extra != s.end() && *extra != SchemaJson(true);
  };
  if ((restricts(a) || restricts(b)) && names(a) != names(b) && !(names(b).empty() && !restricts(b)) &&
      !(names(a).empty() && !restricts(a))) {
    return SchemaUnsupported(SchemaPath(path, "additionalProperties"),
                             "schemas with different properties can only be combined without it");
  }
  SchemaJson out = a;
  for (const auto& entry : b.items()) {
    const std::string& key = entry.key();
    const SchemaJson& value = entry.value();
    if (!out.contains(key) || IsSchemaAnnotation(key)) {
      if (!out.contains(key)) out[key] = value;
      continue;
    }
    SchemaJson& mine = out[key];
    if (mine == value) continue;
    const std::string where = SchemaPath(path, key);
    if (key == "properties" && mine.is_object() && value.is_object()) {
      for (const auto& property : value.items()) {
        const std::string name = SchemaPath(where, property.key());
        if (!mine.contains(property.key())) {
          mine[property.key()] = property.value();
          continue;
        }
        BELLHOP_TRY_ASSIGN(const SchemaJson left, Flatten(mine[property.key()], name, depth + 1));
        BELLHOP_TRY_ASSIGN(const SchemaJson right, Flatten(property.value(), name, depth + 1));
        BELLHOP_TRY_ASSIGN(mine[property.key()], Merge(left, right, name, depth + 1));
      }
    } else if (key == "required" && mine.is_array() && value.is_array()) {
      for (const SchemaJson& name : value) {
        if (std::find(mine.begin(), mine.end(), name) == mine.end()) mine.push_back(name);
      }
    } else if (key == "type") {
      BELLHOP_TRY_ASSIGN(const auto left, SchemaTypes(out, path));
      BELLHOP_TRY_ASSIGN(const auto right, SchemaTypes(b, path));
      mine = CommonTypes(*left, *right);
    } else if (key == "enum" && mine.is_array() && value.is_array()) {
      SchemaJson common = SchemaJson::array();
      for (const SchemaJson& listed : mine) {
        if (std::find(value.begin(), value.end(), listed) != value.end()) common.push_back(listed);
      }
      mine = common;
    } else if (mine.is_number() && value.is_number() && (key.substr(0, 3) == "min" || key == "exclusiveMinimum")) {
      if (value > mine) mine = value;
    } else if (mine.is_number() && value.is_number() && (key.substr(0, 3) == "max" || key == "exclusiveMaximum")) {
      if (value < mine) mine = value;
    } else if (key == "nullable" && mine.is_boolean() && value.is_boolean()) {
      mine = false;
    } else if (key == "items" || key == "additionalProperties") {
      BELLHOP_TRY_ASSIGN(const SchemaJson left, Flatten(mine, where, depth + 1));
      BELLHOP_TRY_ASSIGN(const SchemaJson right, Flatten(value, where, depth + 1));
      BELLHOP_TRY_ASSIGN(mine, Merge(left, right, where, depth + 1));
    } else {
      return SchemaUnsupported(where, "two schemas that hold together give it different values");
    }
  }
  return out;
}

bool SchemaResolver::Disjoint(const SchemaJson& a, const SchemaJson& b, int depth) const {
  if (depth > kMaxDisjointDepth || work_left_ <= 0) return false;
  const auto left_flat = Flatten(a, "#"), right_flat = Flatten(b, "#");
  if (!left_flat.ok() || !right_flat.ok()) return false;
  const SchemaJson &left = *left_flat, &right = *right_flat;
  if (left == SchemaJson(false) || right == SchemaJson(false)) return true;
  if (!left.is_object() || !right.is_object()) return false;
  for (const char* inner : {"anyOf", "oneOf"}) {
    for (const auto& [some, other] : {std::pair(&left, &right), std::pair(&right, &left)}) {
      const auto entry = some->find(inner);
      if (entry == some->end() || !entry->is_array()) continue;
      if (std::all_of(entry->begin(), entry->end(),
                      [&, o = other](const SchemaJson& part) { return Disjoint(part, *o, depth + 1); })) {
        return true;
      }
    }
  }
  const bool null_left = left.value("nullable", SchemaJson(false)) == SchemaJson(true);
  const bool null_right = right.value("nullable", SchemaJson(false)) == SchemaJson(true);
  if (null_left || null_right) return false;
  const auto left_types = SchemaTypes(left, "#"), right_types = SchemaTypes(right, "#");
  if (!left_types.ok() || !right_types.ok()) return false;
  const auto left_values = ListedValues(left), right_values = ListedValues(right);
  const auto excluded = [](const std::vector<SchemaJson>& values, const auto& others, const auto& types) {
    return std::all_of(values.begin(), values.end(), [&](const SchemaJson& value) {
      if (others && std::find(others->begin(), others->end(), value) == others->end()) return true;
      return types && std::none_of(types->begin(), types->end(),
                                   [&](const std::string& type) { return SchemaTypeHolds(type, value); });
    });
  };
  if (left_values && excluded(*left_values, right_values, *right_types)) return true;
  if (right_values && excluded(*right_values, left_values, *left_types)) return true;
  if (*left_types && *right_types && CommonTypes(**left_types, **right_types).empty()) return true;
  // Objects that both must have a property, with values that exclude each other.
  if (!*left_types || !*right_types || **left_types != std::vector<std::string>{"object"} ||
      **right_types != std::vector<std::string>{"object"}) {
    return false;
  }
  const SchemaJson empty = SchemaJson::object();
  const SchemaJson left_properties = left.value("properties", empty),
                   right_properties = right.value("properties", empty);
  const SchemaJson left_required = left.value("required", SchemaJson::array());
  const SchemaJson right_required = right.value("required", SchemaJson::array());
  if (!left_properties.is_object() || !right_properties.is_object()) return false;
  for (const SchemaJson& name : left_required) {
    if (!name.is_string() || std::find(right_required.begin(), right_required.end(), name) == right_required.end()) {
      continue;
    }
    const std::string& key = name.get_ref<const std::string&>();
    if (left_properties.contains(key) && right_properties.contains(key) &&
        Disjoint(left_properties[key], right_properties[key], depth + 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace bellhop::decode
