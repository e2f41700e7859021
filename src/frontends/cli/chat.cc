#include "frontends/cli/chat.h"

#include <cstdio>
#include <optional>
#include <string>

#include "frontends/cli/generation.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLineBytes = 16 << 20;
constexpr int kPromptPollMs = 100;
constexpr const char* kHelp =
    "/reset forgets the conversation, /stats shows timings, /exit leaves; Ctrl-C ends an answer";

class Conversation {
 public:
  Conversation(const config::RunOptions& options, const LoadedModel& model, Console& console)
      : options_(options),
        console_(console),
        generator_(options, model, console),
        terminal_(engine::IsTerminal(engine::Stream::kIn)) {
    Reset();
  }

  Status Loop() {
    if (terminal_) console_.Say(kHelp);
    std::optional<std::string> first;
    if (options_.input.prompt || !options_.input.file.empty()) {
      BELLHOP_TRY_ASSIGN(first, ReadInput(options_.input));
    }
    while (!console_.reader_gone()) {
      std::optional<std::string> line = first ? std::exchange(first, std::nullopt) : ReadLine();
      if (!line || *line == "/exit") break;
      if (!Command(*line)) BELLHOP_TRY(Answer(*line));
    }
    return Status();
  }

 private:
  void Reset() {
    messages_ = Json::array();
    if (options_.system_prompt) messages_.push_back({{"role", "system"}, {"content", *options_.system_prompt}});
    kept_ = messages_.size();
  }

  // None at the end of the input and when Ctrl-C comes while waiting.
  std::optional<std::string> ReadLine() {
    if (terminal_) {
      console_.Write("\n> ");
      console_.Flush();
      // In steps: a Ctrl-C that comes just before a blocking read would not end it.
      while (!engine::WaitForInput(kPromptPollMs) && !interrupts_.interrupted()) {
      }
      if (interrupts_.interrupted()) {
        console_.Write("\n");
        return std::nullopt;
      }
    }
    std::string line;
    while (line.size() < kMaxLineBytes) {
      const int c = std::fgetc(stdin);
      if (c == EOF && interrupts_.interrupted()) {
        console_.Write("\n");
        return std::nullopt;
      }
      if (c == EOF && line.empty()) return std::nullopt;
      if (c == EOF || c == '\n') break;
      line += static_cast<char>(c);
    }
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  // True when the line was a command, or nothing.
  bool Command(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return true;
    if (line == "/reset") {
      Reset();
      generator_.engine().ResetStats();
      last_.reset();
      console_.Say("the conversation is forgotten");
    } else if (line == "/stats") {
      ShowStats();
    } else if (line == "/help") {
      console_.SayAlways(kHelp);
    } else {
      return false;
    }
    return true;
  }

  void ShowStats() {
    if (!last_) {
      console_.SayAlways("no answer yet");
      return;
    }
    for (const std::string& line : generator_.StatsLines(*last_)) console_.SayAlways(line);
  }

  // Makes room by forgetting the oldest turns, as --context-shift asks; one question always stays.
  Result<std::vector<TokenId>> TokensThatFit() {
    BELLHOP_TRY_ASSIGN(std::vector<TokenId> tokens, generator_.ChatTokens(messages_));
    const auto context = static_cast<size_t>(generator_.engine().info().context);
    while (options_.engine.context.shift && tokens.size() >= context && messages_.size() >= kept_ + 3) {
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(kept_),
                      messages_.begin() + static_cast<std::ptrdiff_t>(kept_ + 2));
      BELLHOP_TRY_ASSIGN(tokens, generator_.ChatTokens(messages_));
    }
    return tokens;
  }

  // An error ends the chat only when nobody is there to react to it.
  Status Answer(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    const Status status = Generate();
    if (status.ok()) return status;
    messages_.erase(messages_.size() - 1);
    if (!terminal_) return status;
    console_.SayAlways(fmt::format("bellhop: error: {}; /reset starts anew", status.message()));
    return Status();
  }

  Status Generate() {
    BELLHOP_TRY_ASSIGN(std::vector<TokenId> tokens, TokensThatFit());
    BELLHOP_TRY_ASSIGN(engine::GenerateResult result, generator_.Generate(std::move(tokens), interrupts_));
    if (result.reason == engine::FinishReason::kCancelled) interrupts_.Rearm();
    messages_.push_back({{"role", "assistant"}, {"content", result.text}});
    if (const std::string note = generator_.EndNote(result); !note.empty()) console_.Say("note: " + note);
    last_ = std::move(result);
    if (options_.stats) ShowStats();
    return Status();
  }

  const config::RunOptions& options_;
  Console& console_;
  Generator generator_;
  engine::Interrupts interrupts_;
  bool terminal_ = false;
  Json messages_;
  size_t kept_ = 0;  // leading messages that are never forgotten: the system message
  std::optional<engine::GenerateResult> last_;
};

}  // namespace

Status Chat(const config::RunOptions& options, const LoadedModel& model, Console& console) {
  return Conversation(options, model, console).Loop();
}

}  // namespace bellhop::cli
