#include "engine/inspect.h"

#include "base/units.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/table.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const engine::InspectResult& result) {
  Json metadata = Json::object();
  for (const engine::InspectEntry& entry : result.metadata) {
    Json value = {{"type", entry.type}, {"value", entry.value}};
    if (entry.length > 0) value["length"] = entry.length;
    metadata[entry.key] = std::move(value);
  }
  Json formats = Json::array();
  for (const engine::InspectFormat& format : result.formats) {
    formats.push_back({{"format", format.format},
                       {"tensors", format.tensors},
                       {"elements", format.elements},
                       {"bytes", format.bytes}});
  }
  Json tensors = Json::array();
  for (const engine::InspectTensor& tensor : result.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"format", tensor.format},
                       {"dims", tensor.dims},
                       {"file", tensor.file},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
  }
  return {
      {"files", result.files},
      {"version", result.version},
      {"alignment", result.alignment},
      {"file_bytes", result.file_bytes},
      {"tensor_bytes", result.tensor_bytes},
      {"elements", result.elements},
      {"architecture", result.architecture},
      {"supported", result.supported},
      {"support_note", result.support_note},
      {"metadata", std::move(metadata)},
      {"formats", std::move(formats)},
      {"tensors", std::move(tensors)},
  };
}

void PrintTables(const engine::InspectResult& result, bool with_tensors, Console& console) {
  Table head({Align::kLeft, Align::kLeft});
  for (const std::string& file : result.files) head.Add({"file", OneLine(file)});
  head.Add({"format", fmt::format("GGUF version {}, alignment {}", result.version, result.alignment)});
  head.Add({"size", fmt::format("{} ({} bytes), of it tensors {}", FormatBytes(result.file_bytes), result.file_bytes,
                                FormatBytes(result.tensor_bytes))});
  head.Add({"contents", fmt::format("{} tensors, {} elements, {} metadata keys", result.tensors.size(), result.elements,
                                    result.metadata.size())});
  head.Add({"architecture", result.architecture.empty() ? "not stated" : OneLine(result.architecture)});
  head.Add({"runs here", result.supported ? "yes" : "no: " + OneLine(result.support_note)});
  console.Write(head.Text());

  console.Write("\nMetadata\n");
  Table metadata({Align::kLeft, Align::kLeft, Align::kLeft});
  for (const engine::InspectEntry& entry : result.metadata) {
    metadata.Add({OneLine(entry.key), entry.type, OneLine(entry.text)});
  }
  console.Write(metadata.Text(2));

  console.Write("\nWeights\n");
  Table formats({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  formats.Add({"format", "tensors", "elements", "bytes", "share"});
  for (const engine::InspectFormat& format : result.formats) {
    const double share = result.tensor_bytes > 0
                             ? 100.0 * static_cast<double>(format.bytes) / static_cast<double>(result.tensor_bytes)
                             : 0;
    formats.Add({format.format, fmt::format("{}", format.tensors), fmt::format("{}", format.elements),
                 FormatBytes(format.bytes), fmt::format("{:.1f} %", share)});
  }
  console.Write(formats.Text(2));
  if (!with_tensors) return;

  console.Write("\nTensors\n");
  Table tensors({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  tensors.Add({"name", "format", "shape", "offset", "bytes"});
  for (const engine::InspectTensor& tensor : result.tensors) {
    tensors.Add({OneLine(tensor.name), tensor.format, tensor.shape, fmt::format("{}", tensor.offset),
                 fmt::format("{}", tensor.bytes)});
  }
  console.Write(tensors.Text(2));
}

}  // namespace

Status Inspect(const config::InspectOptions& options, Console& console) {
  BELLHOP_TRY_ASSIGN(const std::string path, ResolveModelPath(options.model_path, console));
  BELLHOP_TRY_ASSIGN(const engine::InspectResult result, engine::Inspect(path, options.max_array));
  if (console.json()) {
    console.WriteJson(ToJson(result));
  } else {
    PrintTables(result, options.tensors, console);
  }
  return Status();
}

}  // namespace bellhop::cli
