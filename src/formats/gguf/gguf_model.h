// A model as one or several mapped GGUF files: opens them, joins the parts of a split model, and owns the mappings.
// Works at container level: nothing here needs a known architecture (manifest_builder.h does the rest).
//
// Metadata decides whether a file is a part (split.count > 1), never its name; only the names of the *other* parts are
// derived from it ("<prefix>-00001-of-00003.gguf"). Any part may be given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "formats/gguf/gguf_reader.h"
#include "manifest/manifest.h"
#include "sys/mapped_file.h"

namespace bellhop::formats {

class GgufModel {
 public:
  // Errors name the file. Missing parts are kNotFound, listed by name; parts that do not belong together kCorrupt.
  static Result<GgufModel> Open(const std::string& path);
  // A single file that is already in memory; `bytes` must outlive the model. Parts of split models are kUnsupported.
  static Result<GgufModel> FromMemory(HostSpan<const std::byte> bytes, std::string_view name);

  // In part order; their tensors have moved to tensors().
  const std::vector<GgufFile>& files() const { return files_; }
  // Of the first part, which carries the model's keys.
  const manifest::Metadata& metadata() const { return files_.front().metadata; }
  // All parts, in part and file order; Tensor::file is an index into files(). Data point into the mappings, which stay
  // where they are when the model is moved.
  const std::vector<manifest::Tensor>& tensors() const { return tensors_; }
  // general.architecture; empty when the file does not say or says it in another type.
  std::string_view architecture() const;
  uint64_t total_bytes() const;

  // Asks the kernel to read a tensor's bytes ahead. Advice only.
  void WillNeed(const manifest::Tensor& tensor) const;

 private:
  GgufModel() = default;
  // Checks that files_ belong together and moves their tensors into tensors_.
  Status Join();

  std::vector<sys::MappedFile> mappings_;  // parallel to files_, empty for a model in memory
  std::vector<GgufFile> files_;
  std::vector<manifest::Tensor> tensors_;
};

}  // namespace bellhop::formats
