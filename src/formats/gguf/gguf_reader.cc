#include "formats/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/units.h"
#include "formats/gguf/foreign_file.h"
#include "quant/format.h"

namespace bellhop::formats {

using manifest::MetaArray;
using manifest::MetaType;
using manifest::MetaTypeBytes;
using manifest::MetaTypeName;
using manifest::MetaValue;
using manifest::Tensor;

namespace {

constexpr uint32_t kMetaTypeCount = static_cast<uint32_t>(MetaType::kF64) + 1;
// Smallest records: key = length + 1 byte + type + 1 value byte; tensor = length + 1 byte + n_dims + type + offset.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr uint64_t kMinArrayBytes = 4 + 8;
constexpr uint64_t kMinStringBytes = 8;
// Vectors start at most this large and then grow with what was read.
constexpr uint64_t kReserveItems = 4096;

class Parser {
 public:
  Parser(HostSpan<const std::byte> bytes, std::string_view name) : bytes_(bytes) {
    file_.name = std::string(name);
    file_.bytes = bytes.size();
  }

  Result<GgufFile> Run() {
    if (Status status = CheckForeignFile(bytes_, file_.name); !status.ok()) return status;
    BELLHOP_TRY(ReadHeader());
    for (uint64_t i = 0; i < key_count_; ++i) BELLHOP_TRY(ReadKey(i));
    BELLHOP_TRY(ReadAlignment());
    file_.tensors.reserve(std::min(tensor_count_, kReserveItems));
    for (uint64_t i = 0; i < tensor_count_; ++i) BELLHOP_TRY(ReadTensor(i));
    BELLHOP_TRY(PlaceTensors());
    BELLHOP_TRY(CheckOverlaps());
    return std::move(file_);
  }

 private:
  uint64_t remaining() const { return bytes_.size() - pos_; }

  template <typename... Args>
  Status Bad(uint64_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    return Corrupt("{}: {}: offset {}: {}", file_.name, where_, offset,
                   fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename... Args>
  Status Unknown(uint64_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    return Unsupported("{}: {}: offset {}: {}", file_.name, where_, offset,
                       fmt::format(format, std::forward<Args>(args)...));
  }

  Status Truncated(std::string_view what, uint64_t needed) const {
    return Bad(pos_, "the file ends inside {} ({} bytes needed, {} left); fetch the file again", what, needed,
               remaining());
  }

  template <typename T>
  Status Read(std::string_view what, T* out) {
    if (remaining() < sizeof(T)) return Truncated(what, sizeof(T));
    std::memcpy(out, bytes_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return {};
  }

  Status ReadString(std::string_view what, uint64_t max_bytes, std::string_view* out) {
    const uint64_t start = pos_;
    uint64_t length = 0;
    BELLHOP_TRY(Read(what, &length));
    if (length > remaining()) {
      return Bad(start, "{} of {} bytes in a file with {} bytes left", what, length, remaining());
    }
    if (length > max_bytes) return Bad(start, "{} of {} bytes, the limit is {}", what, length, max_bytes);
    *out = {reinterpret_cast<const char*>(bytes_.data() + pos_), static_cast<size_t>(length)};
    pos_ += length;
    return {};
  }

  Status ReadHeader();
  Status ReadKey(uint64_t index);
  Status ReadType(std::string_view what, MetaType* out);
  Status ReadValue(MetaType type, MetaValue* out);
  Status ReadArray(int depth, MetaArray* out);
  Status ReadRawItems(MetaArray* out);
  Status ReadStringItems(MetaArray* out);
  Status ReadArrayItems(int depth, MetaArray* out);
  Status CountItems(uint64_t offset, uint64_t count);
  Status ReadAlignment();
  Status ReadTensor(uint64_t index);
  Status ReadDims(Tensor* tensor);
  Status SizeTensor(uint64_t offset, Tensor* tensor) const;
  Status PlaceTensors();
  Status CheckOverlaps();

  HostSpan<const std::byte> bytes_;
  uint64_t pos_ = 0;
  std::string where_ = "header";  // what is being read, for messages
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t items_ = 0;             // strings and inner arrays so far
  uint64_t alignment_offset_ = 0;  // where general.alignment is, for messages
  std::unordered_set<std::string_view> tensor_names_;
  std::vector<uint64_t> tensor_record_offsets_;
  GgufFile file_;
};

Status Parser::ReadHeader() {
  pos_ = 4;  // the magic was checked
  BELLHOP_TRY(Read("the version", &file_.version));
  const uint32_t swapped = __builtin_bswap32(file_.version);
  if (swapped >= 1 && swapped <= 3) {
    return Unknown(4, "big-endian file (version reads as {:#010x}); use the little-endian file of this model",
                   file_.version);
  }
  if (file_.version == 1) return Unknown(4, "GGUF version 1 is obsolete; convert the model again with a current tool");
  if (file_.version < 2 || file_.version > 3) {
    return Unknown(4, "GGUF version {} is not known (2 and 3 are)", file_.version);
  }
  BELLHOP_TRY(Read("the tensor count", &tensor_count_));
  BELLHOP_TRY(Read("the key count", &key_count_));
  // Together both counts must fit what is left, so neither product below can overflow.
  if (key_count_ > remaining() / kMinKeyBytes) {
    return Bad(16, "{} keys announced in a file with {} bytes left", key_count_, remaining());
  }
  if (tensor_count_ > (remaining() - key_count_ * kMinKeyBytes) / kMinTensorBytes) {
    return Bad(8, "{} tensors announced in a file with {} bytes left", tensor_count_, remaining());
  }
  if (key_count_ > kMaxGgufKeys) return Unknown(16, "{} keys, the limit is {}", key_count_, kMaxGgufKeys);
  if (tensor_count_ > kMaxGgufTensors) return Unknown(8, "{} tensors, the limit is {}", tensor_count_, kMaxGgufTensors);
  return {};
}

Status Parser::ReadKey(uint64_t index) {
  where_ = fmt::format("key number {}", index);
  const uint64_t start = pos_;
  std::string_view key;
  BELLHOP_TRY(ReadString("a key", kMaxGgufKeyBytes, &key));
  if (key.empty()) return Bad(start, "the key is empty");
  where_ = fmt::format("key '{}'", Printable(key));
  if (file_.metadata.Has(key)) return Bad(start, "this key is already there");
  MetaType type;
  BELLHOP_TRY(ReadType("value type", &type));
  if (key == "general.alignment") alignment_offset_ = start;
  MetaValue value;
  BELLHOP_TRY(ReadValue(type, &value));
  return file_.metadata.Add(std::string(key), std::move(value));
}

Status Parser::ReadType(std::string_view what, MetaType* out) {
  const uint64_t start = pos_;
  uint32_t id = 0;
  BELLHOP_TRY(Read(what, &id));
  if (id >= kMetaTypeCount) return Bad(start, "unknown {} {}", what, id);
  *out = static_cast<MetaType>(id);
  return {};
}

Status Parser::ReadValue(MetaType type, MetaValue* out) {
  out->type = type;
  if (type == MetaType::kString) {
    std::string_view text;
    BELLHOP_TRY(ReadString("a string", bytes_.size(), &text));
    out->value = text;
    return {};
  }
  if (type == MetaType::kArray) {
    auto array = std::make_shared<MetaArray>();
    BELLHOP_TRY(ReadArray(1, array.get()));
    out->value = std::move(array);
    return {};
  }
  // A scalar is an array of one, without the array's header.
  MetaArray one;
  one.element_type = type;
  one.count = 1;
  BELLHOP_TRY(ReadRawItems(&one));
  *out = one.At(0);
  return {};
}

Status Parser::ReadArray(int depth, MetaArray* out) {
  if (depth > kMaxGgufArrayDepth) {
    return Bad(pos_, "arrays nested deeper than {} levels", kMaxGgufArrayDepth);
  }
  BELLHOP_TRY(ReadType("array element type", &out->element_type));
  BELLHOP_TRY(Read("an array count", &out->count));
  switch (out->element_type) {
    case MetaType::kString: return ReadStringItems(out);
    case MetaType::kArray: return ReadArrayItems(depth, out);
    default: return ReadRawItems(out);
  }
}

Status Parser::ReadRawItems(MetaArray* out) {
  const uint64_t width = MetaTypeBytes(out->element_type);
  if (out->count > remaining() / width) {
    return Bad(pos_, "{} values of type {} in a file with {} bytes left; fetch the file again", out->count,
               MetaTypeName(out->element_type), remaining());
  }
  out->raw = bytes_.subspan(pos_, out->count * width);
  if (out->element_type == MetaType::kBool) {
    for (uint64_t i = 0; i < out->count; ++i) {
      const auto byte = std::to_integer<unsigned>(out->raw[i]);
      if (byte > 1) return Bad(pos_ + i, "bool byte {}, only 0 and 1 are valid", byte);
    }
  }
  pos_ += out->raw.size();
  return {};
}

Status Parser::CountItems(uint64_t offset, uint64_t count) {
  if (count > kMaxGgufArrayItems - items_) {
    return Unknown(offset, "more than {} strings and inner arrays in one file", kMaxGgufArrayItems);
  }
  items_ += count;
  return {};
}

Status Parser::ReadStringItems(MetaArray* out) {
  if (out->count > remaining() / kMinStringBytes) {
    return Bad(pos_, "{} strings in a file with {} bytes left", out->count, remaining());
  }
  BELLHOP_TRY(CountItems(pos_, out->count));
  out->strings.reserve(std::min(out->count, kReserveItems));
  for (uint64_t i = 0; i < out->count; ++i) {
    std::string_view text;
    BELLHOP_TRY(ReadString("an array string", bytes_.size(), &text));
    out->strings.push_back(text);
  }
  return {};
}

Status Parser::ReadArrayItems(int depth, MetaArray* out) {
  if (out->count > remaining() / kMinArrayBytes) {
    return Bad(pos_, "{} inner arrays in a file with {} bytes left", out->count, remaining());
  }
  BELLHOP_TRY(CountItems(pos_, out->count));
  for (uint64_t i = 0; i < out->count; ++i) {
    BELLHOP_TRY(ReadArray(depth + 1, &out->arrays.emplace_back()));
  }
  return {};
}

Status Parser::ReadAlignment() {
  const MetaValue* value = file_.metadata.Find("general.alignment");
  if (!value) return {};
  where_ = "key 'general.alignment'";
  if (value->type != MetaType::kU32) {
    return Bad(alignment_offset_, "stored as {}, must be u32", MetaTypeName(value->type));
  }
  const uint64_t alignment = std::get<uint64_t>(value->value);
  if (!std::has_single_bit(alignment)) {
    return Bad(alignment_offset_, "alignment {} is not a power of two", alignment);
  }
  file_.alignment = static_cast<uint32_t>(alignment);
  return {};
}

Status Parser::ReadTensor(uint64_t index) {
  where_ = fmt::format("tensor number {}", index);
  const uint64_t start = pos_;
  std::string_view name;
  BELLHOP_TRY(ReadString("a tensor name", kMaxGgufTensorNameBytes, &name));
  if (name.empty()) return Bad(start, "the tensor name is empty");
  where_ = fmt::format("tensor '{}'", Printable(name));
  if (!tensor_names_.insert(name).second) return Bad(start, "a tensor of this name is already there");
  Tensor tensor;
  tensor.name = std::string(name);
  BELLHOP_TRY(ReadDims(&tensor));
  const uint64_t type_offset = pos_;
  uint32_t type_id = 0;
  BELLHOP_TRY(Read("the tensor type", &type_id));
  const std::optional<quant::WeightFormat> format = quant::FormatFromGgufId(type_id);
  if (!format) return Unknown(type_offset, "tensor type id {} is unknown or withdrawn", type_id);
  tensor.format = *format;
  BELLHOP_TRY(SizeTensor(type_offset, &tensor));
  const uint64_t offset_offset = pos_;
  BELLHOP_TRY(Read("the data offset", &tensor.offset));
  if (tensor.offset % file_.alignment != 0) {
    return Bad(offset_offset, "data offset {} is not a multiple of the alignment {}", tensor.offset, file_.alignment);
  }
  tensor_record_offsets_.push_back(start);
  file_.tensors.push_back(std::move(tensor));
  return {};
}

Status Parser::ReadDims(Tensor* tensor) {
  const uint64_t start = pos_;
  uint32_t n_dims = 0;
  BELLHOP_TRY(Read("the number of dimensions", &n_dims));
  if (n_dims > tensor->dims.size()) {
    return Bad(start, "{} dimensions, at most {} are possible", n_dims, tensor->dims.size());
  }
  tensor->n_dims = static_cast<int>(n_dims);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    BELLHOP_TRY(Read("the dimensions", &tensor->dims[i]));
    if (tensor->dims[i] == 0) return Bad(pos_ - 8, "dimension {} is 0", i);
    if (!CheckedMul(elements, tensor->dims[i], &elements)) {
      return Bad(start, "the number of elements overflows 64 bits, shape {}", tensor->ShapeString());
    }
  }
  return {};
}

Status Parser::SizeTensor(uint64_t offset, Tensor* tensor) const {
  const Result<uint64_t> row = quant::RowBytes(tensor->format, tensor->dims[0]);
  if (!row.ok()) return Bad(offset, "shape {}: {}", tensor->ShapeString(), row.status().message());
  if (!CheckedMul(*row, tensor->rows(), &tensor->bytes)) {
    return Bad(offset, "the size overflows 64 bits, shape {}", tensor->ShapeString());
  }
  if (tensor->bytes > bytes_.size()) {
    return Bad(offset, "shape {} needs {} bytes, the whole file has {}; fetch the file again", tensor->ShapeString(),
               tensor->bytes, bytes_.size());
  }
  return {};
}

// Turns the offsets within the data section into checked absolute ones.
Status Parser::PlaceTensors() {
  file_.data_offset = file_.data_end = pos_;
  if (file_.tensors.empty()) return {};
  // pos_ is at most the size of something in memory and the alignment at most 2^31: no overflow.
  file_.data_offset = file_.data_end = RoundUp(pos_, file_.alignment);
  for (size_t i = 0; i < file_.tensors.size(); ++i) {
    Tensor& tensor = file_.tensors[i];
    where_ = fmt::format("tensor '{}'", Printable(tensor.name));
    uint64_t begin = 0, end = 0;
    if (!CheckedAdd(file_.data_offset, tensor.offset, &begin) || !CheckedAdd(begin, tensor.bytes, &end)) {
      return Bad(tensor_record_offsets_[i], "data offset {} overflows", tensor.offset);
    }
    if (end > bytes_.size()) {
      return Bad(begin, "its {} bytes end at {}, the file at {}; the file is incomplete or damaged, fetch it again",
                 tensor.bytes, end, bytes_.size());
    }
    tensor.offset = begin;
    tensor.data = bytes_.subspan(begin, tensor.bytes);
    file_.data_end = std::max(file_.data_end, end);
  }
  return {};
}

Status Parser::CheckOverlaps() {
  std::vector<size_t> order(file_.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return file_.tensors[a].offset < file_.tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Tensor& before = file_.tensors[order[i - 1]];
    const Tensor& tensor = file_.tensors[order[i]];
    if (before.offset + before.bytes > tensor.offset) {
      where_ = fmt::format("tensor '{}'", Printable(tensor.name));
      return Bad(tensor.offset, "its data overlap those of tensor '{}' ({} bytes at {})", Printable(before.name),
                 before.bytes, before.offset);
    }
  }
  return {};
}

}  // namespace

Result<GgufFile> ParseGguf(HostSpan<const std::byte> bytes, std::string_view name) { return Parser(bytes, name).Run(); }

std::string Printable(std::string_view text) {
  constexpr size_t kMaxShown = 100;
  std::string out;
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > kMaxShown) out += fmt::format("...({} bytes)", text.size());
  return out;
}

}  // namespace bellhop::formats
