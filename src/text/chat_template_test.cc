#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace bellhop::text {
namespace {

using Json = nlohmann::ordered_json;

std::string ParseError(std::string_view source) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse("chat", source);
  EXPECT_FALSE(parsed.ok()) << source;
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

Result<std::string> Render(std::string_view source, const Json& context = Json::object(),
                           const TemplateLimits& limits = {}) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse("chat", source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(context, 0, limits);
}

std::string RenderError(std::string_view source, const Json& context = Json::object(),
                        const TemplateLimits& limits = {}) {
  const Result<std::string> text = Render(source, context, limits);
  EXPECT_FALSE(text.ok()) << source << " gave " << (text.ok() ? *text : "");
  if (text.ok()) return "";
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

TEST(ChatTemplate, ParseErrorsNameTemplateLineAndTheFault) {
  EXPECT_EQ(ParseError("a\n{{ x|nope }}"), "chat:2: no filter named 'nope'");
  EXPECT_EQ(ParseError("{# two\nlines #}\n\n{{ x is nope }}"), "chat:4: no test named 'nope'");
  EXPECT_EQ(ParseError("{% include 'other' %}"), "chat:1: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(ParseError("\n{% frob %}"), "chat:2: encountered unknown tag 'frob'");
  EXPECT_EQ(ParseError("{% if x %}"), "chat:1: unexpected end of template; the block 'if' is not closed");
  EXPECT_EQ(ParseError("{{ 'x' }"), "chat:1: unexpected '}'");
}

TEST(ChatTemplate, UnknownNamesInsideMapAndSelectAreFoundAtParse) {
  EXPECT_EQ(ParseError("{{ xs|map('nope')|list }}"), "chat:1: no filter named 'nope'");
  EXPECT_EQ(ParseError("{{ xs|select('nope')|list }}"), "chat:1: no test named 'nope'");
  EXPECT_EQ(ParseError("{{ xs|rejectattr('a', 'nope')|list }}"), "chat:1: no test named 'nope'");
  EXPECT_TRUE(Render("{{ xs|selectattr('nope')|list }}", {{"xs", Json::array()}}).ok());
}

TEST(ChatTemplate, RuntimeErrorsNameTheLineWhereTheyHappen) {
  EXPECT_EQ(RenderError("a\n{{ x.y }}"), "chat:2: 'x' is undefined");
  EXPECT_EQ(RenderError("{% macro f(m) %}\n\n{{ m.role.name }}{% endmacro %}\n{{ f({'content': 1}) }}"),
            "chat:3: 'dict object' has no attribute 'role'");
  EXPECT_EQ(RenderError("{%- for m in messages %}\n{%- if m.role != 'user' %}\n"
                        "{{- raise_exception('Only user: ' + m.role) }}\n{%- endif %}{% endfor %}",
                        {{"messages", {{{"role", "system"}}}}}),
            "chat:3: Only user: system");
}

TEST(ChatTemplate, ContextMustBeAnObject) {
  EXPECT_EQ(RenderError("x", Json::array()), "chat:1: the context is not a JSON object");
}

TEST(ChatTemplate, ContextNamesHideGlobals) {
  EXPECT_EQ(*Render("{{ range }} {{ loop }}{{ caller }}", {{"range", 1}, {"loop", 2}, {"caller", 3}}), "1 23");
}

TEST(ChatTemplate, KeepsBytesThatAreNotUtf8) {
  Json context;
  context["s"] = "a\xff\xc3(b\xf0\x9f";
  EXPECT_EQ(*Render("{{ s }}|{{ s|trim }}|{{ s|length }}|{{ s[::-1]|length }}", context),
            "a\xff\xc3(b\xf0\x9f|a\xff\xc3(b\xf0\x9f|7|7");
}

TEST(ChatTemplate, BigUnsignedNumbersOfSchemasPrintExactly) {
  const Json context = Json::parse(R"({"schema": {"maximum": 18446744073709551615, "minimum": -9223372036854775808}})");
  EXPECT_EQ(*Render("{{ schema|tojson }}", context),
            R"({"maximum": 18446744073709551615, "minimum": -9223372036854775808})");
}

TEST(ChatTemplate, NamedClockIsUtc) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse("t", "{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->Render(Json::object(), 0), "1970-01-01 00:00:00 Thu 001");
  EXPECT_EQ(*parsed->Render(Json::object(), 951827696), "2000-02-29 12:34:56 Tue 060");
  EXPECT_EQ(*parsed->Render(Json::object(), -1), "1969-12-31 23:59:59 Wed 365");
  EXPECT_EQ(*parsed->Render(Json::object(), 4102444799), "2099-12-31 23:59:59 Thu 365");
  EXPECT_FALSE(parsed->Render(Json::object(), INT64_MAX).ok());
}

TEST(ChatTemplate, RendersFromSeveralThreads) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse(
      "t", "{% macro f(x) %}<{{ x }}>{% endmacro %}{% for m in xs %}{{ f(m ~ 'lit') }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) results[i] = *parsed->Render({{"xs", {i, i + 1}}}, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], "<0lit><1lit>");
  EXPECT_EQ(results[3], "<3lit><4lit>");
}

// Limits. Each template would run, print or allocate without bound in a plain interpreter.
struct Hostile {
  const char* source;
  const char* message;
};

class ChatTemplateLimits : public ::testing::TestWithParam<Hostile> {};

TEST_P(ChatTemplateLimits, AreErrors) {
  TemplateLimits limits;
  limits.max_steps = 300'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_live_bytes = 4 << 20;
  const Json context = {{"a", std::string(5000, 'a')}, {"n", 0}};
  EXPECT_NE(RenderError(GetParam().source, context, limits).find(GetParam().message), std::string::npos)
      << RenderError(GetParam().source, context, limits);
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, ChatTemplateLimits,
    ::testing::Values(
        Hostile{"{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}", "steps"},
        Hostile{"{% for i in range(9999999) %}{% endfor %}", "range too big"},
        Hostile{"{% for i in range(3000) %}{{ a }}{% endfor %}", "limit of 1048576 bytes"},
        Hostile{"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
                "1048576"},
        Hostile{"{{ 'a' * 999999999999 }}", "1048576"}, Hostile{"{{ [1] * 999999999 }}", "1048576"},
        Hostile{"{{ '%999999999d' % 1 }}", "1048576"}, Hostile{"{{ '{:999999999}'.format(1) }}", "1048576"},
        Hostile{"{{ 'x'.center(999999999) }}", "1048576"}, Hostile{"{{ 'x'.zfill(9223372036854775807) }}", "1048576"},
        Hostile{"{{ a.replace('', a)|length }}", "1048576"}, Hostile{"{{ ([a] * 9999)|join|length }}", "bytes"},
        Hostile{"{{ [1]|batch(999999999, 'x')|list }}", "1048576"},
        Hostile{"{{ 'x'|indent(9999999999, true) }}", "1048576"},
        Hostile{"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
                "{{ ns.x }}",
                "steps"},
        Hostile{"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
                "{{ ns.x|tojson }}",
                "steps"},
        Hostile{"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
                "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
                "steps"},
        Hostile{"{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
                "nested more than"},
        Hostile{"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nested more than"},
        Hostile{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested more than"},
        Hostile{"{% macro f() %}{% call g() %}{{ f() }}{% endcall %}{% endmacro %}"
                "{% macro g() %}{{ caller() }}{% endmacro %}{{ f() }}",
                "nested more than"},
        Hostile{"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested more than"},
        Hostile{"{% for i in range(99999) %}{% macro f() %}{% endmacro %}{% endfor %}", "bytes of memory"},
        Hostile{"{% set ns = namespace(x=()) %}{% for i in range(9999) %}{% set ns.x = ns.x + (a ~ i,) %}{% endfor %}",
                "bytes of memory"},
        Hostile{"{% for i in range(99999) %}{% set ns = namespace(x=1) %}{% endfor %}", "bytes of memory"},
        Hostile{"{% for i in range(999) %}{{ (a * 100).split('a')|length }}{% endfor %}", "steps"}));

TEST(ChatTemplate, DeepNestingIsAnErrorNotAStackOverflow) {
  const auto repeat = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  const int deep = 20'000;
  EXPECT_NE(ParseError("{{ " + repeat("(", deep) + "1" + repeat(")", deep) + " }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ " + repeat("[", deep) + repeat("]", deep) + " }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ " + repeat("-", deep) + "1 }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ " + repeat("not ", deep) + "1 }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ " + repeat("1 if 1 else ", deep) + "1 }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ 1" + repeat(" + 1", deep) + " }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ a" + repeat(".a", deep) + " }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ a" + repeat("|trim", deep) + " }}").find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{{ a" + repeat(" is defined", deep) + " }}"), "");
  EXPECT_NE(ParseError(repeat("{% if 1 %}", deep) + repeat("{% endif %}", deep)).find("nested"), std::string::npos);
  EXPECT_NE(ParseError("{% for " + repeat("(", deep) + "x" + repeat(")", deep) + " in y %}{% endfor %}"), "");

  EXPECT_EQ(*Render("{{ 1" + repeat(" + 1", 500) + " }}"), "501");
  EXPECT_EQ(*Render("{{ 'x'" + repeat(" ~ 'y'", 5000) + " }}"), "x" + repeat("y", 5000));
  EXPECT_EQ(*Render(repeat("{% if 1 %}", 100) + "x" + repeat("{% endif %}", 100)), "x");
  Json nested = 1;
  for (int i = 0; i < 1000; ++i) nested = Json::array({nested});
  EXPECT_NE(RenderError("{{ x }}", {{"x", nested}}).find("nested"), std::string::npos);
}

TEST(ChatTemplate, LongConversationsStayWithinTheDefaultLimits) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x') + "</think> y"}});
  }
  const Result<std::string> text = Render(
      "{% for m in messages %}{% set c = m.content.split('</think>')[-1].lstrip() %}"
      "{{ '<|im_start|>' + m.role + '\\n' + m.content|trim + c + '<|im_end|>\\n' }}{% endfor %}",
      {{"messages", messages}});
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_GT(text->size(), 4'000'000u);
}

}  // namespace
}  // namespace bellhop::text
