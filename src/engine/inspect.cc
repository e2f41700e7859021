#include "engine/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "formats/gguf/gguf_model.h"
#include "formats/gguf/manifest_builder.h"
#include "manifest/metadata.h"
#include "model/arch/registry.h"
#include "quant/format.h"
#include "store/expert_store.h"
#include "text/tokenizer.h"

namespace bellhop::engine {
namespace {

using manifest::MetaArray;
using manifest::MetaType;
using manifest::MetaTypeName;
using manifest::MetaValue;
using nlohmann::ordered_json;

// Items of an array that the one-line text shows.
constexpr size_t kTextItems = 8;

ordered_json ScalarToJson(const MetaValue& value) {
  struct Visitor {
    ordered_json operator()(uint64_t v) const { return v; }
    ordered_json operator()(int64_t v) const { return v; }
    ordered_json operator()(double v) const { return v; }
    ordered_json operator()(bool v) const { return v; }
    ordered_json operator()(std::string_view v) const { return text::SanitizeUtf8(v); }
    ordered_json operator()(const std::shared_ptr<MetaArray>&) const { return nullptr; }
  };
  return std::visit(Visitor{}, value.value);
}

ordered_json ArrayToJson(const MetaArray& array, uint64_t max_items) {
  ordered_json out = ordered_json::array();
  const uint64_t shown = std::min(array.count, max_items);
  for (uint64_t i = 0; i < shown; ++i) {
    out.push_back(array.element_type == MetaType::kArray ? ArrayToJson(array.arrays[i], max_items)
                                                         : ScalarToJson(array.At(i)));
  }
  return out;
}

InspectEntry MakeEntry(const manifest::Metadata::Entry& entry, uint64_t max_array) {
  InspectEntry out;
  out.key = text::SanitizeUtf8(entry.key);
  out.text = text::SanitizeUtf8(ToString(entry.value, kTextItems));
  if (entry.value.is_array()) {
    const MetaArray& array = entry.value.array();
    out.type = fmt::format("array of {}", MetaTypeName(array.element_type));
    out.length = array.count;
    out.value = ArrayToJson(array, max_array);
  } else {
    out.type = std::string(MetaTypeName(entry.value.type));
    out.value = ScalarToJson(entry.value);
  }
  return out;
}

// What TextEngine::Create asks of a file's structure, in the same order.
Status CheckSupport(const formats::GgufModel& model) {
  if (model.architecture().empty()) {
    return Unsupported("the file does not state general.architecture: it is not a model, or not a complete one");
  }
  const std::vector<std::string_view> known = model::SupportedArchitectures();
  if (std::find(known.begin(), known.end(), model.architecture()) == known.end()) {
    return Unsupported("architecture '{}' is not supported; supported are {}", model.architecture(),
                       fmt::join(known, ", "));
  }
  BELLHOP_TRY_ASSIGN(const manifest::Manifest manifest, formats::BuildManifest(model));
  BELLHOP_TRY(model::BuildSpec(manifest).status());
  return store::ExpertStore::Create(manifest).status();
}

void AddTensors(const formats::GgufModel& model, InspectResult* result) {
  std::map<quant::WeightFormat, InspectFormat> formats;
  for (const manifest::Tensor& tensor : model.tensors()) {
    InspectTensor out;
    out.name = text::SanitizeUtf8(tensor.name);
    out.format = std::string(quant::Traits(tensor.format).name);
    out.shape = tensor.ShapeString();
    out.dims.assign(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims);
    out.file = tensor.file;
    out.offset = tensor.offset;
    out.bytes = tensor.bytes;
    InspectFormat& format = formats[tensor.format];
    format.format = out.format;
    format.tensors += 1;
    format.elements += tensor.elements();
    format.bytes += tensor.bytes;
    result->elements += tensor.elements();
    result->tensor_bytes += tensor.bytes;
    result->tensors.push_back(std::move(out));
  }
  for (auto& [unused, format] : formats) result->formats.push_back(std::move(format));
  std::stable_sort(result->formats.begin(), result->formats.end(),
                   [](const InspectFormat& a, const InspectFormat& b) { return a.bytes > b.bytes; });
}

}  // namespace

Result<InspectResult> Inspect(const std::string& path, uint64_t max_array) {
  BELLHOP_TRY_ASSIGN(const formats::GgufModel model, formats::GgufModel::Open(path));
  InspectResult result;
  for (const formats::GgufFile& file : model.files()) result.files.push_back(file.name);
  result.version = model.files().front().version;
  result.alignment = model.files().front().alignment;
  result.file_bytes = model.total_bytes();
  result.architecture = text::SanitizeUtf8(model.architecture());
  const Status support = CheckSupport(model);
  result.supported = support.ok();
  result.support_note = text::SanitizeUtf8(support.message());
  for (const manifest::Metadata::Entry& entry : model.metadata().entries()) {
    result.metadata.push_back(MakeEntry(entry, max_array));
  }
  AddTensors(model, &result);
  return result;
}

}  // namespace bellhop::engine
