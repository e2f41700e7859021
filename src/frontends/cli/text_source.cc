#include "frontends/cli/text_source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "engine/process.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxCorpusBytes = uint64_t{4} << 30;

// Texts of end-of-text tokens, the first that is a token of the model is taken.
constexpr std::string_view kSeparators[] = {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>", "<eos>"};

Result<TokenId> SeparatorToken(const std::string& text, const engine::TextEngine& engine) {
  const auto token_of = [&](std::string_view candidate) -> std::optional<TokenId> {
    const auto ids = engine.Tokenize(candidate, false, true);
    return ids.ok() && ids->size() == 1 ? std::optional((*ids)[0]) : std::nullopt;
  };
  if (!text.empty()) {
    if (const auto id = token_of(text)) return *id;
    return InvalidArgument("--separator '{}': is not one token of this model", text);
  }
  for (const std::string_view candidate : kSeparators) {
    if (const auto id = token_of(candidate)) return *id;
  }
  return InvalidArgument("the model has none of the usual end-of-text tokens; name one with --separator");
}

const Json* Field(const Json& document, const char* name, const char* short_name) {
  const auto found = document.contains(name) ? document.find(name) : document.find(short_name);
  return found == document.end() ? nullptr : &*found;
}

Result<std::string> DocumentText(const Json& document, const engine::TextEngine& engine) {
  if (const Json* text = Field(document, "text", "t")) {
    if (!text->is_string()) return InvalidArgument("\"text\" is not a string");
    return text->get<std::string>();
  }
  const Json* messages = Field(document, "messages", "m");
  if (messages == nullptr || !messages->is_array()) return InvalidArgument("has neither \"text\" nor \"messages\"");
  Json turns = Json::array();
  for (const Json& turn : *messages) {
    if (turn.is_array() && turn.size() == 2) {
      turns.push_back({{"role", turn[0]}, {"content", turn[1]}});
    } else {
      turns.push_back(turn);
    }
  }
  return engine.RenderChat(turns, false, Json::object());
}

Result<std::vector<CorpusSource>> ReadDocuments(const std::string& file, std::string_view content, TokenId separator,
                                                const engine::TextEngine& engine) {
  std::map<std::string, CorpusSource> sources;
  int64_t line_number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = content.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json document = Json::parse(line, nullptr, false);
    if (!document.is_object()) return InvalidArgument("{}:{}: not a JSON object", file, line_number);
    auto text = DocumentText(document, engine);
    if (!text.ok()) return text.status().WithContext(fmt::format("{}:{}", file, line_number));
    const Json* name = Field(document, "source", "s");
    if (name != nullptr && !name->is_string()) {
      return InvalidArgument("{}:{}: \"source\" is not a string", file, line_number);
    }
    CorpusSource& source = sources[name == nullptr ? "" : name->get<std::string>()];
    BELLHOP_TRY_ASSIGN(const std::vector<TokenId> ids, engine.Tokenize(*text, false, true));
    source.ids.insert(source.ids.end(), ids.begin(), ids.end());
    source.ids.push_back(separator);
    ++source.documents;
  }
  std::vector<CorpusSource> list;
  for (auto& [name, source] : sources) {
    source.name = name;
    list.push_back(std::move(source));
  }
  return list;
}

}  // namespace

Result<std::string> ReadInput(const config::TextInput& input) {
  if (input.prompt) return *input.prompt;
  if (!input.file.empty()) return engine::ReadText(input.file, kMaxPromptBytes);
  if (engine::IsTerminal(engine::Stream::kIn)) {
    return InvalidArgument("no text: give it with -p, from a file with -f, or on standard input");
  }
  return engine::ReadText("-", kMaxPromptBytes);
}

Result<std::vector<CorpusSource>> ReadCorpus(const config::CorpusOptions& options, const engine::TextEngine& engine) {
  BELLHOP_TRY_ASSIGN(const std::string content, engine::ReadText(options.file, kMaxCorpusBytes));
  std::vector<CorpusSource> sources;
  if (options.file.ends_with(".jsonl")) {
    BELLHOP_TRY_ASSIGN(const TokenId separator, SeparatorToken(options.separator, engine));
    BELLHOP_TRY_ASSIGN(sources, ReadDocuments(options.file, content, separator, engine));
  } else {
    if (!options.separator.empty()) return InvalidArgument("--separator: only .jsonl files have documents to separate");
    CorpusSource source;
    BELLHOP_TRY_ASSIGN(source.ids, engine.Tokenize(content, true, true));
    source.documents = 1;
    sources.push_back(std::move(source));
  }
  const auto window = static_cast<size_t>(options.window);
  size_t kept = 0;
  for (CorpusSource& source : sources) {
    source.tokens = static_cast<int64_t>(source.ids.size());
    if (sources.size() > 1 || source.ids.size() >= window) source.ids.resize(source.ids.size() / window * window);
    kept += source.ids.size();
  }
  if (kept < 2) {
    return InvalidArgument("{}: no source has a window of {} tokens; lower --window or give more text", options.file,
                           options.window);
  }
  return sources;
}

}  // namespace bellhop::cli
