#include "formats/gguf/gguf_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "formats/gguf/gguf_for_test.h"

namespace bellhop::formats {
namespace {

using manifest::MetaArray;
using manifest::MetaType;
using manifest::MetaTypeName;
using manifest::MetaValue;
using nlohmann::json;

const json& Listing() {
  static const json* listing = [] {
    std::ifstream in(DataPath("manifest.json"));
    return new json(json::parse(in));
  }();
  return *listing;
}

// The listing's name for a type.
std::string ListedName(MetaType type) {
  if (type == MetaType::kString) return "str";
  if (type == MetaType::kArray) return "arr";
  return std::string(MetaTypeName(type));
}

void ExpectArray(const MetaArray& array, const json& want, const std::string& where);

// 64-bit integers are listed as decimal strings.
void ExpectScalar(const MetaValue& value, const json& want, const std::string& where) {
  switch (value.type) {
    case MetaType::kU64:
      EXPECT_EQ(std::to_string(std::get<uint64_t>(value.value)), want.get<std::string>()) << where;
      break;
    case MetaType::kI64:
      EXPECT_EQ(std::to_string(std::get<int64_t>(value.value)), want.get<std::string>()) << where;
      break;
    case MetaType::kF32:
    case MetaType::kF64: EXPECT_EQ(std::get<double>(value.value), want.get<double>()) << where; break;
    case MetaType::kBool: EXPECT_EQ(std::get<bool>(value.value), want.get<bool>()) << where; break;
    case MetaType::kString: EXPECT_EQ(std::get<std::string_view>(value.value), want.get<std::string>()) << where; break;
    case MetaType::kU8:
    case MetaType::kU16:
    case MetaType::kU32: EXPECT_EQ(std::get<uint64_t>(value.value), want.get<uint64_t>()) << where; break;
    case MetaType::kI8:
    case MetaType::kI16:
    case MetaType::kI32: EXPECT_EQ(std::get<int64_t>(value.value), want.get<int64_t>()) << where; break;
    case MetaType::kArray: ADD_FAILURE() << where << ": not a scalar"; break;
  }
}

void ExpectArray(const MetaArray& array, const json& want, const std::string& where) {
  EXPECT_EQ(ListedName(array.element_type), want["element"].get<std::string>()) << where;
  if (!want.contains("items")) {
    EXPECT_EQ(array.count, want["count"].get<uint64_t>()) << where;
    return;
  }
  const json& items = want["items"];
  ASSERT_EQ(array.count, items.size()) << where;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (array.element_type == MetaType::kArray) {
      ExpectArray(array.arrays[i], items[i], place);
    } else {
      ExpectScalar(array.At(i), items[i], place);
    }
  }
}

void ExpectFacts(const GgufFile& file, const json& want) {
  EXPECT_EQ(file.version, want["version"].get<uint32_t>());
  EXPECT_EQ(file.alignment, want["alignment"].get<uint32_t>());
  EXPECT_EQ(file.data_offset, want["data_offset"].get<uint64_t>());
  ASSERT_EQ(file.tensors.size(), want["tensors"].size());
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const manifest::Tensor& tensor = file.tensors[i];
    const json& t = want["tensors"][i];
    EXPECT_EQ(tensor.name, t["name"].get<std::string>());
    EXPECT_EQ(quant::Traits(tensor.format).gguf_id, t["type_id"].get<uint32_t>()) << tensor.name;
    EXPECT_EQ(tensor.offset - file.data_offset, t["offset"].get<uint64_t>()) << tensor.name;
    EXPECT_EQ(tensor.bytes, t["bytes"].get<uint64_t>()) << tensor.name;
    EXPECT_EQ(tensor.data.size(), tensor.bytes) << tensor.name;
    ASSERT_EQ(static_cast<size_t>(tensor.n_dims), t["dims"].size()) << tensor.name;
    for (size_t d = 0; d < 4; ++d) {
      EXPECT_EQ(tensor.dims[d], d < t["dims"].size() ? t["dims"][d].get<uint64_t>() : 1u) << tensor.name;
    }
  }
  const auto& entries = file.metadata.entries();
  ASSERT_EQ(entries.size(), want["kv"].size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const json& kv = want["kv"][i];
    EXPECT_EQ(entries[i].key, kv["key"].get<std::string>());
    const MetaValue& value = entries[i].value;
    ASSERT_EQ(ListedName(value.type), kv["type"].get<std::string>()) << entries[i].key;
    if (value.is_array()) {
      ExpectArray(value.array(), kv.contains("value") ? kv["value"] : kv, entries[i].key);
    } else {
      ExpectScalar(value, kv["value"], entries[i].key);
    }
  }
}

TEST(GgufReader, EveryListedFileGetsItsVerdict) {
  std::map<std::string, int> seen;
  for (const json& entry : Listing()["files"]) {
    const std::string name = entry["file"];
    SCOPED_TRACE(name);
    const std::vector<std::byte> bytes = ReadBytes(DataPath(name));
    ASSERT_EQ(bytes.size(), entry["bytes"].get<size_t>());
    const Result<GgufFile> file = ParseGguf(bytes, name);
    const std::string verdict = entry["verdict"];
    ++seen[verdict];
    if (verdict == "accept") {
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      ExpectFacts(*file, entry["expect"]);
    } else if (verdict == "reject") {
      ASSERT_FALSE(file.ok());
      ExpectClearMessage(file.status(), name);
      EXPECT_TRUE(Contains(file.status().message(), "offset ")) << file.status().message();
    } else if (!file.ok()) {
      ExpectClearMessage(file.status(), name);
    }
  }
  EXPECT_EQ(seen["accept"], 16);
  EXPECT_EQ(seen["reject"], 69);
  EXPECT_EQ(seen["either"], 11);
}

// The choices that the header documents.
TEST(GgufReader, FreeChoicesAreAsDocumented) {
  const std::map<std::string, bool> accepted = {
      {"either_zero_ndims.gguf", true},
      {"either_zero_dim.gguf", false},
      {"either_gap_between_tensors.gguf", true},
      {"either_offsets_out_of_order.gguf", true},
      {"either_name_64.gguf", true},
      {"either_empty_tensor_name.gguf", false},
      {"either_bool_2.gguf", false},
      {"either_invalid_utf8_value.gguf", true},
      {"either_key_charset.gguf", true},
      {"either_alignment_4.gguf", true},
      {"either_q8_1_tensor.gguf", true},
  };
  for (const auto& [name, accept] : accepted) {
    const Result<GgufFile> file = ParseGguf(ReadBytes(DataPath(name)), name);
    EXPECT_EQ(file.ok(), accept) << name << ": " << file.status().ToString();
  }
}

TEST(GgufReader, MessagesNamePlaceAndRemedy) {
  const std::map<std::string, std::vector<std::string>> wanted = {
      {"bad_big_endian.gguf", {"big-endian", "offset 4"}},
      {"bad_version_1.gguf", {"version 1", "convert"}},
      {"bad_key_duplicate.gguf", {"key '", "already there"}},
      {"bad_duplicate_tensor_name.gguf", {"tensor '", "already there"}},
      {"bad_overlapping_tensors.gguf", {"tensor '", "overlap"}},
      {"bad_data_missing_last_byte.gguf", {"tensor '", "incomplete", "fetch"}},
      {"bad_alignment_type_u64.gguf", {"general.alignment", "u64", "u32"}},
      {"bad_alignment_zero.gguf", {"general.alignment", "power of two"}},
      {"bad_type_removed_4.gguf", {"type id 4", "withdrawn"}},
      {"bad_row_not_block_multiple_total_ok.gguf", {"tensor '", "Q8_0"}},
      {"bad_array_nested_too_deep.gguf", {"key '", "nested"}},
      {"bad_kv_count_one_million.gguf", {"1000000 keys"}},
      {"bad_empty_file.gguf", {"empty"}},
  };
  for (const auto& [name, parts] : wanted) {
    const Result<GgufFile> file = ParseGguf(ReadBytes(DataPath(name)), name);
    ASSERT_FALSE(file.ok()) << name;
    for (const std::string& part : parts)
      EXPECT_TRUE(Contains(file.status().message(), part)) << file.status().message();
  }
}

TEST(GgufReader, RecognisesWhatIsNoModel) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 17354720\n", "git lfs pull"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 17354720\n", "17354720"},
      {"<!DOCTYPE html><html>", "web page"},
      {"\n <html lang=en>", "web page"},
      {"lmgg\1\0\0\0", "before GGUF"},
      {"PK\3\4 some archive", "50 4b 03 04"},
      {"GG", "ends inside the magic"},
  };
  for (const auto& [content, part] : cases) {
    const Result<GgufFile> file =
        ParseGguf({reinterpret_cast<const std::byte*>(content.data()), content.size()}, "m.gguf");
    ASSERT_FALSE(file.ok()) << content;
    ExpectClearMessage(file.status(), "m.gguf");
    EXPECT_TRUE(Contains(file.status().message(), part)) << file.status().message();
  }
}

// Tensors hold 7 * i - 9 (integers) and 0.25 * i - 1 (F64).
TEST(GgufReader, TensorDataAreTheRightBytes) {
  const std::vector<std::byte> bytes = ReadBytes(DataPath("ok_all_value_types.gguf"));
  const Result<GgufFile> file = ParseGguf(bytes, "f");
  ASSERT_TRUE(file.ok());
  int checked = 0;
  for (const manifest::Tensor& tensor : file->tensors) {
    const auto expect = [&](auto type_tag, auto value_of) {
      using T = decltype(type_tag);
      for (size_t i = 0; i < tensor.elements(); ++i) {
        T value;
        std::memcpy(&value, tensor.data.data() + i * sizeof(T), sizeof(T));
        EXPECT_EQ(value, value_of(i)) << tensor.name << "[" << i << "]";
      }
      ++checked;
    };
    const auto integer = [](size_t i) { return static_cast<int64_t>(7 * i) - 9; };
    switch (tensor.format) {
      case quant::WeightFormat::kI8: expect(int8_t{}, integer); break;
      case quant::WeightFormat::kI16: expect(int16_t{}, integer); break;
      case quant::WeightFormat::kI32: expect(int32_t{}, integer); break;
      case quant::WeightFormat::kI64: expect(int64_t{}, integer); break;
      case quant::WeightFormat::kF64:
        expect(double{}, [](size_t i) { return 0.25 * static_cast<double>(i) - 1; });
        break;
      default: break;
    }
  }
  EXPECT_EQ(checked, 5);
}

// Every prefix sits in its own heap block, so that a sanitizer sees a read behind its end.
TEST(GgufReader, EveryPrefixIsRefusedUntilTheLastTensorIsComplete) {
  for (const char* name : {"ok_all_value_types.gguf", "ok_nested_arrays.gguf", "ok_alignment_64.gguf",
                           "ok_no_tensors.gguf", "ok_no_metadata.gguf", "ok_empty_values.gguf", "ok_version2.gguf"}) {
    const std::vector<std::byte> bytes = ReadBytes(DataPath(name));
    const Result<GgufFile> whole = ParseGguf(bytes, name);
    ASSERT_TRUE(whole.ok());
    for (size_t length = 0; length < bytes.size(); ++length) {
      const std::vector<std::byte> prefix(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
      const Result<GgufFile> file = ParseGguf(prefix, name);
      ASSERT_EQ(file.ok(), length >= whole->data_end) << name << ", " << length << " bytes";
      if (!file.ok()) ExpectClearMessage(file.status(), name);
    }
  }
}

// Parses, and when that works looks at everything; the verdict is free, crashing is not.
void TryEverything(const std::vector<std::byte>& bytes) {
  const Result<GgufModel> model = GgufModel::FromMemory(bytes, "flipped.gguf");
  if (!model.ok()) {
    ExpectClearMessage(model.status(), "flipped.gguf");
    return;
  }
  (void)TouchAllBytes(*model);
  const Result<manifest::Manifest> built = BuildManifest(*model);
  if (!built.ok()) {
    EXPECT_TRUE(Contains(built.status().message(), "flipped.gguf")) << built.status().ToString();
    EXPECT_FALSE(Contains(built.status().message(), "\n")) << built.status().ToString();
  }
}

TEST(GgufReader, FlippedBytesNeverCrash) {
  std::vector<std::vector<std::byte>> files = {TinyMoe().Bytes()};
  for (const char* name : {"ok_all_value_types.gguf", "ok_nested_arrays.gguf", "ok_alignment_8.gguf"}) {
    files.push_back(ReadBytes(DataPath(name)));
  }
  for (std::vector<std::byte>& bytes : files) {
    const Result<GgufFile> whole = ParseGguf(bytes, "whole");
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    for (size_t at = 0; at < whole->data_offset; ++at) {
      const std::byte original = bytes[at];
      for (const std::byte mask : {std::byte{0x01}, std::byte{0x40}, std::byte{0x80}, std::byte{0xFF}}) {
        bytes[at] = original ^ mask;
        TryEverything(bytes);
      }
      bytes[at] = original;
    }
  }
}

// Numbers that make products and sums wrap, over every place where a 64-bit field may be.
TEST(GgufReader, HostileNumbersNeverCrash) {
  const uint64_t numbers[] = {0,
                              (uint64_t{1} << 42) + 1,
                              uint64_t{1} << 63,
                              ~uint64_t{0},
                              ~uint64_t{0} - 31,
                              uint64_t{1} << 32,
                              (uint64_t{1} << 61) + 1};
  std::vector<std::byte> bytes = ReadBytes(DataPath("ok_all_value_types.gguf"));
  const Result<GgufFile> whole = ParseGguf(bytes, "whole");
  ASSERT_TRUE(whole.ok());
  for (size_t at = 8; at + 8 <= whole->data_offset; ++at) {
    std::byte original[8];
    std::memcpy(original, bytes.data() + at, 8);
    for (const uint64_t number : numbers) {
      std::memcpy(bytes.data() + at, &number, 8);
      TryEverything(bytes);
    }
    std::memcpy(bytes.data() + at, original, 8);
  }
}

// Overwrites the field behind the tensor's name: n_dims, the first dimension or the offset.
TEST(GgufReader, PatchedDimensionsNameTheTensor) {
  const std::vector<std::byte> good = ReadBytes(DataPath("ok_alignment_64.gguf"));
  const std::string_view text(reinterpret_cast<const char*>(good.data()), good.size());
  const size_t behind_name = text.find("a.weight") + std::strlen("a.weight");
  const auto patched = [&](size_t at, auto value) {
    std::vector<std::byte> bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    return ParseGguf(bytes, "p.gguf").status();
  };
  std::vector<Status> refusals;
  for (const uint64_t dim : {(uint64_t{1} << 42) + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    refusals.push_back(patched(behind_name + 4, dim));
    refusals.push_back(patched(behind_name + 12, dim));
  }
  for (const uint32_t n_dims : {5u, ~0u}) refusals.push_back(patched(behind_name, n_dims));
  for (const uint64_t offset : {~uint64_t{0} - 63, uint64_t{1} << 63, uint64_t{1}}) {
    refusals.push_back(patched(behind_name + 24, offset));
  }
  for (const Status& status : refusals) {
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
    EXPECT_TRUE(Contains(status.message(), "tensor 'a.weight'")) << status.ToString();
  }
}

TEST(GgufReader, RandomBytesBehindTheMagicNeverCrash) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(24 + random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4 == 0 ? random() & 0xFF : 0);
    const unsigned char header[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0};
    std::memcpy(bytes.data(), header, sizeof(header));
    for (size_t i = 8; i < 24; ++i) bytes[i] = std::byte{0};
    bytes[8] = static_cast<std::byte>(random() % 3);
    bytes[16] = static_cast<std::byte>(random() % 3);
    TryEverything(bytes);
  }
}

TEST(Printable, IsOneLineOfAscii) {
  EXPECT_EQ(Printable("blk.0.w"), "blk.0.w");
  EXPECT_EQ(Printable("a\nb\xFF"), "a\\x0ab\\xff");
  EXPECT_LT(Printable(std::string(10000, 'x')).size(), 150u);
}

}  // namespace
}  // namespace bellhop::formats
