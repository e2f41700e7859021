#include "formats/gguf/gguf_model.h"

#include <unordered_map>
#include <utility>

#include "formats/gguf/split_files.h"

namespace bellhop::formats {

using manifest::Tensor;

namespace {

struct Part {
  sys::MappedFile mapping;
  GgufFile file;
};

Result<Part> OpenPart(const std::string& path) {
  Part part;
  BELLHOP_TRY_ASSIGN(part.mapping, sys::MappedFile::Open(path));
  BELLHOP_TRY_ASSIGN(part.file, ParseGguf(part.mapping.bytes(), path));
  return part;
}

// The prefix that all part names share, from the name of the part at hand.
Result<std::string> PartPrefix(const std::string& path, const SplitInfo& info) {
  const std::optional<PartName> name = ParsePartName(path);
  if (name && name->number == info.number + 1 && name->count == info.count) return name->prefix;
  return InvalidArgument(
      "{}: this is part {} of {} (by its metadata), and its name does not end in '{}', so the other parts cannot be "
      "found; rename it and put all parts in one folder",
      path, info.number + 1, info.count, MakePartName("", info.number + 1, info.count));
}

// All other parts of the model that `given` is a part of, in part order with `given` among them.
Result<std::vector<Part>> OpenSiblings(Part given, const SplitInfo& info) {
  const std::string given_path = given.mapping.path();
  BELLHOP_TRY_ASSIGN(const std::string prefix, PartPrefix(given_path, info));
  std::vector<Part> parts;
  std::string missing;
  uint32_t missing_count = 0;
  constexpr uint32_t kMaxListed = 20;
  for (uint32_t i = 0; i < info.count; ++i) {
    if (i == info.number) {
      parts.push_back(std::move(given));
      continue;
    }
    const std::string path = MakePartName(prefix, i + 1, info.count);
    Result<Part> part = OpenPart(path);
    if (part.ok()) {
      if (missing_count == 0) parts.push_back(std::move(part).value());
    } else if (part.status().code() == StatusCode::kNotFound) {
      if (++missing_count <= kMaxListed) missing += (missing.empty() ? "" : ", ") + path;
    } else {
      return part.status();
    }
  }
  if (missing_count > kMaxListed) missing += fmt::format(" and {} more", missing_count - kMaxListed);
  if (missing_count > 0) {
    return NotFound("{}: part {} of {}; missing: {}; put all parts in one folder", given_path, info.number + 1,
                    info.count, missing);
  }
  return parts;
}

}  // namespace

Result<GgufModel> GgufModel::Open(const std::string& path) {
  BELLHOP_TRY_ASSIGN(Part given, OpenPart(path));
  BELLHOP_TRY_ASSIGN(const SplitInfo info, ReadSplitInfo(given.file));
  GgufModel model;
  if (info.count == 1) {
    model.mappings_.push_back(std::move(given.mapping));
    model.files_.push_back(std::move(given.file));
  } else {
    BELLHOP_TRY(CheckNotConcatenated(given.file, given.mapping.bytes()));
    BELLHOP_TRY_ASSIGN(std::vector<Part> parts, OpenSiblings(std::move(given), info));
    for (Part& part : parts) {
      model.mappings_.push_back(std::move(part.mapping));
      model.files_.push_back(std::move(part.file));
    }
  }
  BELLHOP_TRY(model.Join());
  return model;
}

Result<GgufModel> GgufModel::FromMemory(HostSpan<const std::byte> bytes, std::string_view name) {
  BELLHOP_TRY_ASSIGN(GgufFile file, ParseGguf(bytes, name));
  BELLHOP_TRY_ASSIGN(const SplitInfo info, ReadSplitInfo(file));
  if (info.count > 1) {
    return Unsupported("{}: part {} of a split model; open the file by its path", name, info.number + 1);
  }
  GgufModel model;
  model.files_.push_back(std::move(file));
  BELLHOP_TRY(model.Join());
  return model;
}

Status GgufModel::Join() {
  const GgufFile& first = files_.front();
  BELLHOP_TRY_ASSIGN(const SplitInfo info, ReadSplitInfo(first));
  uint64_t total = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (i > 0) BELLHOP_TRY(CheckSameModel(first, files_[i], static_cast<uint32_t>(i)));
    total += files_[i].tensors.size();
  }
  if (info.total_tensors && *info.total_tensors != total) {
    return Corrupt("{}: key 'split.tensors.count': {} tensors announced, {} are there{}", first.name,
                   *info.total_tensors, total, files_.size() > 1 ? "; use parts of one and the same model" : "");
  }
  tensors_.reserve(total);
  std::unordered_map<std::string_view, size_t> part_of_name;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (Tensor& tensor : files_[i].tensors) {
      tensor.file = static_cast<uint32_t>(i);
      tensors_.push_back(std::move(tensor));
      const auto [it, inserted] = part_of_name.emplace(tensors_.back().name, i);
      if (!inserted) {
        return Corrupt("{}: tensor '{}': already in {}", files_[i].name, Printable(it->first), files_[it->second].name);
      }
    }
    files_[i].tensors.clear();
    files_[i].tensors.shrink_to_fit();
  }
  return {};
}

std::string_view GgufModel::architecture() const {
  const Result<std::string_view> architecture = metadata().GetString("general.architecture");
  return architecture.ok() ? *architecture : std::string_view();
}

uint64_t GgufModel::total_bytes() const {
  uint64_t total = 0;
  for (const GgufFile& file : files_) total += file.bytes;
  return total;
}

void GgufModel::WillNeed(const Tensor& tensor) const {
  if (tensor.file < mappings_.size()) mappings_[tensor.file].WillNeed(tensor.offset, tensor.bytes);
}

}  // namespace bellhop::formats
