// What a model file says about its tokenizer; text/ turns it into a working one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace bellhop::manifest {

// Values as stored in tokenizer.ggml.token_type.
enum class TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocabulary {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SPM); empty: the file has no tokenizer
  std::string pre;    // pre-tokenizer name, "qwen2"; empty: not stated
  std::vector<std::string> tokens;
  std::vector<float> scores;        // empty, or one per token
  std::vector<TokenType> types;     // empty (all normal), or one per token
  std::vector<std::string> merges;  // "left right", by rank

  std::optional<TokenId> bos, eos, eot, eom, unknown, separator, padding, mask;
  std::optional<TokenId> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;

  std::optional<std::string> chat_template;            // tokenizer.chat_template
  std::map<std::string, std::string> named_templates;  // tokenizer.chat_template.<name>
};

}  // namespace bellhop::manifest
