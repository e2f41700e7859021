#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/table.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

// A piece as a JSON string: line feeds, quotes and bytes that are no character stay visible.
std::string Visible(const std::string& piece) {
  return Json(piece).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status PrintText(const std::vector<TokenId>& ids, const engine::TextEngine& engine, Console& console) {
  for (const TokenId id : ids) {
    if (id >= engine.info().vocab) {
      return InvalidArgument("--decode {}: the vocabulary has tokens 0 to {}", id, engine.info().vocab - 1);
    }
  }
  const std::string text = engine.Detokenize(ids, true);
  if (console.json()) {
    console.WriteJson({{"ids", ids}, {"text", text}});
  } else {
    console.Write(text);
    if (!text.ends_with('\n')) console.Write("\n");
  }
  return Status();
}

}  // namespace

Status Tokenize(const config::TokenizeOptions& options, Console& console) {
  std::string text;
  if (!options.decode) {
    BELLHOP_TRY_ASSIGN(text, ReadInput(options.input));
  }
  BELLHOP_TRY_ASSIGN(const std::string path, ResolveModelPath(options.model_path, console));
  BELLHOP_TRY_ASSIGN(const auto engine, engine::TextEngine::Create(TokenizerConfig(path), &console.log()));
  if (options.decode) {
    // Fails when the file has no tokenizer.
    BELLHOP_TRY(engine->Tokenize("", false, false).status());
    return PrintText(*options.decode, *engine, console);
  }
  BELLHOP_TRY_ASSIGN(const std::vector<TokenId> ids, engine->Tokenize(text, !options.no_bos, !options.no_special));
  if (console.json()) {
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push_back(engine->TokenText(id));
    console.WriteJson({{"model", FileName(path)}, {"count", ids.size()}, {"ids", ids}, {"pieces", std::move(pieces)}});
    return Status();
  }
  Table table({Align::kRight, Align::kLeft});
  for (const TokenId id : ids) table.Add({fmt::format("{}", id), Visible(engine->TokenText(id))});
  console.Write(table.Text());
  return Status();
}

}  // namespace bellhop::cli
