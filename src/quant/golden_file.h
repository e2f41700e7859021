// Test support: the reference files under tests/data/quant (their README.md describes the container).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "quant/format.h"

namespace bellhop::quant {

class GoldenFile {
 public:
  struct Section {
    uint32_t type = 0;
    std::vector<int64_t> shape;  // slowest first
    std::span<const std::byte> bytes;

    int64_t rows() const { return shape.at(0); }
    std::span<const std::byte> Row(int64_t r) const;
    // The section as packed f32 values.
    std::vector<float> Floats() const;
  };

  // `name` without directory, such as "q4_k.bin". Throws std::runtime_error when it is missing or malformed.
  explicit GoldenFile(const std::string& name);

  bool Has(const std::string& section) const { return sections_.contains(section); }
  const Section& operator[](const std::string& section) const { return sections_.at(section); }

 private:
  std::vector<std::byte> bytes_;
  std::map<std::string, Section> sections_;
};

inline constexpr int64_t kGoldenCols = 512;
inline constexpr int64_t kGoldenEncodedRows = 24;

// "Q4_K" -> "q4_k.bin".
std::string GoldenFileName(WeightFormat format);
// The formats that have a reference file: all but F64 and the integers.
std::vector<WeightFormat> GoldenFormats();
const nlohmann::json& GoldenManifest();

}  // namespace bellhop::quant
