// gpt-oss: messages with a header, <|channel|>final<|message|>text<|end|>, begun anew by <|start|>assistant.
#include "text/chat_output_machine.h"

namespace bellhop::text {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>";
// What ends a message; <|return|> and <|call|> end the generation, so they are seldom in the text.
constexpr std::string_view kEnds[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};
constexpr std::string_view kFunctions = "to=functions.";

std::string_view WordAfter(std::string_view text, std::string_view mark) {
  const size_t found = text.find(mark);
  if (found == std::string_view::npos) return {};
  const std::string_view rest = text.substr(found + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

class HarmonyMachine final : public ChatOutputParser::Machine {
 public:
  explicit HarmonyMachine(const ChatOutputParser::Options& options) : options_(options) {}

 private:
  bool Step(bool last) override { return in_message_ ? StepMessage(last) : StepHeader(last); }

  bool StepHeader(bool last) {
    if (buffer_.empty()) return false;
    const size_t end = buffer_.find(kMessage);
    if (end == std::string::npos) {
      if (!last && MayBeHeader()) return false;
      // No header: the model, or a grammar, wrote the answer alone.
      kind_ = ChatDelta::Kind::kContent;
      in_message_ = true;
      return true;
    }
    const std::string header = buffer_.substr(0, end);
    buffer_.erase(0, end + kMessage.size());
    const std::string_view channel = WordAfter(header, kChannel);
    const std::string_view function = WordAfter(header, kFunctions);
    if (!function.empty() && options_.tools) {
      BeginTool(function);
      kind_ = ChatDelta::Kind::kToolArguments;
    } else {
      kind_ = channel == "analysis" && options_.reasoning ? ChatDelta::Kind::kReasoning : ChatDelta::Kind::kContent;
    }
    in_message_ = true;
    return true;
  }

  bool MayBeHeader() const {
    const std::string_view text = buffer_;
    for (const std::string_view head : {kStart, kChannel, std::string_view(" to=")}) {
      if (text.starts_with(head) || head.starts_with(text)) return true;
    }
    return false;
  }

  bool StepMessage(bool last) {
    size_t end = std::string::npos;
    std::string_view mark;
    for (const std::string_view candidate : kEnds) {
      const size_t found = buffer_.find(candidate);
      if (found < end) {
        end = found;
        mark = candidate;
      }
    }
    if (end != std::string::npos) {
      Emit(kind_, std::string_view(buffer_).substr(0, end));
      buffer_.erase(0, end + (mark == kStart ? 0 : mark.size()));
      in_message_ = false;
      return true;
    }
    size_t held = 0;
    for (const std::string_view candidate : kEnds) held = std::max(held, last ? 0 : TagSuffix(buffer_, candidate));
    Emit(kind_, std::string_view(buffer_).substr(0, buffer_.size() - held));
    buffer_.erase(0, buffer_.size() - held);
    return false;
  }

  ChatOutputParser::Options options_;
  bool in_message_ = false;
  ChatDelta::Kind kind_ = ChatDelta::Kind::kContent;
};

}  // namespace

std::unique_ptr<ChatOutputParser::Machine> MakeHarmonyMachine(const ChatOutputParser::Options& options) {
  return std::make_unique<HarmonyMachine>(options);
}

}  // namespace bellhop::text
