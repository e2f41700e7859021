#include "decode/json_schema.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decode/grammar_test_util.h"
#include "decode/json_schema_validator_for_test.h"

namespace bellhop::decode {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  const char* schema;
  std::vector<const char*> accepted;
  std::vector<const char*> refused;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {R"({"type":"string"})",
       {R"("")", R"("a\"b\u00e9")", R"("日本")", R"("\ud83d\ude00")"},
       {R"(1)", R"("a)", R"("\ud83d")", "\"\n\""}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("日本語")", R"("\n\t")"},
       {R"("a")", R"("abcd")", R"("\n")"}},
      {R"({"type":["string","null"],"maxLength":1})", {"null", R"("a")"}, {R"("ab")", "1"}},
      {R"({"type":"integer"})", {"0", "-1", "120"}, {"01", "1.5", "1e3", "+1"}},
      {R"({"type":"number"})", {"0.5", "-1e5", "12"}, {".5", "1.", "01"}},
      {R"({"type":"integer","minimum":-12,"maximum":105})",
       {"-12", "-1", "0", "7", "99", "100", "105"},
       {"-13", "106", "110", "200", "00"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "123456"}, {"0", "-1"}},
      {R"({"type":"integer","exclusiveMinimum":1.5,"exclusiveMaximum":4})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"integer","maximum":-3})", {"-3", "-10"}, {"-2", "0", "3"}},
      {R"({"type":"number","minimum":-1,"maximum":1})",
       {"-1", "-0.5", "0", "0.25", "1", "1.0", "-1.0"},
       {"1.5", "-1.1", "1.01", "2"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":3})",
       {"0.5", "1", "2.9"},
       {"0", "0.0", "3", "3.0", "-1"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "0"}},
      {R"({"type":"string","nullable":true})", {"null", R"("x")"}, {"1"}},
      {R"({"enum":["a b",1,null,{"k":[true]}]})", {R"("a b")", "1", "null", R"({"k":[true]})"}, {"2", R"("a")"}},
      {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
      {R"({"const":"x\"y"})", {R"("x\"y")"}, {R"("x")"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})",
       {R"({"b": "x"})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"x","c":null})", "{\n  \"b\": \"x\"\n}"},
       {"{}", R"({"a": 1})", R"({"b": 1})", R"({"b":"x","a":1})", R"({"b":"x",})", R"({"b":"x","d":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":true})", R"({"ab":true,"":false})", R"({"b":true,"c":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"b":true,"a":true})"}},
      {R"({"type":"object"})", {"{}", R"({"x":[1,{"y":null}]})"}, {"[]", "{,}"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"required":["a"],"additionalProperties":{"type":"integer"}})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":"x"})"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1, 2,3]"},
       {"[]", "[1,2,3,4]", "[1,]", R"(["a"])"}},
      {R"({"type":"array"})", {"[]", "[1, \"a\", [null]]"}, {"{}"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1})",
       {"[1]", R"([1,"a"])", R"([1,"a",null,null])"},
       {"[]", R"(["a"])", R"([1,"a",1])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":2})",
       {R"([1,"a"])"},
       {"[1]", R"([1,"a",1])"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"null"}}]})", {"1", "[null]"}, {"null", "[1]"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", R"("a")"}, {"null"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},
                    {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
       {R"({"k":"a","v":1})", R"({"k":"b"})"},
       {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {"{}"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]},
                    {"properties":{"a":{"maximum":5},"b":{"type":"null"}},"required":["b"]}]})",
       {R"({"a":4,"b":null})"},
       {R"({"a":4})", R"({"a":2,"b":null})", R"({"a":6,"b":null})"}},
      {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false})",
       {"{}", R"({"children":[{},{"children":[]}]})"},
       {R"({"children":[1]})"}},
      {R"({"definitions":{"a/b":{"type":"null"}},"properties":{"x":{"$ref":"#/definitions/a~1b","description":"d"}},"required":["x"]})",
       {R"({"x":null})"},
       {R"({"x":1})"}},
      {R"({"type":"string","pattern":"^[a-c]+\\d{2}$"})", {R"("abc12")"}, {R"("d12")", R"("a1")", R"("a123")"}},
      {R"({"type":"string","pattern":"^(foo|ba?r)(-\\w+)*$"})",
       {R"("foo")", R"("br-x_1-y")"},
       {R"("baar")", R"("foo-")"}},
      {R"({"type":"string","pattern":"x"})", {R"("x")", R"("axb")"}, {R"("ab")"}},
      {R"({"type":"string","pattern":"^[^@\\s]+@[a-z]{1,8}\\.(?:com|org)$"})",
       {R"("a@b.com")"},
       {R"("a@b.net")", R"("a b@c.com")"}},
      {R"({"type":"string","pattern":"^[\"\\\\\\n]$"})", {R"("\"")", R"("\\")", R"("\n")"}, {R"("a")", "\"\\\""}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-13-01")", R"("2024-02-30")", R"("2024-04-31")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-28T23:59:59Z")", R"("2024-01-01T00:00:00.5+02:00")"},
       {R"("2024-02-28")", R"("2024-02-28T24:00:00Z")"}},
      {R"({"type":"string","format":"time"})", {R"("12:30:00Z")"}, {R"("12:60:00Z")", R"("12:30")"}},
      {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"title":"t","description":"d","default":1,"examples":[1],"$schema":"s","deprecated":true,"x-order":2,"type":"integer"})",
       {"1"},
       {R"("a")"}},
      {R"(true)", {"1", "{}", "null"}, {"x"}},
      {R"({"properties":{"a":false,"b":{}},"required":["b"]})", {R"({"b":[1]})"}, {R"({"a":1,"b":1})"}},
  };
  return kCases;
}

TEST(JsonSchema, AcceptsAndRefuses) {
  for (const Case& c : Cases()) {
    const Json schema = Json::parse(c.schema);
    const auto gbnf = JsonSchemaToGbnf(schema);
    ASSERT_TRUE(gbnf.ok()) << gbnf.status().ToString() << "\n" << c.schema;
    const auto grammar = MustParse(*gbnf);
    for (const char* text : c.accepted) {
      EXPECT_EQ(MatchText(grammar, text), Match::kWhole) << c.schema << "\n" << text;
      EXPECT_TRUE(ValidatesForTest(schema, schema, Json::parse(text))) << "the test's validator: " << c.schema << text;
    }
    for (const char* text : c.refused) EXPECT_NE(MatchText(grammar, text), Match::kWhole) << c.schema << "\n" << text;
  }
}

TEST(JsonSchema, RandomSentencesSatisfyTheSchema) {
  std::mt19937 random(5);
  for (const Case& c : Cases()) {
    const Json schema = Json::parse(c.schema);
    const auto gbnf = JsonSchemaToGbnf(schema);
    ASSERT_TRUE(gbnf.ok());
    const auto grammar = MustParse(*gbnf);
    int found = 0;
    for (int i = 0; i < 12; ++i) {
      const auto text = RandomSentence(grammar, random, 300);
      if (!text) continue;
      ++found;
      const Json value = Json::parse(*text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << c.schema << "\nmade " << *text;
      EXPECT_TRUE(ValidatesForTest(schema, schema, value)) << c.schema << "\nmade " << *text;
    }
    EXPECT_GT(found, 0) << c.schema;
  }
}

TEST(JsonSchema, IntegerBoundsAreExact) {
  std::mt19937 random(17);
  for (int run = 0; run < 40; ++run) {
    const int low = static_cast<int>(random() % 2400) - 1200, high = low + static_cast<int>(random() % 400);
    const auto gbnf = JsonSchemaToGbnf({{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    ASSERT_TRUE(gbnf.ok());
    const auto grammar = MustParse(*gbnf);
    for (int value = low - 120; value <= high + 120; ++value) {
      EXPECT_EQ(MatchText(grammar, std::to_string(value)) == Match::kWhole, value >= low && value <= high)
          << low << " " << value << " " << high;
    }
  }
}

TEST(JsonSchema, ErrorsNameTheKeywordAndItsPath) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"integer","multipleOf":3})", "#/multipleOf"},
      {R"({"properties":{"a/b":{"not":{}}}})", "#/properties/a~1b/not"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"type":"array","items":{"type":"string","format":"email"}})", "#/items/format"},
      {R"({"type":"object","patternProperties":{"a":{}}})", "#/patternProperties"},
      {R"({"type":"object","minProperties":1})", "#/minProperties"},
      {R"({"type":"object","propertyNames":{}})", "#/propertyNames"},
      {R"({"if":{},"then":{}})", "#/if"},
      {R"({"type":"array","contains":{}})", "#/contains"},
      {R"({"type":"strin"})", "#/type"},
      {R"({"type":[]})", "#/type"},
      {R"({"type":"number","minimum":0.5})", "#/minimum"},
      {R"({"type":"integer","minimum":"1"})", "#/minimum"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "#"},
      {R"({"type":"string","minLength":-1})", "#/minLength"},
      {R"({"type":"string","minLength":1.5})", "#/minLength"},
      {R"({"type":"string","maxLength":10000000})", "#/maxLength"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "#/minLength"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "#/minItems"},
      {R"x({"type":"string","pattern":"a(?=b)"})x", "#/pattern"},
      {R"({"type":"string","pattern":"\\bx"})", "#/pattern"},
      {R"({"type":"string","pattern":"(a"})", "#/pattern"},
      {R"x({"type":"string","pattern":"a)"})x", "#/pattern"},
      {R"({"type":"string","pattern":"^a|b$"})", "#/pattern"},
      {R"({"type":"string","pattern":"^a$","minLength":1})", "#/pattern"},
      {R"({"anyOf":[{"type":"string"},{"bad":1}]})", "#/anyOf/1/bad"},
      {R"({"anyOf":[]})", "#/anyOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "#/oneOf"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "#/type"},
      {R"({"allOf":[{"type":"string","bad":1},{"minLength":2}]})", "#/allOf/0/bad"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref"},
      {R"({"properties":{"a":{"$ref":"http://x/y"}}})", "#/properties/a/$ref"},
      {R"({"$ref":"#"})", "#"},
      {R"({"$ref":"#","minLength":2})", "#"},
      {R"({"enum":[]})", "#"},
      {R"({"type":"string","enum":[1]})", "#"},
      {R"({"type":"string","enum":["a"],"minLength":2})", "#/minLength"},
      {R"({"required":["a"],"additionalProperties":false})", "#/required"},
      {R"({"required":"a"})", "#/required"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"properties":{"a":3}})", "#/properties/a"},
      {R"(false)", "#"},
      {R"([])", "#"},
      {R"({"$defs":{"a":{"bad":1}},"items":{"$ref":"#/$defs/a"}})", "#/$defs/a/bad"},
  };
  for (const auto& [schema, path] : cases) {
    const auto gbnf = JsonSchemaToGbnf(Json::parse(schema));
    ASSERT_FALSE(gbnf.ok()) << schema;
    EXPECT_TRUE(gbnf.status().code() == StatusCode::kInvalidArgument ||
                gbnf.status().code() == StatusCode::kUnsupported);
    const std::string start = std::string("json schema: ") + path + ": ";
    EXPECT_EQ(gbnf.status().message().substr(0, start.size()), start) << schema << "\n" << gbnf.status().message();
  }
}

TEST(JsonSchema, HostileSchemasAreRefused) {
  Json deep = Json::object();
  for (int i = 0; i < 150; ++i) deep = {{"type", "array"}, {"items", deep}};
  EXPECT_FALSE(JsonSchemaToGbnf(deep).ok());
  Json deeper = Json::object();
  for (int i = 0; i < 5000; ++i) deeper = {{"default", std::move(deeper)}};
  EXPECT_FALSE(JsonSchemaToGbnf(deeper).ok());
  // Each expansion holds two more of itself.
  EXPECT_FALSE(JsonSchemaToGbnf(Json::parse(R"({"$ref":"#/$defs/a","minLength":1,"$defs":{"a":{"properties":{
      "x":{"$ref":"#/$defs/a","minLength":1},"y":{"$ref":"#/$defs/a","minLength":1}}}}})"))
                   .ok());
  // Counts multiply within a tuple's items, which are written out.
  Json tuple = {{"type", "array"}, {"prefixItems", Json::array()}};
  for (int i = 0; i < 40; ++i) tuple["prefixItems"].push_back({{"type", "string"}, {"maxLength", 50000}});
  const auto large = JsonSchemaToGbnf(tuple);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.status().message().find("too large"), std::string::npos);
}

TEST(JsonSchema, AnyObject) {
  const auto grammar = MustParse(JsonObjectGbnf());
  EXPECT_EQ(MatchText(grammar, R"({"a": [1, {"b": "c"}], "d": null})"), Match::kWhole);
  EXPECT_EQ(MatchText(grammar, "[1]"), Match::kNo);
  EXPECT_EQ(MatchText(grammar, "{\n  \"a\": 1\n}"), Match::kWhole);
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    const auto text = RandomSentence(grammar, random, 300);
    if (!text) continue;
    EXPECT_TRUE(Json::parse(*text, nullptr, false).is_object()) << *text;
  }
}

}  // namespace
}  // namespace bellhop::decode
