// From generated text to what a chat client shows: reasoning, content and tool calls, taken apart as the text streams
// in. Formats are those that models write: Hermes as Qwen3 uses it, Qwen3-Coder's tagged calls, and gpt-oss' harmony.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bellhop::text {

enum class ChatFormat : uint8_t {
  kPlain,    // everything is content
  kHermes,   // <think>...</think>, <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  kTagged,   // the same with <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>
  kHarmony,  // <|channel|>analysis<|message|>...<|end|>, calls to functions.NAME in the commentary channel
};

// What the template's own text shows of the model's format.
ChatFormat DetectChatFormat(std::string_view template_source);

struct ChatDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kToolBegin, kToolArguments };
  Kind kind = Kind::kContent;
  int32_t tool = -1;  // index of the call, of the tool kinds
  std::string text;   // of kToolBegin: the function's name; of kToolArguments: a part of its JSON text
};

// Text that may still turn into a tag is held back, and nothing else. White space between the parts is dropped. A call
// that cannot be read comes out as content, as it stands, so nothing is lost. The joined deltas do not depend on how
// the text was cut. Control tokens must be in the text.
class ChatOutputParser {
 public:
  struct Options {
    ChatFormat format = ChatFormat::kPlain;
    bool reasoning = true;      // take reasoning apart; false: its tags are content
    bool in_reasoning = false;  // the prompt has already opened it
    bool tools = false;         // take calls apart
  };
  explicit ChatOutputParser(const Options& options);
  ~ChatOutputParser();
  ChatOutputParser(ChatOutputParser&&) noexcept;

  void Push(std::string_view text, std::vector<ChatDelta>* deltas);
  void Finish(std::vector<ChatDelta>* deltas);
  int32_t tool_calls() const;  // begun so far

  class Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace bellhop::text
