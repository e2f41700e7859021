// A chat template, then optionally a zero byte and its context as JSON. Parses and renders under small limits.
// Holds for any input: nothing crashes, failures are invalid arguments that name the template, outputs respect their
// limit, and a second render gives the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;
using bellhop::Result;
using bellhop::StatusCode;
using bellhop::text::ChatTemplate;
using bellhop::text::TemplateLimits;

constexpr const char* kDefaultContext = R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé <think>x</think> 你好"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
    {"role": "tool", "content": "ok"}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
  "s": "Hello, World", "u": "Größe ΣΊΣ дом 🎉", "i": 42, "fl": 3.14, "t": true, "f": false, "n": null,
  "xs": [3, 1, 2], "words": ["Banana", "apple"], "d": {"a": 1, "b": [1], "c": {"x": "y"}},
  "tree": [{"name": "a", "kids": [{"name": "b", "kids": []}]}]
})";

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

void RequireNamed(const bellhop::Status& status) {
  Require(status.code() == StatusCode::kInvalidArgument && status.message().starts_with("t:"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view source(reinterpret_cast<const char*>(data), size);
  Json context;
  if (const size_t split = source.find('\0'); split != source.npos) {
    context = Json::parse(source.substr(split + 1), nullptr, false);
    source = source.substr(0, split);
  } else {
    static const Json default_context = Json::parse(kDefaultContext);
    context = default_context;
  }
  const Result<ChatTemplate> parsed = ChatTemplate::Parse("t", source);
  if (!parsed.ok()) {
    RequireNamed(parsed.status());
    return 0;
  }
  TemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_live_bytes = 1 << 20;
  limits.max_depth = 60;
  const Result<std::string> text = parsed->Render(context, 1735000000, limits);
  if (text.ok()) {
    Require(static_cast<int64_t>(text->size()) <= limits.max_output_bytes);
  } else {
    RequireNamed(text.status());
  }
  const Result<std::string> again = parsed->Render(context, 1735000000, limits);
  Require(again.ok() == text.ok() && (!text.ok() || *again == *text));
  return 0;
}
