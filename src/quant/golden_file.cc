#include "quant/golden_file.h"

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "quant/packed.h"

namespace bellhop::quant {
namespace {

std::string GoldenDir() { return std::string(BELLHOP_SOURCE_DIR) + "/tests/data/quant/"; }

}  // namespace

std::span<const std::byte> GoldenFile::Section::Row(int64_t r) const {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows());
  return bytes.subspan(static_cast<size_t>(r) * row_bytes, row_bytes);
}

std::vector<float> GoldenFile::Section::Floats() const {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

GoldenFile::GoldenFile(const std::string& name) {
  std::ifstream in(GoldenDir() + name, std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (raw.size() < 16 || raw.compare(0, 8, "QGOLDEN1") != 0) throw std::runtime_error("no golden file " + name);
  bytes_.resize(raw.size());
  std::memcpy(bytes_.data(), raw.data(), raw.size());
  const uint32_t count = Load<uint32_t>(bytes_.data() + 8);
  for (uint32_t i = 0; i < count; ++i) {
    const std::byte* record = bytes_.data() + 16 + 88 * i;
    char text[33] = {};
    std::memcpy(text, record, 32);
    Section section;
    section.type = Load<uint32_t>(record + 32);
    for (uint32_t d = 0; d < Load<uint32_t>(record + 36); ++d) {
      section.shape.push_back(Load<int64_t>(record + 40 + 8 * d));
    }
    const auto offset = Load<uint64_t>(record + 72), size = Load<uint64_t>(record + 80);
    if (offset + size > bytes_.size()) throw std::runtime_error("truncated golden file " + name);
    section.bytes = std::span<const std::byte>(bytes_).subspan(offset, size);
    sections_[text] = section;
  }
}

std::string GoldenFileName(WeightFormat format) {
  std::string name(Traits(format).name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name + ".bin";
}

std::vector<WeightFormat> GoldenFormats() {
  std::vector<WeightFormat> formats;
  for (const FormatTraits& t : AllFormats()) {
    if ((t.weights && !t.planar) || t.name == "Q8_1" || t.name == "Q8_K") formats.push_back(t.format);
  }
  return formats;
}

const nlohmann::json& GoldenManifest() {
  static const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(GoldenDir() + "manifest.json"));
  return manifest;
}

}  // namespace bellhop::quant
