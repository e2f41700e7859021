#include "formats/gguf/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "formats/gguf/gguf_for_test.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::formats {
namespace {

using manifest::MetaType;
using quant::WeightFormat;

size_t FilesIn(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// The files with several alignments, nested arrays and all value types come back byte for byte.
TEST(GgufWriter, RewritesGoodFilesByteForByte) {
  for (const char* name : {"ok_all_value_types.gguf", "ok_all_tensor_types.gguf", "ok_nested_arrays.gguf",
                           "ok_no_tensors.gguf", "ok_empty.gguf", "ok_no_metadata.gguf", "ok_empty_values.gguf",
                           "ok_many_keys.gguf", "ok_alignment_4096.gguf"}) {
    const std::vector<std::byte> bytes = ReadBytes(DataPath(name));
    const Result<GgufFile> file = ParseGguf(bytes, name);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    GgufWriter w(file->alignment);
    ASSERT_TRUE(w.AddAll(file->metadata).ok());
    for (const manifest::Tensor& t : file->tensors) {
      const std::vector<uint64_t> dims(t.dims.begin(), t.dims.begin() + t.n_dims);
      ASSERT_TRUE(w.AddTensor(t.name, t.format, dims, t.data).ok());
    }
    const Result<std::vector<std::byte>> again = w.ToBytes();
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, bytes) << name;
    EXPECT_EQ(w.FileBytes(), bytes.size()) << name;
  }
}

TEST(GgufWriter, StreamsPiecesAndReportsProgress) {
  const sys::TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  GgufWriter w(64);
  ASSERT_TRUE(w.AddString("general.architecture", "test").ok());
  ASSERT_TRUE(w.AddTensor("t", WeightFormat::kF32, {5, 3}, [](const GgufWriter::Emit& emit) -> Status {
                 for (int i = 0; i < 15; ++i) {
                   const std::vector<float> one = {static_cast<float>(i)};
                   BELLHOP_TRY(emit({reinterpret_cast<const std::byte*>(one.data()), 4}));
                 }
                 return {};
               }).ok());
  uint64_t last = 0, total = 0;
  ASSERT_TRUE(w.Write(path, [&](uint64_t done, uint64_t all) {
                 EXPECT_GE(done, last);
                 last = done;
                 total = all;
               }).ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(std::filesystem::file_size(path), total);
  EXPECT_EQ(FilesIn(dir.path()), 1u);
  const Result<GgufModel> model = GgufModel::Open(path);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->files()[0].alignment, 64u);
  const manifest::Tensor& t = model->tensors()[0];
  EXPECT_EQ(t.ShapeString(), "[5, 3]");
  for (int i = 0; i < 15; ++i) {
    float value = 0;
    std::memcpy(&value, t.data.data() + 4 * i, 4);
    EXPECT_EQ(value, static_cast<float>(i));
  }
}

TEST(GgufWriter, RefusesValuesThatDoNotFit) {
  GgufWriter w;
  const std::vector<Status> refusals = {
      w.AddUint("k", 256, MetaType::kU8),
      w.AddUint("k", 1, MetaType::kI32),
      w.AddInt("k", 128, MetaType::kI8),
      w.AddInt("k", -32769, MetaType::kI16),
      w.AddFloat("k", 1e300),
      w.AddFloat("k", 1, MetaType::kU8),
      w.AddUint("", 1),
      w.AddUint(std::string(70000, 'k'), 1),
      w.AddUint("general.alignment", 32),
      w.AddTensor("", WeightFormat::kF32, {1}, HostSpan<const std::byte>()),
      w.AddTensor(std::string(65, 't'), WeightFormat::kF32, {1}, nullptr),
      w.AddTensor("t", WeightFormat::kF32, {1, 1, 1, 1, 1}, nullptr),
      w.AddTensor("t", WeightFormat::kF32, {4, 0}, nullptr),
      w.AddTensor("t", WeightFormat::kQ4_0, {33}, nullptr),
      w.AddTensor("t", WeightFormat::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}, nullptr),
      w.AddTensor("t", WeightFormat::kF32, {2}, HostSpan<const std::byte>()),
  };
  for (size_t i = 0; i < refusals.size(); ++i) {
    EXPECT_EQ(refusals[i].code(), StatusCode::kInvalidArgument) << i << ": " << refusals[i].ToString();
  }
  // None of them left a trace.
  EXPECT_EQ(w.FileBytes(), 24u);
  EXPECT_TRUE(w.AddUint("k", 255, MetaType::kU8).ok());
  EXPECT_TRUE(w.AddInt("i", -128, MetaType::kI8).ok());
  EXPECT_TRUE(w.AddInt("l", std::numeric_limits<int64_t>::min(), MetaType::kI64).ok());
  EXPECT_FALSE(w.AddBool("k", true).ok());
  EXPECT_EQ(GgufWriter(24).Write("/nonexistent/x").code(), StatusCode::kNotFound);
  EXPECT_EQ(GgufWriter(24).ToBytes().status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(GgufWriter(1u << 31).ToBytes().status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(GgufWriter(0).ToBytes().status().code(), StatusCode::kInvalidArgument);
}

TEST(GgufWriter, ASourceThatFailsOrMiscountsLeavesNothingBehind) {
  const sys::TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  const std::vector<std::byte> piece(8);
  const auto write = [&](GgufWriter::Source source) {
    GgufWriter w;
    EXPECT_TRUE(w.AddTensor("t", WeightFormat::kF32, {4}, std::move(source)).ok());
    return w.Write(path);
  };
  const Status failed = write([](const GgufWriter::Emit&) { return Cancelled("stopped by the user"); });
  EXPECT_EQ(failed.code(), StatusCode::kCancelled);
  EXPECT_TRUE(Contains(failed.message(), path)) << failed.message();
  EXPECT_TRUE(Contains(failed.message(), "tensor 't'")) << failed.message();
  EXPECT_FALSE(write([&](const GgufWriter::Emit& emit) { return emit(piece); }).ok());
  EXPECT_FALSE(write([&](const GgufWriter::Emit& emit) -> Status {
                 for (int i = 0; i < 3; ++i) BELLHOP_TRY(emit(piece));
                 return {};
               }).ok());
  EXPECT_EQ(FilesIn(dir.path()), 0u);
}

// A size limit stands in for a full disk.
TEST(GgufWriter, AFullDiskIsAClearErrorAndKeepsTheOldFile) {
  const sys::TempDir dir;
  const std::string path = dir.Write("m.gguf", "old");
  GgufWriter w;
  ASSERT_TRUE(TinyMoe::PutTensor(w, "t", {1 << 20}).ok());
  rlimit saved{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &saved), 0);
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = saved;
  small.rlim_cur = 64 * 1024;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = w.Write(path);
  setrlimit(RLIMIT_FSIZE, &saved);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_TRUE(Contains(status.message(), path)) << status.message();
  EXPECT_EQ(FilesIn(dir.path()), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  ASSERT_TRUE(w.Write(path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), w.FileBytes());
}

TEST(GgufWriter, CopyingKeysLeavesOutWhatDescribesTheOldFile) {
  const std::vector<std::byte> bytes = TinyMoe()
                                           .Add([](GgufWriter& w) { return w.AddUint("split.count", 1); })
                                           .Add([](GgufWriter& w) { return w.AddUint("split.no", 0); })
                                           .Bytes();
  const Result<GgufFile> file = ParseGguf(bytes, "m");
  ASSERT_TRUE(file.ok());
  GgufWriter w(128);
  ASSERT_TRUE(w.AddAll(file->metadata).ok());
  const Result<std::vector<std::byte>> copy = w.ToBytes();
  ASSERT_TRUE(copy.ok());
  const Result<GgufFile> again = ParseGguf(*copy, "copy");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_FALSE(again->metadata.Has("split.count"));
  EXPECT_EQ(again->alignment, 128u);
  EXPECT_EQ(*again->metadata.GetString("general.name"), "tiny");
}

}  // namespace
}  // namespace bellhop::formats
