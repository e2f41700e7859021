// Chat templates: a bounded interpreter for the Jinja2 dialect that model files carry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::text {

// Template source is untrusted: every render is bounded.
struct TemplateLimits {
  int64_t max_steps = 20'000'000;  // evaluated nodes
  int64_t max_output_bytes = 64 << 20;
  int max_depth = 200;                 // nested calls and expressions; the default needs 512 KiB of stack
  int64_t max_live_bytes = 256 << 20;  // values alive at one time, the context not counted
};

class ChatTemplate {
 public:
  // Parses with trim_blocks and lstrip_blocks on. kInvalidArgument: "<name>:<line>: <what>", syntax errors and
  // constructs that the interpreter cannot do alike, so that they are found at load.
  static Result<ChatTemplate> Parse(std::string name, std::string_view source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context` is an object: messages, tools, add_generation_prompt, bos_token, eos_token, and extra keyword arguments.
  // kInvalidArgument "<name>:<line>: <what>": run-time failures and raise_exception (with the template's own message).
  // `now_unix_seconds` feeds strftime_now (UTC).
  Result<std::string> Render(const nlohmann::ordered_json& context, int64_t now_unix_seconds,
                             const TemplateLimits& limits = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bellhop::text
