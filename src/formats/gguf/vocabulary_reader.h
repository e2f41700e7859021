// The tokenizer's keys as a Vocabulary: converted by rule, lengths and ids checked. text/ makes it work.
#pragma once

#include "base/status.h"
#include "manifest/metadata.h"
#include "manifest/vocabulary.h"

namespace bellhop::formats {

// A file without tokenizer.ggml.model gives an empty Vocabulary. Errors name the key and both numbers.
//   token types  any integer width; 0 (undefined) counts as normal, other unknown values are kCorrupt
//   scores       any number type; one per token
//   special ids  -1 (in any width) means "none"; other ids outside the vocabulary are kCorrupt
Result<manifest::Vocabulary> ReadVocabulary(const manifest::Metadata& metadata);

}  // namespace bellhop::formats
