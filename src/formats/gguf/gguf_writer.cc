#include "formats/gguf/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/units.h"
#include "formats/gguf/output_file.h"

namespace bellhop::formats {

using manifest::MetaArray;
using manifest::Metadata;
using manifest::MetaType;
using manifest::MetaTypeBytes;
using manifest::MetaTypeName;
using manifest::MetaValue;

namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxAlignment = 1u << 20;

template <typename T>
void Put(std::string* out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out->append(raw, sizeof(T));
}

void PutString(std::string* out, std::string_view text) {
  Put(out, uint64_t{text.size()});
  out->append(text);
}

void PutArray(std::string* out, const MetaArray& array) {
  Put(out, static_cast<uint32_t>(array.element_type));
  Put(out, array.count);
  out->append(reinterpret_cast<const char*>(array.raw.data()), array.raw.size());
  for (const std::string_view text : array.strings) PutString(out, text);
  for (const MetaArray& inner : array.arrays) PutArray(out, inner);
}

// The low bytes of a little-endian integer are the integer in a narrower type.
void PutInteger(std::string* out, uint64_t bits, MetaType type) {
  char raw[sizeof(bits)];
  std::memcpy(raw, &bits, sizeof(bits));
  out->append(raw, MetaTypeBytes(type));
}

void PutFloat(std::string* out, double value, MetaType type) {
  if (type == MetaType::kF32) {
    Put(out, static_cast<float>(value));
  } else {
    Put(out, value);
  }
}

bool IsUnsigned(MetaType type) {
  return type == MetaType::kU8 || type == MetaType::kU16 || type == MetaType::kU32 || type == MetaType::kU64;
}

bool IsSigned(MetaType type) {
  return type == MetaType::kI8 || type == MetaType::kI16 || type == MetaType::kI32 || type == MetaType::kI64;
}

}  // namespace

Status GgufWriter::AddEncoded(std::string_view key, MetaType type, std::string_view payload) {
  if (key.empty() || key.size() > kMaxGgufKeyBytes) {
    return InvalidArgument("a key of {} bytes; 1 to {} are possible", key.size(), kMaxGgufKeyBytes);
  }
  if (key == kAlignmentKey) return InvalidArgument("key '{}': set by the writer itself", key);
  if (!keys_.emplace(key).second) return InvalidArgument("key '{}' is already there", Printable(key));
  PutString(&encoded_keys_, key);
  Put(&encoded_keys_, static_cast<uint32_t>(type));
  encoded_keys_.append(payload);
  ++key_count_;
  return {};
}

Status GgufWriter::AddUint(std::string_view key, uint64_t value, MetaType type) {
  if (!IsUnsigned(type)) return InvalidArgument("key '{}': {} is not an unsigned type", key, MetaTypeName(type));
  const size_t bits = 8 * MetaTypeBytes(type);
  if (bits < 64 && (value >> bits) != 0) {
    return InvalidArgument("key '{}': {} does not fit {}", key, value, MetaTypeName(type));
  }
  std::string payload;
  PutInteger(&payload, value, type);
  return AddEncoded(key, type, payload);
}

Status GgufWriter::AddInt(std::string_view key, int64_t value, MetaType type) {
  if (!IsSigned(type)) return InvalidArgument("key '{}': {} is not a signed type", key, MetaTypeName(type));
  const size_t bits = 8 * MetaTypeBytes(type);
  const int64_t limit = std::numeric_limits<int64_t>::max() >> (64 - bits);
  if (value > limit || value < -limit - 1) {
    return InvalidArgument("key '{}': {} does not fit {}", key, value, MetaTypeName(type));
  }
  std::string payload;
  PutInteger(&payload, static_cast<uint64_t>(value), type);
  return AddEncoded(key, type, payload);
}

Status GgufWriter::AddFloat(std::string_view key, double value, MetaType type) {
  if (type != MetaType::kF32 && type != MetaType::kF64) {
    return InvalidArgument("key '{}': {} is not a floating-point type", key, MetaTypeName(type));
  }
  if (type == MetaType::kF32 && std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) {
    return InvalidArgument("key '{}': {} does not fit f32", key, value);
  }
  std::string payload;
  PutFloat(&payload, value, type);
  return AddEncoded(key, type, payload);
}

Status GgufWriter::AddBool(std::string_view key, bool value) {
  return AddEncoded(key, MetaType::kBool, std::string(1, value ? '\1' : '\0'));
}

Status GgufWriter::AddString(std::string_view key, std::string_view value) {
  std::string payload;
  PutString(&payload, value);
  return AddEncoded(key, MetaType::kString, payload);
}

Status GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  MetaArray array;
  array.element_type = MetaType::kString;
  array.count = values.size();
  array.strings.assign(values.begin(), values.end());
  std::string payload;
  PutArray(&payload, array);
  return AddEncoded(key, MetaType::kArray, payload);
}

Status GgufWriter::AddInts(std::string_view key, const std::vector<int32_t>& values) {
  MetaArray array;
  array.element_type = MetaType::kI32;
  array.count = values.size();
  array.raw = {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(int32_t)};
  std::string payload;
  PutArray(&payload, array);
  return AddEncoded(key, MetaType::kArray, payload);
}

Status GgufWriter::AddFloats(std::string_view key, const std::vector<float>& values) {
  MetaArray array;
  array.element_type = MetaType::kF32;
  array.count = values.size();
  array.raw = {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
  std::string payload;
  PutArray(&payload, array);
  return AddEncoded(key, MetaType::kArray, payload);
}

Status GgufWriter::AddValue(std::string_view key, const MetaValue& value) {
  if (value.is_array()) {
    std::string payload;
    PutArray(&payload, value.array());
    return AddEncoded(key, MetaType::kArray, payload);
  }
  if (const auto* u = std::get_if<uint64_t>(&value.value)) return AddUint(key, *u, value.type);
  if (const auto* i = std::get_if<int64_t>(&value.value)) return AddInt(key, *i, value.type);
  if (const auto* d = std::get_if<double>(&value.value)) return AddFloat(key, *d, value.type);
  if (const auto* b = std::get_if<bool>(&value.value)) return AddBool(key, *b);
  return AddString(key, std::get<std::string_view>(value.value));
}

Status GgufWriter::AddAll(const Metadata& metadata) {
  constexpr std::string_view kSplit = "split.";
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (entry.key == kAlignmentKey || entry.key.compare(0, kSplit.size(), kSplit) == 0) continue;
    BELLHOP_TRY(AddValue(entry.key, entry.value));
  }
  return {};
}

Status GgufWriter::CheckTensor(const std::string& name, quant::WeightFormat format, const std::vector<uint64_t>& dims,
                               uint64_t* bytes) const {
  if (name.empty() || name.size() > kMaxGgufTensorNameBytes) {
    return InvalidArgument("tensor '{}': a name of {} bytes; 1 to {} are possible", Printable(name), name.size(),
                           kMaxGgufTensorNameBytes);
  }
  if (dims.size() > 4) return InvalidArgument("tensor '{}': {} dimensions, at most 4", name, dims.size());
  const Result<uint64_t> row = quant::RowBytes(format, dims.empty() ? 1 : dims[0]);
  if (!row.ok()) return row.status().WithContext(fmt::format("tensor '{}'", name));
  *bytes = *row;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return InvalidArgument("tensor '{}': dimension {} is 0", name, i);
    if (i > 0 && !CheckedMul(*bytes, dims[i], bytes)) {
      return InvalidArgument("tensor '{}': the size overflows 64 bits", name);
    }
  }
  constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;
  if (*bytes > kMaxFileBytes - data_bytes_) return InvalidArgument("tensor '{}': the file would be too large", name);
  return {};
}

Status GgufWriter::AddTensor(std::string name, quant::WeightFormat format, const std::vector<uint64_t>& dims,
                             Source source) {
  Tensor tensor;
  BELLHOP_TRY(CheckTensor(name, format, dims, &tensor.bytes));
  if (!tensor_names_.insert(name).second) return InvalidArgument("tensor '{}' is already there", Printable(name));
  tensor.name = std::move(name);
  tensor.format = format;
  tensor.dims = dims;
  tensor.offset = RoundUp(data_bytes_, std::max(alignment_, 1u));
  tensor.source = std::move(source);
  data_bytes_ = tensor.offset + tensor.bytes;
  tensors_.push_back(std::move(tensor));
  return {};
}

Status GgufWriter::AddTensor(std::string name, quant::WeightFormat format, const std::vector<uint64_t>& dims,
                             HostSpan<const std::byte> data) {
  uint64_t bytes = 0;
  BELLHOP_TRY(CheckTensor(name, format, dims, &bytes));
  if (bytes != data.size()) {
    return InvalidArgument("tensor '{}': {} bytes given, its shape needs {}", name, data.size(), bytes);
  }
  return AddTensor(std::move(name), format, dims, [data](const Emit& emit) { return emit(data); });
}

std::string GgufWriter::Header() const {
  const bool own_alignment = alignment_ != kDefaultGgufAlignment;
  std::string out = "GGUF";
  Put(&out, kVersion);
  Put(&out, uint64_t{tensors_.size()});
  Put(&out, key_count_ + (own_alignment ? 1 : 0));
  if (own_alignment) {
    PutString(&out, kAlignmentKey);
    Put(&out, static_cast<uint32_t>(MetaType::kU32));
    Put(&out, alignment_);
  }
  out += encoded_keys_;
  for (const Tensor& tensor : tensors_) {
    PutString(&out, tensor.name);
    Put(&out, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) Put(&out, dim);
    Put(&out, quant::Traits(tensor.format).gguf_id);
    Put(&out, tensor.offset);
  }
  if (!tensors_.empty()) out.resize(RoundUp(out.size(), alignment_), '\0');
  return out;
}

uint64_t GgufWriter::FileBytes() const { return Header().size() + RoundUp(data_bytes_, std::max(alignment_, 1u)); }

Status GgufWriter::WriteTo(const Emit& emit, const Progress& progress) const {
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    return InvalidArgument("key '{}': {} is not a power of two up to {}", kAlignmentKey, alignment_, kMaxAlignment);
  }
  const std::string header = Header();
  const uint64_t total = header.size() + RoundUp(data_bytes_, alignment_);
  uint64_t done = 0;
  const auto write = [&](HostSpan<const std::byte> piece) -> Status {
    BELLHOP_TRY(emit(piece));
    done += piece.size();
    if (progress) progress(done, total);
    return {};
  };
  BELLHOP_TRY(write({reinterpret_cast<const std::byte*>(header.data()), header.size()}));
  const std::vector<std::byte> padding(alignment_);
  for (const Tensor& tensor : tensors_) {
    uint64_t written = 0;
    const Status status = tensor.source([&](HostSpan<const std::byte> piece) -> Status {
      if (piece.size() > tensor.bytes - written) {
        return Internal("the source gave more than the {} bytes of the tensor", tensor.bytes);
      }
      written += piece.size();
      return write(piece);
    });
    if (!status.ok()) return status.WithContext(fmt::format("tensor '{}'", tensor.name));
    if (written != tensor.bytes) {
      return Internal("tensor '{}': the source gave {} bytes of {}", tensor.name, written, tensor.bytes);
    }
    BELLHOP_TRY(write({padding.data(), static_cast<size_t>(RoundUp(tensor.bytes, alignment_) - tensor.bytes)}));
  }
  return {};
}

Status GgufWriter::Write(const std::string& path, const Progress& progress) const {
  BELLHOP_TRY_ASSIGN(OutputFile file, OutputFile::Create(path));
  const Status status = WriteTo([&](HostSpan<const std::byte> piece) { return file.Write(piece); }, progress);
  if (!status.ok()) return status.message().starts_with(path) ? status : status.WithContext(path);
  return file.Commit();
}

Result<std::vector<std::byte>> GgufWriter::ToBytes() const {
  std::vector<std::byte> out;
  BELLHOP_TRY(WriteTo(
      [&](HostSpan<const std::byte> piece) {
        out.insert(out.end(), piece.begin(), piece.end());
        return Status();
      },
      nullptr));
  return out;
}

}  // namespace bellhop::formats
