// Parts of the JSON Schema compiler; nothing else includes this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::decode {

using SchemaJson = nlohmann::ordered_json;

// "json schema: <path>: <what>".
Status SchemaInvalid(std::string_view path, std::string_view what);
Status SchemaUnsupported(std::string_view path, std::string_view what);
std::string SchemaPath(std::string_view path, std::string_view key);

bool IsSchemaAnnotation(std::string_view keyword);

// json_schema_merge.cc: schemas without $ref and allOf at their top.
class SchemaResolver {
 public:
  explicit SchemaResolver(const SchemaJson& root) : root_(root) {}

  // The schema that "#..." points to.
  Result<const SchemaJson*> Find(const std::string& reference, std::string_view path) const;
  // Follows $ref and joins allOf until neither is left.
  Result<SchemaJson> Flatten(const SchemaJson& schema, const std::string& path, int depth = 0) const;
  // What satisfies both.
  Result<SchemaJson> Merge(const SchemaJson& a, const SchemaJson& b, const std::string& path, int depth = 0) const;
  // True only when no value satisfies both.
  bool Disjoint(const SchemaJson& a, const SchemaJson& b, int depth = 0) const;

 private:
  // Copies and comparisons cost time; false once a schema has taken too much.
  bool Charge(const SchemaJson& schema) const;

  const SchemaJson& root_;
  mutable int64_t work_left_ = 4'000'000;  // JSON values
};

// kInvalidArgument for a schema nested so deeply, or so large, that recursion over it is not safe.
Status CheckSchemaSize(const SchemaJson& schema);

// The types that a schema's `type` names; nothing when it has none.
Result<std::optional<std::vector<std::string>>> SchemaTypes(const SchemaJson& schema, const std::string& path);
bool SchemaTypeHolds(std::string_view type, const SchemaJson& value);

// json_schema_number.cc: bounds as GBNF expressions.
Result<std::string> IntegerGbnf(const SchemaJson& schema, const std::string& path);
Result<std::string> NumberGbnf(const SchemaJson& schema, const std::string& path);

// json_schema_regex.cc: what is between the quotes of a JSON string that the pattern matches. `character` is the rule
// of any character of a JSON string.
Result<std::string> PatternGbnf(const std::string& pattern, const std::string& path, const std::string& character);

}  // namespace bellhop::decode
