#include "text/tokenizer.h"

#include "text/bpe_tokenizer.h"
#include "text/spm_tokenizer.h"

namespace bellhop::text {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const manifest::Vocabulary& vocabulary) {
  if (vocabulary.model == "gpt2") return BpeTokenizer::Create(vocabulary);
  if (vocabulary.model == "llama") return SpmTokenizer::Create(vocabulary);
  if (vocabulary.model.empty()) {
    return Unsupported("the file has no tokenizer (tokenizer.ggml.model); supported are \"gpt2\" and \"llama\"");
  }
  return Unsupported("tokenizer.ggml.model is \"{}\"; supported are \"gpt2\" (byte-level BPE) and \"llama\" (SPM)",
                     vocabulary.model);
}

}  // namespace bellhop::text
