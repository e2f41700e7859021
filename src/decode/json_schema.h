// JSON Schema to GBNF: every sentence of the grammar is a JSON value that the schema accepts. The converse need not
// hold: whitespace is short, properties come in the schema's order, numbers have at most 16 digits, keys beyond the
// declared ones have no escapes, and properties that the schema does not mention come only where additionalProperties
// asks for them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::decode {

// Enforced: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const,
// anyOf, oneOf (of alternatives that exclude each other), allOf, $ref into the schema, minLength, maxLength, pattern
// (regular expressions without look-around, back references and word boundaries), format (date, time, date-time, uuid),
// minimum, maximum, exclusiveMinimum, exclusiveMaximum (whole numbers as bounds of `number`), nullable. Any other
// keyword that is no annotation is an error, "json schema: #/properties/a/multipleOf: ...": kUnsupported for what
// cannot be enforced, kInvalidArgument for a schema that is wrong or that nothing satisfies.
Result<std::string> JsonSchemaToGbnf(const nlohmann::ordered_json& schema);

// The same as part of a larger grammar: rules without `root`, and the name of the one that matches the value. All names
// begin with `prefix` (letters, digits, -).
struct GbnfRules {
  std::string rules;
  std::string value;
};
Result<GbnfRules> JsonSchemaRules(const nlohmann::ordered_json& schema, const std::string& prefix);

// Any JSON object.
std::string JsonObjectGbnf();

// `text` as a GBNF literal, quotes included.
std::string GbnfLiteral(std::string_view text);

}  // namespace bellhop::decode
