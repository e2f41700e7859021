// Text that commands work on: a prompt, or a corpus of documents.
#pragma once

#include <string>
#include <vector>

#include "config/options.h"
#include "engine/text_engine.h"

namespace bellhop::cli {

// The prompt, the file, or standard input. kInvalidArgument when there is neither and standard input is a terminal.
Result<std::string> ReadInput(const config::TextInput& input);

// The tokens of one source, in whole windows unless it is shorter than one window and the only one.
struct CorpusSource {
  std::string name;  // empty: the file does not say
  std::vector<TokenId> ids;
  int64_t documents = 0;
  int64_t tokens = 0;  // before the remainder was dropped
};

// Reads and tokenizes `options.file`. A .jsonl file has one document per line: "text" (or "t"), or chat "messages"
// (or "m") for the model's template, and optionally "source" (or "s"). Documents of a source are joined in file order,
// each followed by the separator. Sources are in alphabetical order; those shorter than a window come without tokens.
Result<std::vector<CorpusSource>> ReadCorpus(const config::CorpusOptions& options, const engine::TextEngine& engine);

}  // namespace bellhop::cli
