#include "formats/gguf/gguf_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "formats/gguf/gguf_for_test.h"
#include "formats/gguf/split_files.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::formats {
namespace {

using manifest::MetaType;

struct PartSpec {
  uint64_t number = 0;  // split.no
  uint64_t count = 3;
  uint64_t total = 4;
  std::string name = "tiny";
  std::vector<std::string> tensors;
  bool general = true;  // carries general.*
};

std::string PartText(const PartSpec& spec) {
  GgufWriter w;
  if (spec.general) {
    EXPECT_TRUE(w.AddString("general.architecture", "test").ok());
    EXPECT_TRUE(w.AddString("general.name", spec.name).ok());
  }
  EXPECT_TRUE(w.AddUint("split.no", spec.number, MetaType::kU16).ok());
  EXPECT_TRUE(w.AddUint("split.count", spec.count, MetaType::kU16).ok());
  EXPECT_TRUE(w.AddInt("split.tensors.count", static_cast<int64_t>(spec.total)).ok());
  std::vector<std::vector<float>> data;
  data.reserve(spec.tensors.size());
  for (const std::string& tensor : spec.tensors) {
    data.emplace_back(4, static_cast<float>(tensor[0]));
    EXPECT_TRUE(w.AddTensor(tensor, quant::WeightFormat::kF32, {4},
                            {reinterpret_cast<const std::byte*>(data.back().data()), 16})
                    .ok());
  }
  const Result<std::vector<std::byte>> bytes = w.ToBytes();
  EXPECT_TRUE(bytes.ok());
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

// Three parts as splitters write them: the first carries the keys, the others only what belongs to the split.
class SplitTest : public testing::Test {
 protected:
  void SetUp() override {
    parts_.push_back({.number = 0, .tensors = {"a", "b"}});
    parts_.push_back({.number = 1, .tensors = {"c"}, .general = false});
    parts_.push_back({.number = 2, .tensors = {"d"}, .general = false});
  }
  std::string WritePart(size_t i) { return dir_.Write(Name(i), PartText(parts_[i])); }
  static std::string Name(size_t i) { return MakePartName("m", static_cast<uint32_t>(i + 1), 3); }
  void WriteAll() {
    for (size_t i = 0; i < parts_.size(); ++i) WritePart(i);
  }
  std::string Path(size_t i) const { return dir_.path() + "/" + Name(i); }

  sys::TempDir dir_;
  std::vector<PartSpec> parts_;
};

TEST_F(SplitTest, EveryPartOpensTheWholeModel) {
  WriteAll();
  for (size_t given = 0; given < 3; ++given) {
    const Result<GgufModel> model = GgufModel::Open(Path(given));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->architecture(), "test");
    ASSERT_EQ(model->files().size(), 3u);
    ASSERT_EQ(model->tensors().size(), 4u);
    const char* names = "abcd";
    const uint32_t files[] = {0, 0, 1, 2};
    for (size_t i = 0; i < 4; ++i) {
      const manifest::Tensor& tensor = model->tensors()[i];
      EXPECT_EQ(tensor.name, std::string(1, names[i]));
      EXPECT_EQ(tensor.file, files[i]);
      float value = 0;
      std::memcpy(&value, tensor.data.data(), sizeof(value));
      EXPECT_EQ(value, static_cast<float>(names[i]));
      model->WillNeed(tensor);
    }
  }
}

TEST_F(SplitTest, DataStayInPlaceWhenTheModelMoves) {
  WriteAll();
  Result<GgufModel> opened = GgufModel::Open(Path(0));
  ASSERT_TRUE(opened.ok());
  const std::byte* before = opened->tensors()[3].data.data();
  const GgufModel moved = std::move(opened).value();
  EXPECT_EQ(moved.tensors()[3].data.data(), before);
  EXPECT_GT(TouchAllBytes(moved), 0u);
}

TEST_F(SplitTest, MissingPartsAreListedByName) {
  WritePart(1);
  const Status status = GgufModel::Open(Path(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status.message(), "part 2 of 3")) << status.message();
  EXPECT_TRUE(Contains(status.message(), Path(0))) << status.message();
  EXPECT_TRUE(Contains(status.message(), Path(2))) << status.message();
  WritePart(0);
  const Status one = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(one.code(), StatusCode::kNotFound);
  EXPECT_FALSE(Contains(one.message(), "00002-of")) << one.message();
  EXPECT_TRUE(Contains(one.message(), Name(2))) << one.message();
}

TEST_F(SplitTest, ManyMissingPartsMakeAShortMessage) {
  parts_[0].count = 60000;
  const std::string path = dir_.Write("m-00001-of-60000.gguf", PartText(parts_[0]));
  const Status status = GgufModel::Open(path).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_LT(status.message().size(), 4000u);
  EXPECT_TRUE(Contains(status.message(), "more")) << status.message();
}

TEST_F(SplitTest, APartWithoutAPartNameSaysSo) {
  const std::string path = dir_.Write("model.gguf", PartText(parts_[1]));
  const Status status = GgufModel::Open(path).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(status.message(), "part 2 of 3")) << status.message();
  EXPECT_TRUE(Contains(status.message(), "-00002-of-00003.gguf")) << status.message();
}

TEST_F(SplitTest, ANameThatContradictsTheMetadataIsRefused) {
  const std::string path = dir_.Write(Name(0), PartText(parts_[1]));
  EXPECT_EQ(GgufModel::Open(path).status().code(), StatusCode::kInvalidArgument);
  WriteAll();
  dir_.Write(Name(2), PartText(parts_[1]));
  const Status sibling = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(sibling.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(sibling.message(), "split.no")) << sibling.message();
}

TEST_F(SplitTest, PartsOfDifferentModelsAreRefused) {
  WriteAll();
  parts_[2].general = true;
  parts_[2].name = "other";
  WritePart(2);
  const Status name = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(name.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(name.message(), "general.name")) << name.message();
  EXPECT_TRUE(Contains(name.message(), Name(2))) << name.message();

  parts_[2].name = "tiny";
  WritePart(2);
  EXPECT_TRUE(GgufModel::Open(Path(0)).ok());

  parts_[2].count = 4;
  WritePart(2);
  EXPECT_TRUE(Contains(GgufModel::Open(Path(0)).status().message(), "split.count"));

  parts_[2].count = 3;
  parts_[2].total = 9;
  WritePart(2);
  EXPECT_TRUE(Contains(GgufModel::Open(Path(0)).status().message(), "split.tensors.count"));

  parts_[2].total = 4;
  parts_[2].tensors = {"d", "e"};
  WritePart(2);
  const Status total = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(total.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(total.message(), "split.tensors.count")) << total.message();

  parts_[2].tensors = {"a"};
  WritePart(2);
  const Status twice = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(twice.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(twice.message(), "tensor 'a'")) << twice.message();
  EXPECT_TRUE(Contains(twice.message(), Name(0))) << twice.message();
}

TEST_F(SplitTest, ADamagedSiblingIsNamed) {
  WriteAll();
  dir_.Write(Name(2), PartText(parts_[2]).substr(0, 100));
  const Status status = GgufModel::Open(Path(0)).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(status.message(), Name(2))) << status.message();
}

TEST_F(SplitTest, PartsJoinedByteByByteAreRecognised) {
  const std::string joined = PartText(parts_[0]) + PartText(parts_[1]) + PartText(parts_[2]);
  for (const std::string& name : {std::string("joined.gguf"), Name(0)}) {
    const Status status = GgufModel::Open(dir_.Write(name, joined)).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_TRUE(Contains(status.message(), "joined byte by byte")) << status.message();
  }
  // A first part without tensors ends with its keys, unpadded.
  parts_[0].tensors.clear();
  const std::string keys_first = PartText(parts_[0]) + PartText(parts_[1]);
  EXPECT_TRUE(Contains(GgufModel::Open(dir_.Write("k.gguf", keys_first)).status().message(), "joined byte by byte"));
}

TEST_F(SplitTest, AFirstPartMayHoldKeysOnly) {
  parts_[0].tensors.clear();
  parts_[1].tensors = {"a", "b", "c"};
  WriteAll();
  const Result<GgufModel> model = GgufModel::Open(Path(0));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->tensors().size(), 4u);
}

TEST_F(SplitTest, NonsenseSplitKeysAreRefused) {
  for (const auto& [number, count] : {std::pair<uint64_t, uint64_t>{3, 3}, {7, 0}, {65535, 2}}) {
    const Status status =
        GgufModel::Open(dir_.Write("n.gguf", PartText({.number = number, .count = count, .tensors = {"a"}}))).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_TRUE(Contains(status.message(), "split.no")) << status.message();
  }
}

TEST(GgufModel, AWholeFileWithAPartLikeNameIsAWholeFile) {
  const sys::TempDir dir;
  const std::vector<std::byte> bytes = TinyMoe().Bytes();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const char* name : {"x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "y-00001-of-00002.gguf/model.gguf"}) {
    const Result<GgufModel> model = GgufModel::Open(dir.Write(name, text));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->files().size(), 1u);
    EXPECT_EQ(model->total_bytes(), text.size());
  }
}

TEST(GgufModel, OpensContainersWithoutAnArchitecture) {
  for (const char* name : {"ok_empty.gguf", "ok_no_metadata.gguf", "ok_all_value_types.gguf"}) {
    const Result<GgufModel> model = GgufModel::Open(DataPath(name));
    EXPECT_TRUE(model.ok()) << model.status().ToString();
  }
  EXPECT_EQ(GgufModel::Open(DataPath("ok_empty.gguf"))->architecture(), "");
  EXPECT_EQ(GgufModel::Open(DataPath("ok_all_value_types.gguf"))->architecture(), "test");
}

TEST(GgufModel, OpenErrorsNameThePath) {
  const Status missing = GgufModel::Open("/nonexistent/model.gguf").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(missing.message(), "/nonexistent/model.gguf"));
  const sys::TempDir dir;
  EXPECT_FALSE(GgufModel::Open(dir.path()).ok());
}

TEST(PartName, ParsesOnlyTheExactForm) {
  const std::optional<PartName> name = ParsePartName("/d/x-1-00002-of-00011.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "/d/x-1");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 11u);
  EXPECT_EQ(MakePartName(name->prefix, name->number, name->count), "/d/x-1-00002-of-00011.gguf");
  for (const char* other : {"", "x.gguf", "x-0002-of-00011.gguf", "x-00002-of-00011.bin", "x-00002-of-0011.gguf",
                            "x_00002-of-00011.gguf", "x-0000a-of-00011.gguf", "x-00002-of-00011.gguf/model.gguf"}) {
    EXPECT_FALSE(ParsePartName(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace bellhop::formats
