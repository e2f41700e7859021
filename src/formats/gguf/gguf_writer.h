// Writes GGUF version 3. Keys and tensor shapes are collected first; tensor bytes are pulled from their sources in
// order while the file is written, so a model larger than memory passes through in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "formats/gguf/gguf_reader.h"
#include "manifest/metadata.h"
#include "quant/format.h"

namespace bellhop::formats {

class GgufWriter {
 public:
  // Takes the next bytes of a tensor, in pieces of any size.
  using Emit = std::function<Status(HostSpan<const std::byte> piece)>;
  // Emits exactly the tensor's bytes. A failed status ends the writing and is returned.
  using Source = std::function<Status(const Emit& emit)>;
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // A power of two up to 2^20; anything else is refused by Write. Values other than 32 write general.alignment.
  explicit GgufWriter(uint32_t alignment = kDefaultGgufAlignment) : alignment_(alignment) {}

  // Keys in the order of the calls; values are copied. kInvalidArgument for a key that is empty, too long, already
  // there or general.alignment (see the constructor), and for a value that does not fit `type`.
  Status AddUint(std::string_view key, uint64_t value, manifest::MetaType type = manifest::MetaType::kU32);
  Status AddInt(std::string_view key, int64_t value, manifest::MetaType type = manifest::MetaType::kI32);
  Status AddFloat(std::string_view key, double value, manifest::MetaType type = manifest::MetaType::kF32);
  Status AddBool(std::string_view key, bool value);
  Status AddString(std::string_view key, std::string_view value);
  Status AddStrings(std::string_view key, const std::vector<std::string>& values);
  Status AddInts(std::string_view key, const std::vector<int32_t>& values);
  Status AddFloats(std::string_view key, const std::vector<float>& values);
  // Any value, nested arrays included.
  Status AddValue(std::string_view key, const manifest::MetaValue& value);
  // All keys of another file except those that describe that file: general.alignment and split.*.
  Status AddAll(const manifest::Metadata& metadata);

  // `dims` in GGUF order, contiguous first. kInvalidArgument names the tensor.
  Status AddTensor(std::string name, quant::WeightFormat format, const std::vector<uint64_t>& dims, Source source);
  // `data` must stay valid until the file is written.
  Status AddTensor(std::string name, quant::WeightFormat format, const std::vector<uint64_t>& dims,
                   HostSpan<const std::byte> data);

  uint64_t FileBytes() const;
  // The file appears under `path` only when it is complete; until then there is `path`.partialN beside it. Errors (full
  // disk, missing folder, a source's own) name the file and leave neither.
  Status Write(const std::string& path, const Progress& progress = nullptr) const;
  // The whole file in memory, for small ones.
  Result<std::vector<std::byte>> ToBytes() const;

 private:
  struct Tensor {
    std::string name;
    quant::WeightFormat format;
    std::vector<uint64_t> dims;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the data section
    Source source;
  };

  Status AddEncoded(std::string_view key, manifest::MetaType type, std::string_view payload);
  Status CheckTensor(const std::string& name, quant::WeightFormat format, const std::vector<uint64_t>& dims,
                     uint64_t* bytes) const;
  std::string Header() const;
  Status WriteTo(const Emit& emit, const Progress& progress) const;

  uint32_t alignment_;
  uint64_t key_count_ = 0;
  std::string encoded_keys_;
  std::unordered_set<std::string> keys_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> tensor_names_;
  uint64_t data_bytes_ = 0;
};

}  // namespace bellhop::formats
