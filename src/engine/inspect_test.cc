#include "engine/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "formats/gguf/gguf_writer.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::engine {
namespace {

std::string Repo(const std::string& path) { return std::string(BELLHOP_SOURCE_DIR) + "/" + path; }

nlohmann::json GgufCases() {
  std::ifstream in(Repo("tests/data/gguf/manifest.json"));
  return nlohmann::json::parse(in);
}

const InspectEntry* Find(const InspectResult& result, const std::string& key) {
  const auto it =
      std::find_if(result.metadata.begin(), result.metadata.end(), [&](const auto& e) { return e.key == key; });
  return it == result.metadata.end() ? nullptr : &*it;
}

TEST(InspectTest, EveryFileOfTheTestSetIsDescribedOrRefused) {
  int accepted = 0, rejected = 0;
  const nlohmann::json cases = GgufCases();
  for (const auto& c : cases["files"]) {
    const std::string file = c["file"], verdict = c["verdict"];
    SCOPED_TRACE(file);
    const auto result = Inspect(Repo("tests/data/gguf/" + file), 16);
    if (verdict == "reject") {
      ++rejected;
      ASSERT_FALSE(result.ok());
      EXPECT_NE(result.status().message().find(file), std::string_view::npos) << result.status().ToString();
      continue;
    }
    if (verdict == "either" && !result.ok()) continue;
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ++accepted;
    EXPECT_EQ(result->file_bytes, c["bytes"].get<uint64_t>());
    EXPECT_FALSE(result->supported);
    EXPECT_FALSE(result->support_note.empty());
    for (const InspectEntry& entry : result->metadata) {
      EXPECT_EQ(entry.text.find('\n'), std::string::npos) << entry.key;
      EXPECT_NO_THROW(entry.value.dump()) << entry.key;  // valid UTF-8 whatever the file holds
    }
    if (!c.contains("expect") || !c["expect"].contains("tensors")) continue;
    const auto& tensors = c["expect"]["tensors"];
    ASSERT_EQ(result->tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(result->tensors[i].dims, tensors[i]["dims"].get<std::vector<uint64_t>>());
    }
  }
  EXPECT_GT(accepted, 10);
  EXPECT_GT(rejected, 40);
}

TEST(InspectTest, DescribesTheShippedModel) {
  const auto result = Inspect(Repo("models/tiny-moe-q4_0.gguf"), 4);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(result->supported) << result->support_note;
  EXPECT_EQ(result->support_note, "");
  EXPECT_EQ(result->architecture, "qwen3moe");
  EXPECT_EQ(result->files, std::vector<std::string>{Repo("models/tiny-moe-q4_0.gguf")});
  EXPECT_EQ(result->file_bytes, std::filesystem::file_size(result->files[0]));
  EXPECT_LT(result->tensor_bytes, result->file_bytes);

  const InspectEntry* tokens = Find(*result, "tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->type, "array of string");
  EXPECT_GT(tokens->length, 1000u);
  EXPECT_EQ(tokens->value.size(), 4u);
  const InspectEntry* chat = Find(*result, "tokenizer.chat_template");
  ASSERT_NE(chat, nullptr);
  EXPECT_GT(chat->value.get<std::string>().size(), chat->text.size());  // whole in the value, shortened in the text
  EXPECT_EQ(chat->length, 0u);

  uint64_t bytes = 0, elements = 0, tensors = 0;
  for (size_t i = 0; i < result->formats.size(); ++i) {
    bytes += result->formats[i].bytes;
    elements += result->formats[i].elements;
    tensors += result->formats[i].tensors;
    if (i > 0) {
      EXPECT_LE(result->formats[i].bytes, result->formats[i - 1].bytes);
    }
  }
  EXPECT_EQ(result->formats.front().format, "Q4_0");
  EXPECT_EQ(bytes, result->tensor_bytes);
  EXPECT_EQ(elements, result->elements);
  EXPECT_EQ(tensors, result->tensors.size());
  const InspectTensor& last = *std::max_element(result->tensors.begin(), result->tensors.end(),
                                                [](const auto& a, const auto& b) { return a.offset < b.offset; });
  EXPECT_LE(last.offset + last.bytes, result->file_bytes);
}

TEST(InspectTest, UnknownArchitectureIsDescribedWithTheReason) {
  const sys::TempDir dir;
  const std::string path = dir.path() + "/odd.gguf";
  formats::GgufWriter writer;
  ASSERT_TRUE(writer.AddString("general.architecture", "clockwork").ok());
  const std::vector<std::byte> zeros(64 * 4);
  ASSERT_TRUE(
      writer.AddTensor("gear.weight", quant::WeightFormat::kF32, {32, 2}, HostSpan<const std::byte>(zeros)).ok());
  ASSERT_TRUE(writer.Write(path).ok());
  const auto result = Inspect(path, 4);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->architecture, "clockwork");
  EXPECT_FALSE(result->supported);
  EXPECT_NE(result->support_note.find("clockwork"), std::string::npos);
  EXPECT_NE(result->support_note.find("qwen3moe"), std::string::npos);  // lists what is supported
  ASSERT_EQ(result->tensors.size(), 1u);
  EXPECT_EQ(result->tensors[0].shape, "[32, 2]");
}

TEST(InspectTest, JoinsThePartsOfASplitModel) {
  const sys::TempDir dir;
  const std::vector<std::byte> zeros(32 * 4);
  for (int part = 0; part < 2; ++part) {
    formats::GgufWriter writer;
    if (part == 0) {
      ASSERT_TRUE(writer.AddString("general.architecture", "clockwork").ok());
    }
    ASSERT_TRUE(writer.AddUint("split.no", static_cast<uint64_t>(part), manifest::MetaType::kU16).ok());
    ASSERT_TRUE(writer.AddUint("split.count", 2, manifest::MetaType::kU16).ok());
    ASSERT_TRUE(writer.AddInt("split.tensors.count", 2).ok());
    ASSERT_TRUE(
        writer.AddTensor("t" + std::to_string(part), quant::WeightFormat::kF32, {32}, HostSpan<const std::byte>(zeros))
            .ok());
    ASSERT_TRUE(writer.Write(dir.path() + "/m-0000" + std::to_string(part + 1) + "-of-00002.gguf").ok());
  }
  const auto result = Inspect(dir.path() + "/m-00002-of-00002.gguf", 4);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->files.size(), 2u);
  ASSERT_EQ(result->tensors.size(), 2u);
  EXPECT_EQ(result->tensors[0].file, 0u);
  EXPECT_EQ(result->tensors[1].file, 1u);
  EXPECT_EQ(result->tensors[1].name, "t1");
}

TEST(InspectTest, MissingFileIsNamed) {
  const auto result = Inspect("/nowhere/model.gguf", 4);
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
  EXPECT_NE(result.status().message().find("/nowhere/model.gguf"), std::string_view::npos);
}

}  // namespace
}  // namespace bellhop::engine
