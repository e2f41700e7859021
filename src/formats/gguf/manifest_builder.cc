#include "formats/gguf/manifest_builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "formats/gguf/expert_indexer.h"
#include "formats/gguf/hparams_reader.h"
#include "formats/gguf/vocabulary_reader.h"

namespace bellhop::formats {

using manifest::Manifest;
using manifest::Metadata;
using manifest::Tensor;

namespace {

// Files that are no language models share the container.
Status CheckType(const Metadata& metadata) {
  BELLHOP_TRY_ASSIGN(const std::string_view type, metadata.GetStringOr("general.type", "model"));
  if (type == "model") return {};
  return Unsupported("key 'general.type': '{}'; give the model itself", Printable(type));
}

uint64_t FallbackVocab(const Manifest& manifest) {
  if (!manifest.vocabulary.tokens.empty()) return manifest.vocabulary.tokens.size();
  const Tensor* embedding = manifest.FindTensor("token_embd.weight");
  return embedding == nullptr ? 0 : embedding->dims[1];
}

Status CheckVocab(const Manifest& manifest) {
  const size_t tokens = manifest.vocabulary.tokens.size();
  if (tokens > manifest.hparams.vocab) {
    return Corrupt("key '{}': {}, but 'tokenizer.ggml.tokens' has {} entries", manifest.Key("vocab_size"),
                   manifest.hparams.vocab, tokens);
  }
  return {};
}

Status Fill(const GgufModel& model, Manifest* out) {
  out->metadata = model.metadata();
  BELLHOP_TRY(CheckType(out->metadata));
  BELLHOP_TRY_ASSIGN(const std::string_view architecture, out->metadata.GetString("general.architecture"));
  // It becomes part of keys and messages.
  const bool plain = std::all_of(architecture.begin(), architecture.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (architecture.empty() || !plain) {
    return Corrupt("key 'general.architecture': '{}' is not a name", Printable(architecture));
  }
  out->architecture = std::string(architecture);
  BELLHOP_TRY_ASSIGN(const std::string_view name, out->metadata.GetStringOr("general.name", ""));
  out->name = std::string(name);
  for (const GgufFile& file : model.files()) out->files.push_back({file.name, file.bytes});
  out->tensors = model.tensors();
  for (size_t i = 0; i < out->tensors.size(); ++i) {
    out->tensor_index.emplace(out->tensors[i].name, static_cast<int32_t>(i));
  }
  BELLHOP_TRY_ASSIGN(out->vocabulary, ReadVocabulary(out->metadata));
  BELLHOP_TRY_ASSIGN(out->hparams, ReadHparams(out->metadata, architecture, FallbackVocab(*out)));
  BELLHOP_TRY(CheckVocab(*out));
  BELLHOP_TRY_ASSIGN(out->expert_layers, IndexExperts(out->tensors, out->hparams, architecture));
  return {};
}

}  // namespace

Result<Manifest> BuildManifest(const GgufModel& model) {
  Manifest manifest;
  const Status status = Fill(model, &manifest);
  if (status.ok()) return manifest;
  const std::string& file = model.files().front().name;
  if (manifest.architecture.empty()) return status.WithContext(file);
  return status.WithContext(fmt::format("{}: architecture '{}'", file, manifest.architecture));
}

}  // namespace bellhop::formats
