#include "decode/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "decode/grammar.h"
#include "decode/json_schema_parts.h"

namespace bellhop::decode {
namespace {

constexpr int kMaxNesting = 100;
constexpr size_t kMaxRules = 50'000;
constexpr uint64_t kMaxCount = 60'000;  // of characters or items

// Half of a surrogate pair is no character: an escape is a whole one.
constexpr char kBuiltins[] =
    R"({0}ws ::= " "? | "\n" [ \t]{{0,20}}
{0}hex ::= [0-9a-fA-F]
{0}char ::= [^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] {0}hex{{3}} | [dD] [0-7] {0}hex{{2}} | [dD] [89abAB] {0}hex{{2}} "\\u" [dD] [c-fC-F] {0}hex{{2}}))
{0}string ::= "\"" {0}char* "\""
{0}number ::= "-"? ("0" | [1-9] [0-9]{{0,15}}) ("." [0-9]{{1,16}})? ([eE] [-+]? [0-9]{{1,2}})?
{0}array ::= "[" {0}ws ("]" | {0}value ("," {0}ws {0}value)* {0}ws "]")
{0}pair ::= {0}string ":" {0}ws {0}value
{0}object ::= "{{" {0}ws ("}}" | {0}pair ("," {0}ws {0}pair)* {0}ws "}}")
{0}value ::= {0}object | {0}array | {0}string | {0}number | "true" | "false" | "null"
)";

constexpr char kDate[] =
    R"([0-9]{4} "-" (("01" | "03" | "05" | "07" | "08" | "10" | "12") "-" ("0" [1-9] | [12] [0-9] | "3" [01]) | )"
    R"(("04" | "06" | "09" | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8])))";
constexpr char kTime[] = R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? )"
                         R"(("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]))";
constexpr char kUuid[] = R"([0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12})";

const std::vector<std::pair<std::string_view, std::string_view>>& KeywordTypes() {
  static const std::vector<std::pair<std::string_view, std::string_view>> kKeywords = {
      {"properties", "object"},
      {"required", "object"},
      {"additionalProperties", "object"},
      {"items", "array"},
      {"prefixItems", "array"},
      {"minItems", "array"},
      {"maxItems", "array"},
      {"minLength", "string"},
      {"maxLength", "string"},
      {"pattern", "string"},
      {"format", "string"},
      {"minimum", "number"},
      {"maximum", "number"},
      {"exclusiveMinimum", "number"},
      {"exclusiveMaximum", "number"},
      {"type", ""},
      {"enum", ""},
      {"const", ""},
      {"anyOf", ""},
      {"oneOf", ""},
      {"allOf", ""},
      {"$ref", ""},
      {"nullable", ""},
      {"uniqueItems", "array"}};
  return kKeywords;
}

std::string Dump(const SchemaJson& value) { return value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace); }

class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaJson& root, std::string prefix)
      : root_(root), resolver_(root), prefix_(std::move(prefix)) {}

  Result<GbnfRules> Compile() {
    BELLHOP_TRY(CheckSchemaSize(root_));
    references_["#"] = Name("root");
    BELLHOP_TRY_ASSIGN(const std::string value, Visit(root_, "#"));
    AddRule(Name("root"), value);
    return GbnfRules{rules_ + fmt::format(kBuiltins, prefix_), Name("root")};
  }

 private:
  std::string Name(std::string_view builtin) const { return prefix_ + std::string(builtin); }
  void AddRule(const std::string& name, std::string_view body) { rules_ += fmt::format("{} ::= {}\n", name, body); }
  std::string NewName() { return fmt::format("{}r{}", prefix_, next_rule_++); }
  std::string NewRule(std::string_view body) {
    const std::string name = NewName();
    AddRule(name, body);
    return name;
  }

  // A rule for what the schema allows.
  Result<std::string> Visit(const SchemaJson& schema, const std::string& path) {
    if (next_rule_ > kMaxRules) return SchemaUnsupported(path, "the schema is too large");
    if (depth_ >= kMaxNesting) return SchemaUnsupported(path, "schemas are nested too deeply");
    ++depth_;
    Result<std::string> rule = VisitInner(schema, path);
    --depth_;
    return rule;
  }

  Result<std::string> VisitInner(const SchemaJson& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return Name("value");
      return SchemaInvalid(path, "nothing satisfies the schema false");
    }
    if (!schema.is_object()) return SchemaInvalid(path, "a schema is an object or a boolean");
    BELLHOP_TRY(CheckKeywords(schema, path));
    if (schema.contains("$ref")) return VisitReference(schema, path);
    if (schema.contains("allOf")) return VisitAllOf(schema, path);
    std::vector<std::string> choices;
    if (schema.contains("nullable")) {
      if (!schema["nullable"].is_boolean()) return SchemaInvalid(SchemaPath(path, "nullable"), "give true or false");
      if (schema["nullable"].get<bool>()) choices.push_back("\"null\"");
    }
    if (schema.contains("anyOf") || schema.contains("oneOf")) {
      BELLHOP_TRY(AddAlternatives(schema, path, &choices));
    } else if (schema.contains("enum") || schema.contains("const")) {
      BELLHOP_TRY(AddListed(schema, path, &choices));
    } else {
      BELLHOP_TRY(AddTypes(schema, path, &choices));
    }
    return NewRule(fmt::format("{}", fmt::join(choices, " | ")));
  }

  Status CheckKeywords(const SchemaJson& schema, const std::string& path) {
    for (const auto& entry : schema.items()) {
      const std::string& key = entry.key();
      if (IsSchemaAnnotation(key)) continue;
      const auto& known = KeywordTypes();
      const auto keyword = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == key; });
      if (keyword == known.end()) {
        return SchemaUnsupported(SchemaPath(path, key), fmt::format("keyword '{}' cannot be enforced; remove it", key));
      }
      if (key == "uniqueItems" && entry.value() != SchemaJson(false)) {
        return SchemaUnsupported(SchemaPath(path, key), "keyword 'uniqueItems' cannot be enforced; remove it");
      }
    }
    return Status();
  }

  bool OnlyAnnotationsBeside(const SchemaJson& schema, std::string_view keyword) const {
    for (const auto& entry : schema.items()) {
      if (entry.key() != keyword && !IsSchemaAnnotation(entry.key())) return false;
    }
    return true;
  }

  Result<std::string> VisitReference(const SchemaJson& schema, const std::string& path) {
    if (!OnlyAnnotationsBeside(schema, "$ref")) {
      BELLHOP_TRY_ASSIGN(const SchemaJson flat, resolver_.Flatten(schema, path));
      return Visit(flat, path);
    }
    if (!schema["$ref"].is_string()) return SchemaInvalid(SchemaPath(path, "$ref"), "give a string");
    const std::string reference = schema["$ref"].get<std::string>();
    if (const auto known = references_.find(reference); known != references_.end()) return known->second;
    BELLHOP_TRY_ASSIGN(const SchemaJson* const target, resolver_.Find(reference, path));
    const std::string name = NewName();
    references_[reference] = name;
    BELLHOP_TRY_ASSIGN(const std::string body, Visit(*target, reference));
    AddRule(name, body);
    return name;
  }

  Result<std::string> VisitAllOf(const SchemaJson& schema, const std::string& path) {
    const SchemaJson& all = schema["allOf"];
    if (all.is_array() && all.size() == 1 && OnlyAnnotationsBeside(schema, "allOf")) {
      return Visit(all[0], SchemaPath(path, "allOf") + "/0");
    }
    if (all.is_array()) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].is_object()) BELLHOP_TRY(CheckKeywords(all[i], fmt::format("{}/{}", SchemaPath(path, "allOf"), i)));
      }
    }
    BELLHOP_TRY_ASSIGN(const SchemaJson flat, resolver_.Flatten(schema, path));
    return Visit(flat, path);
  }

  Status AddAlternatives(const SchemaJson& schema, const std::string& path, std::vector<std::string>* choices) {
    const std::string keyword = schema.contains("anyOf") ? "anyOf" : "oneOf";
    const std::string where = SchemaPath(path, keyword);
    const SchemaJson& list = schema[keyword];
    if (!list.is_array() || list.empty()) return SchemaInvalid(where, "give an array of schemas");
    if (schema.contains("anyOf") && schema.contains("oneOf")) {
      return SchemaUnsupported(SchemaPath(path, "oneOf"), "anyOf and oneOf cannot be enforced together");
    }
    for (size_t i = 0; keyword == "oneOf" && i < list.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!resolver_.Disjoint(list[j], list[i])) {
          return SchemaUnsupported(where, fmt::format("a value may satisfy both alternative {} and {}, and oneOf then "
                                                      "forbids it; use anyOf",
                                                      j, i));
        }
      }
    }
    SchemaJson rest = schema;
    rest.erase(keyword);
    rest.erase("nullable");
    const bool alone = OnlyAnnotationsBeside(rest, "");
    const size_t before = choices->size();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string part_path = fmt::format("{}/{}", where, i);
      SchemaJson merged;
      if (!alone) {
        BELLHOP_TRY_ASSIGN(const SchemaJson part, resolver_.Flatten(list[i], part_path));
        BELLHOP_TRY_ASSIGN(merged, resolver_.Merge(rest, part, part_path));
      }
      const SchemaJson& part = alone ? list[i] : merged;
      if (part == SchemaJson(false)) continue;
      BELLHOP_TRY_ASSIGN(std::string rule, Visit(part, part_path));
      choices->push_back(std::move(rule));
    }
    if (choices->size() == before) return SchemaInvalid(where, "nothing satisfies any of the alternatives");
    return Status();
  }

  Status AddListed(const SchemaJson& schema, const std::string& path, std::vector<std::string>* choices) {
    for (const auto& entry : schema.items()) {
      const std::string& key = entry.key();
      if (IsSchemaAnnotation(key) || key == "enum" || key == "const" || key == "type" || key == "nullable") continue;
      return SchemaUnsupported(SchemaPath(path, key),
                               fmt::format("keyword '{}' cannot be enforced beside enum or const; "
                                           "leave out the values that it forbids",
                                           key));
    }
    SchemaJson values = schema.contains("enum") ? schema["enum"] : SchemaJson::array({schema["const"]});
    if (!values.is_array()) return SchemaInvalid(SchemaPath(path, "enum"), "give an array of values");
    BELLHOP_TRY_ASSIGN(const auto types, SchemaTypes(schema, path));
    std::set<std::string> seen;
    const size_t before = choices->size();
    for (const SchemaJson& value : values) {
      if (schema.contains("const") && value != schema["const"]) continue;
      const auto holds = [&](const std::string& type) { return SchemaTypeHolds(type, value); };
      if (types && std::none_of(types->begin(), types->end(), holds)) continue;
      const std::string text = Dump(value);
      if (seen.insert(text).second) choices->push_back(GbnfLiteral(text));
    }
    if (choices->size() == before)
      return SchemaInvalid(path, "no value of enum or const has the type that is asked for");
    return Status();
  }

  Status AddTypes(const SchemaJson& schema, const std::string& path, std::vector<std::string>* choices) {
    BELLHOP_TRY_ASSIGN(auto types, SchemaTypes(schema, path));
    if (!types) {
      // A keyword restricts values of its type alone; those types are a part of what is allowed.
      types.emplace();
      for (const auto& [keyword, type] : KeywordTypes()) {
        const bool listed = std::find(types->begin(), types->end(), type) != types->end();
        if (!type.empty() && !listed && schema.contains(keyword)) types->emplace_back(type);
      }
      if (types->empty()) {
        choices->push_back(Name("value"));
        return Status();
      }
    }
    for (const std::string& type : *types) {
      if (type == "integer" && std::find(types->begin(), types->end(), "number") != types->end()) continue;
      BELLHOP_TRY_ASSIGN(std::string body, Type(type, schema, path));
      choices->push_back(std::move(body));
    }
    return Status();
  }

  Result<std::string> Type(const std::string& type, const SchemaJson& schema, const std::string& path) {
    if (type == "object") return Object(schema, path);
    if (type == "array") return Array(schema, path);
    if (type == "string") return String(schema, path);
    if (type == "integer") return IntegerGbnf(schema, path);
    if (type == "number") return NumberGbnf(schema, path);
    return std::string(type == "null" ? "\"null\"" : "\"true\" | \"false\"");
  }

  struct Property {
    std::string name;
    std::string pair;  // rule
    bool required = false;
  };

  Result<std::vector<Property>> Properties(const SchemaJson& schema, const std::string& path,
                                           const SchemaJson& additional) {
    const SchemaJson empty = SchemaJson::object();
    const SchemaJson& declared = schema.contains("properties") ? schema["properties"] : empty;
    if (!declared.is_object()) return SchemaInvalid(SchemaPath(path, "properties"), "give an object of schemas");
    std::vector<std::string> required;
    if (schema.contains("required")) {
      const std::string where = SchemaPath(path, "required");
      if (!schema["required"].is_array()) return SchemaInvalid(where, "give an array of names");
      for (const SchemaJson& name : schema["required"]) {
        if (!name.is_string()) return SchemaInvalid(where, "give an array of names");
        required.push_back(name.get<std::string>());
      }
    }
    std::set<std::string> missing(required.begin(), required.end());
    const std::set<std::string> all_required = missing;
    std::vector<Property> properties;
    const auto add = [&](const std::string& name, const SchemaJson& value, const std::string& where) -> Status {
      const bool must = all_required.count(name) != 0;
      missing.erase(name);
      if (value == SchemaJson(false)) {
        if (must) return SchemaInvalid(where, "the property is required, and nothing satisfies it");
        properties.push_back({name, "", false});
        return Status();
      }
      BELLHOP_TRY_ASSIGN(const std::string rule, Visit(value, where));
      properties.push_back(
          {name, NewRule(fmt::format("{} {} {}", GbnfLiteral(Dump(name) + ":"), Name("ws"), rule)), must});
      return Status();
    };
    for (const auto& entry : declared.items()) {
      BELLHOP_TRY(add(entry.key(), entry.value(), SchemaPath(SchemaPath(path, "properties"), entry.key())));
    }
    for (const std::string& name : required) {
      if (missing.count(name) == 0) continue;
      if (additional == SchemaJson(false)) {
        return SchemaInvalid(SchemaPath(path, "required"),
                             fmt::format("'{}' is required, but additionalProperties forbids it", name));
      }
      BELLHOP_TRY(add(name, additional, SchemaPath(path, "additionalProperties")));
    }
    return properties;
  }

  Result<std::string> Object(const SchemaJson& schema, const std::string& path) {
    const bool told = schema.contains("additionalProperties");
    const SchemaJson additional = told ? schema["additionalProperties"] : SchemaJson(true);
    if (!told && !schema.contains("properties") && !schema.contains("required")) return Name("object");
    BELLHOP_TRY_ASSIGN(const std::vector<Property> properties, Properties(schema, path, additional));
    std::string extra;
    if (told && additional != SchemaJson(false)) {
      BELLHOP_TRY_ASSIGN(const std::string value, Visit(additional, SchemaPath(path, "additionalProperties")));
      std::vector<std::string> names;
      for (const Property& property : properties) names.push_back(property.name);
      extra = NewRule(fmt::format("\"\\\"\" {} \":\" {} {}", OtherKey(std::move(names)), Name("ws"), value));
    }
    // From the last property to the first: what may follow when none has come yet, and when one has.
    const std::string ws = Name("ws");
    std::string first = "\"}\"", later = ws + " \"}\"";
    if (!extra.empty()) {
      later = NewRule(fmt::format("(\",\" {} {})* {} \"}}\"", ws, extra, ws));
      first = NewRule(fmt::format("\"}}\" | {} {}", extra, later));
    }
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& property = properties[i];
      if (property.pair.empty()) continue;
      const std::string skip_first = property.required ? "" : " | " + first;
      const std::string skip_later = property.required ? "" : " | " + later;
      first = NewRule(property.pair + " " + later + skip_first);
      later = NewRule(fmt::format("\",\" {} {} {}{}", ws, property.pair, later, skip_later));
    }
    return fmt::format("\"{{\" {} {}", ws, first);
  }

  // Text of a key, closing quote included, that is none of `names`. Such keys have no escapes, so a name that needs
  // one is out of the question anyway.
  std::string OtherKey(std::vector<std::string> names) {
    std::erase_if(names, [](const std::string& name) { return Dump(name).size() != name.size() + 2; });
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    const std::string any = NewRule("[^\"\\\\\\x00-\\x1F\\x7F]* \"\\\"\"");
    return OtherKeyAfter(names, 0, names.size(), 0, any);
  }

  // Names begin to end share their first `length` bytes, which have been read.
  std::string OtherKeyAfter(const std::vector<std::string>& names, size_t begin, size_t end, size_t length,
                            const std::string& any) {
    if (begin == end) return any;
    std::string taken, out;
    const bool whole = names[begin].size() == length;  // sorted: the shortest is first
    if (whole) ++begin;
    while (begin < end) {
      const uint8_t lead = static_cast<uint8_t>(names[begin][length]);
      const size_t bytes = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
      const std::string character = names[begin].substr(length, bytes);
      size_t next = begin;
      while (next < end && names[next].compare(length, bytes, character) == 0) ++next;
      const std::string rest = OtherKeyAfter(names, begin, next, length + character.size(), any);
      out += fmt::format(" | {} {}", GbnfLiteral(character), rest);
      const bool special = character == "]" || character == "^" || character == "-" || character == "[";
      taken += (special ? "\\" : "") + character;
      begin = next;
    }
    const std::string other = fmt::format("[^\"\\\\\\x00-\\x1F\\x7F{}] {}", taken, any);
    return NewRule(other + out + (whole ? "" : " | \"\\\"\""));
  }

  Result<uint64_t> Count(const SchemaJson& schema, const char* keyword, const std::string& path, uint64_t absent) {
    if (!schema.contains(keyword)) return absent;
    const SchemaJson& value = schema[keyword];
    const std::string where = SchemaPath(path, keyword);
    double count = value.is_number() ? value.get<double>() : -1;
    if (!(count >= 0) || count != static_cast<double>(static_cast<uint64_t>(std::min(count, 1e15)))) {
      return SchemaInvalid(where, "give a whole number, 0 or more");
    }
    if (count > static_cast<double>(kMaxCount)) {
      return SchemaUnsupported(where, fmt::format("counts above {} cannot be enforced", kMaxCount));
    }
    return static_cast<uint64_t>(count);
  }

  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  static std::string Times(uint64_t min, uint64_t max) {
    return max == kNoLimit ? fmt::format("{{{},}}", min) : fmt::format("{{{},{}}}", min, max);
  }

  Result<std::string> Array(const SchemaJson& schema, const std::string& path) {
    BELLHOP_TRY_ASSIGN(const uint64_t min, Count(schema, "minItems", path, 0));
    BELLHOP_TRY_ASSIGN(uint64_t max, Count(schema, "maxItems", path, kNoLimit));
    const bool tuple_items = schema.contains("items") && schema["items"].is_array();
    if (tuple_items && schema.contains("prefixItems")) {
      return SchemaUnsupported(SchemaPath(path, "items"), "give prefixItems, and a schema as items");
    }
    const std::string prefix_path = SchemaPath(path, tuple_items ? "items" : "prefixItems");
    std::vector<std::string> prefix;
    if (tuple_items || schema.contains("prefixItems")) {
      const SchemaJson& list = schema[tuple_items ? "items" : "prefixItems"];
      if (!list.is_array()) return SchemaInvalid(prefix_path, "give an array of schemas");
      for (size_t i = 0; i < list.size(); ++i) {
        BELLHOP_TRY_ASSIGN(std::string rule, Visit(list[i], fmt::format("{}/{}", prefix_path, i)));
        prefix.push_back(std::move(rule));
      }
    }
    const std::string ws = Name("ws");
    std::string item = Name("value");
    if (schema.contains("items") && !tuple_items) {
      if (schema["items"] == SchemaJson(false)) {
        max = std::min<uint64_t>(max, prefix.size());
      } else {
        BELLHOP_TRY_ASSIGN(item, Visit(schema["items"], SchemaPath(path, "items")));
      }
    } else if (!prefix.empty() && min <= prefix.size()) {
      max = std::min<uint64_t>(max, prefix.size());  // nothing was said of further items
    }
    if (min > max) return SchemaInvalid(SchemaPath(path, "minItems"), "more items are needed than are allowed");
    if (max == 0) return fmt::format("\"[\" {} \"]\"", ws);
    // Sequences of items that follow `count` items, from the last of the prefix on.
    const uint64_t fixed = std::min<uint64_t>(prefix.size(), max);
    const auto minus = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
    std::string rest;
    if (fixed > 0) {
      const uint64_t more = max == kNoLimit ? kNoLimit : max - fixed;
      rest = fmt::format("{} \"]\"", ws);
      if (more != 0) rest = fmt::format("(\",\" {} {}){} {}", ws, item, Times(minus(min, fixed), more), rest);
      for (uint64_t i = fixed; i-- > 1;) {
        const std::string end = i >= min ? fmt::format(" | {} \"]\"", ws) : "";
        rest = NewRule(fmt::format("\",\" {} {} {}{}", ws, prefix[i], rest, end));
      }
      rest = prefix[0] + " " + rest;
    } else {
      const uint64_t more = max == kNoLimit ? kNoLimit : max - 1;
      rest = fmt::format("{} (\",\" {} {}){} {} \"]\"", item, ws, item, Times(minus(min, 1), more), ws);
    }
    return fmt::format("\"[\" {} ({}{})", ws, min == 0 ? "\"]\" | " : "", rest);
  }

  Result<std::string> String(const SchemaJson& schema, const std::string& path) {
    BELLHOP_TRY_ASSIGN(const uint64_t min, Count(schema, "minLength", path, 0));
    BELLHOP_TRY_ASSIGN(const uint64_t max, Count(schema, "maxLength", path, kNoLimit));
    if (min > max) return SchemaInvalid(SchemaPath(path, "minLength"), "minLength is above maxLength");
    const bool bounded = min != 0 || max != kNoLimit;
    for (const char* keyword : {"pattern", "format"}) {
      if (!schema.contains(keyword)) continue;
      const std::string where = SchemaPath(path, keyword);
      if (!schema[keyword].is_string()) return SchemaInvalid(where, "give a string");
      if (bounded) return SchemaUnsupported(where, "cannot be enforced together with minLength and maxLength");
      if (schema.contains("pattern") && schema.contains("format")) {
        return SchemaUnsupported(where, "pattern and format cannot be enforced together");
      }
      const std::string text = schema[keyword].get<std::string>();
      std::string body;
      if (keyword == std::string_view("pattern")) {
        BELLHOP_TRY_ASSIGN(body, PatternGbnf(text, where, Name("char")));
      } else if (text == "date") {
        body = kDate;
      } else if (text == "time") {
        body = kTime;
      } else if (text == "date-time") {
        body = fmt::format("{} \"T\" {}", kDate, kTime);
      } else if (text == "uuid") {
        body = kUuid;
      } else {
        return SchemaUnsupported(where,
                                 fmt::format("format '{}' cannot be enforced: use date, time, date-time, uuid or a "
                                             "pattern",
                                             text));
      }
      return fmt::format("\"\\\"\" ({}) \"\\\"\"", body);
    }
    if (!bounded) return Name("string");
    return fmt::format("\"\\\"\" {}{} \"\\\"\"", Name("char"), Times(min, max));
  }

  const SchemaJson& root_;
  SchemaResolver resolver_;
  std::string prefix_;
  std::string rules_;
  size_t next_rule_ = 0;
  int depth_ = 0;
  std::map<std::string, std::string> references_;  // rule of each
};

}  // namespace

std::string GbnfLiteral(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Result<GbnfRules> JsonSchemaRules(const nlohmann::ordered_json& schema, const std::string& prefix) {
  return SchemaCompiler(schema, prefix).Compile();
}

Result<std::string> JsonSchemaToGbnf(const nlohmann::ordered_json& schema) {
  BELLHOP_TRY_ASSIGN(GbnfRules rules, JsonSchemaRules(schema, ""));
  // What the grammar itself refuses: a schema that is nothing but a reference to itself, or too large a one.
  if (const auto grammar = Grammar::Parse(rules.rules); !grammar.ok()) {
    return grammar.status().WithContext("json schema: #: its grammar does not compile");
  }
  return std::move(rules.rules);
}

std::string JsonObjectGbnf() { return "root ::= object\n" + fmt::format(kBuiltins, ""); }

}  // namespace bellhop::decode
