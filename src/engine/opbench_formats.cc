#include "engine/opbench_formats.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "quant/format.h"

namespace bellhop::engine {
namespace {

using quant::ScaleType;
using quant::WeightFormat;

// Planar formats go by names that fit between commas; the scale group follows as "_b32".
struct PlanarName {
  std::string_view name;
  WeightFormat format;
  ScaleType scale_type;
  std::vector<int32_t> groups;  // that models use; the first is the one in the lists
  bool zero_points;             // may have a plane of them
};
const std::vector<PlanarName>& PlanarNames() {
  static const std::vector<PlanarName> names = {
      {"int4", WeightFormat::kInt4, ScaleType::kF16, {32, 16, 64, 128}, true},
      {"int4sm80", WeightFormat::kInt4Sm80, ScaleType::kF16, {32, 64, 128}, true},
      {"int3", WeightFormat::kInt3, ScaleType::kF16, {64, 32, 128}, true},
      {"int8", WeightFormat::kInt8, ScaleType::kF16, {32, 16, 64, 128}, true},
      {"int8sm80", WeightFormat::kInt8Sm80, ScaleType::kF16, {32, 64, 128}, true},
      {"mxfp4", WeightFormat::kMxfp4Planar, ScaleType::kE8M0, {32}, false},
      {"nvfp4", WeightFormat::kNvfp4Planar, ScaleType::kE4M3, {16}, false},
      {"mxfp4kmajor", WeightFormat::kMxfp4KMajor, ScaleType::kE8M0, {32}, false},
      {"nvfp4kmajor", WeightFormat::kNvfp4KMajor, ScaleType::kE4M3, {16}, false},
  };
  return names;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

OpbenchFormat PlanarFormat(const PlanarName& planar, int32_t group, bool zero_points) {
  return {.name = fmt::format("{}_b{}{}", planar.name, group, zero_points ? "_zp" : ""),
          .format = planar.format,
          .group = group,
          .scale_type = planar.scale_type,
          .zero_points = zero_points};
}

std::vector<OpbenchFormat> GgufFormats() {
  std::vector<OpbenchFormat> formats;
  for (const quant::FormatTraits& traits : quant::AllFormats()) {
    if (!traits.weights || traits.planar) continue;
    formats.push_back({.name = Lower(traits.name), .format = traits.format, .from_list = true});
  }
  return formats;
}

std::vector<OpbenchFormat> OnnxFormats() {
  std::vector<OpbenchFormat> formats;
  for (const PlanarName& planar : PlanarNames()) {
    formats.push_back(PlanarFormat(planar, planar.groups.front(), false));
    formats.back().from_list = true;
  }
  return formats;
}

// "int4_b32" or "int4_b32_zp".
std::optional<OpbenchFormat> ParsePlanar(std::string_view name) {
  const bool zero_points = name.ends_with("_zp");
  if (zero_points) name.remove_suffix(3);
  const size_t split = name.rfind("_b");
  if (split == std::string_view::npos) return std::nullopt;
  int32_t group = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + split + 2, end, group);
  if (error != std::errc() || stop != end) return std::nullopt;
  for (const PlanarName& planar : PlanarNames()) {
    const auto& groups = planar.groups;
    if (planar.name != name.substr(0, split) || (zero_points && !planar.zero_points)) continue;
    if (std::find(groups.begin(), groups.end(), group) != groups.end()) return PlanarFormat(planar, group, zero_points);
  }
  return std::nullopt;
}

std::string KnownNames() {
  std::string text = "all, gguf, onnx";
  for (const OpbenchFormat& format : GgufFormats()) text += ", " + format.name;
  for (const PlanarName& planar : PlanarNames()) {
    for (const int32_t group : planar.groups) text += fmt::format(", {}_b{}", planar.name, group);
  }
  return text + "; those that begin with int also with _zp for zero points";
}

}  // namespace

quant::MatrixSpec OpbenchFormat::Matrix(int64_t rows, int64_t cols) const {
  quant::MatrixSpec spec;
  spec.format = format;
  spec.rows = rows;
  spec.cols = cols;
  spec.scale_type = scale_type;
  spec.group = group;
  spec.zero_points = zero_points;
  return spec;
}

Result<std::vector<OpbenchFormat>> ParseOpbenchFormats(const std::vector<std::string>& names) {
  std::vector<OpbenchFormat> formats;
  const auto add = [&](const OpbenchFormat& format) {
    for (OpbenchFormat& known : formats) {
      if (known.name != format.name) continue;
      known.from_list = known.from_list && format.from_list;
      return;
    }
    formats.push_back(format);
  };
  for (const std::string& given : names) {
    const std::string name = Lower(given);
    const bool all = name == "all";
    if (all || name == "gguf" || name == "onnx") {
      if (name != "onnx") {
        for (const OpbenchFormat& format : GgufFormats()) add(format);
      }
      if (name != "gguf") {
        for (const OpbenchFormat& format : OnnxFormats()) add(format);
      }
      continue;
    }
    if (const std::optional<OpbenchFormat> planar = ParsePlanar(name)) {
      add(*planar);
      continue;
    }
    const std::optional<WeightFormat> format = quant::FormatFromName(name);
    if (!format || quant::Traits(*format).planar || !quant::Traits(*format).weights) {
      return InvalidArgument("--format '{}': expects {}", given, KnownNames());
    }
    add({.name = name, .format = *format});
  }
  return formats;
}

}  // namespace bellhop::engine
