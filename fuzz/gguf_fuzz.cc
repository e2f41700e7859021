// Parses the input as a GGUF file, asks every key in every way, builds the manifest and reads every tensor byte.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/span.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/gguf/manifest_builder.h"

namespace {

using bellhop::formats::GgufModel;
using bellhop::formats::GgufWriter;

// Keeps reads alive under optimisation.
volatile size_t g_sink = 0;

void TouchKeys(const bellhop::manifest::Metadata& metadata) {
  size_t sum = 0;
  for (const auto& entry : metadata.entries()) {
    sum += ToString(entry.value).size();
    sum += metadata.GetUint(entry.key).ok() + metadata.GetInt(entry.key).ok() + metadata.GetFloat(entry.key).ok();
    sum += metadata.GetBool(entry.key).ok() + metadata.GetString(entry.key).ok();
    sum += metadata.GetIntArray(entry.key).ok() + metadata.GetFloatArray(entry.key).ok();
    sum += metadata.GetBoolArray(entry.key).ok() + metadata.GetStringArray(entry.key).ok();
  }
  g_sink = g_sink + sum;
}

void TouchTensors(const std::vector<bellhop::manifest::Tensor>& tensors) {
  size_t sum = 0;
  for (const auto& tensor : tensors) {
    for (const std::byte byte : tensor.data) sum += std::to_integer<size_t>(byte);
  }
  g_sink = g_sink + sum;
}

// What was read can be written again, and then reads as the same model.
void RoundTrip(const GgufModel& model) {
  if (model.files()[0].alignment > 4096) return;
  GgufWriter writer(model.files()[0].alignment);
  if (!writer.AddAll(model.metadata()).ok()) __builtin_trap();
  for (const auto& t : model.tensors()) {
    const std::vector<uint64_t> dims(t.dims.begin(), t.dims.begin() + t.n_dims);
    if (!writer.AddTensor(t.name, t.format, dims, t.data).ok()) __builtin_trap();
  }
  const auto bytes = writer.ToBytes();
  if (!bytes.ok()) __builtin_trap();
  const auto again = GgufModel::FromMemory(*bytes, "again");
  if (!again.ok() || again->tensors().size() != model.tensors().size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = GgufModel::FromMemory({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!model.ok()) {
    if (model.status().message().find('\n') != std::string_view::npos) __builtin_trap();
    return 0;
  }
  TouchKeys(model->metadata());
  TouchTensors(model->tensors());
  RoundTrip(*model);
  const auto manifest = BuildManifest(*model);
  if (manifest.ok()) TouchTensors(manifest->tensors);
  return 0;
}
