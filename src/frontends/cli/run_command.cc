#include "frontends/cli/chat.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/generation.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

bool WantsChat(const config::RunOptions& options) {
  if (options.conversation) return true;
  return !options.input.prompt && options.input.file.empty() && !options.output.json && !options.raw &&
         engine::IsTerminal(engine::Stream::kIn);
}

// A file and standard input end in a line feed that is no part of the prompt.
Result<std::string> ReadPrompt(const config::TextInput& input) {
  BELLHOP_TRY_ASSIGN(std::string text, ReadInput(input));
  if (!input.prompt && text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::vector<TokenId>> PromptTokens(const config::RunOptions& options, const std::string& text,
                                          const Generator& generator) {
  const engine::TextEngine& engine = generator.engine();
  if (options.raw || !engine.has_chat_template()) {
    if (options.system_prompt) {
      return InvalidArgument("--system-prompt: the model has no chat template; put it into the prompt");
    }
    return engine.Tokenize(text, true, true);
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (options.system_prompt) messages.push_back({{"role", "system"}, {"content", *options.system_prompt}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return generator.ChatTokens(messages);
}

Status RunOnce(const config::RunOptions& options, const std::string& text, const LoadedModel& model, Console& console) {
  Generator generator(options, model, console);
  BELLHOP_TRY_ASSIGN(const std::vector<TokenId> prompt, PromptTokens(options, text, generator));
  const engine::Interrupts interrupts;
  BELLHOP_TRY_ASSIGN(const engine::GenerateResult result, generator.Generate(prompt, interrupts));
  if (options.output.json) console.WriteJson(generator.ToJson(prompt, result));
  if (console.reader_gone()) return Status();
  if (const std::string note = generator.EndNote(result); !note.empty()) console.Say("note: " + note);
  if (options.stats) {
    for (const std::string& line : generator.StatsLines(result)) console.SayAlways(line);
  }
  return Status();
}

}  // namespace

Status Run(const config::RunOptions& options, Console& console) {
  const bool chat = WantsChat(options);
  std::string text;
  if (!chat) {
    BELLHOP_TRY_ASSIGN(text, ReadPrompt(options.input));
  }
  BELLHOP_TRY_ASSIGN(const LoadedModel model, LoadModel(options.engine, console));
  if (!chat) return RunOnce(options, text, model, console);
  if (!model.engine->has_chat_template()) {
    return InvalidArgument("{}: the model has no chat template, so it cannot chat; give a prompt with -p or -f",
                           options.engine.model_path);
  }
  return Chat(options, model, console);
}

}  // namespace bellhop::cli
