#include "store/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "store/expert_store.h"
#include "sys/mapped_file.h"
#include "sys/page_residency.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::store {
namespace {

using manifest::Manifest;
using manifest::Tensor;
using quant::QuantView;

constexpr uint64_t kHidden = 64, kInner = 48, kExperts = 5, kLayers = 3;

// A mapped file with a dense tensor and three expert stacks in each layer; element i of the file is float i.
class MappedModel {
 public:
  MappedModel() {
    const uint64_t stack = kHidden * kInner * kExperts;
    const uint64_t dense = kHidden * 33;
    std::string content((1000 + kLayers * (3 * stack + dense)) * 4, '\0');
    for (size_t i = 0; i < content.size() / 4; ++i) {
      const auto value = static_cast<float>(i);
      std::memcpy(content.data() + i * 4, &value, 4);
    }
    path_ = dir_.Write("model.gguf", content);
    file_ = *sys::MappedFile::Open(path_);
    manifest_.files.push_back({path_, content.size()});
    manifest_.hparams.layers = kLayers;
    manifest_.hparams.hidden = kHidden;
    manifest_.hparams.experts.count = kExperts;
    manifest_.hparams.experts.used = 2;
    for (uint64_t l = 0; l < kLayers; ++l) {
      manifest::ExpertLayer layer;
      layer.layer = LayerId(static_cast<int32_t>(l));
      layer.gate = Add("gate", {kHidden, kInner, kExperts});
      Add("dense", {kHidden, 33, 1});
      layer.up = Add("up", {kHidden, kInner, kExperts});
      layer.down = Add("down", {kInner, kHidden, kExperts});
      manifest_.expert_layers.push_back(layer);
    }
    auto pool = sys::WorkerPool::Create({.cpus = {0, 0}, .pin = false});
    pool_ = std::move(pool).value();
  }

  TouchOptions Touch() { return {.pool = pool_.get(), .partition = &partition_, .progress = {}}; }
  const Manifest& manifest() const { return manifest_; }
  const sys::MappedFile& file() const { return file_; }
  const std::string& path() const { return path_; }
  void SetNodes(const std::vector<int>& nodes) { partition_ = sys::NodePartition(nodes); }

 private:
  int32_t Add(const std::string& name, std::array<uint64_t, 3> dims) {
    Tensor t;
    t.name = name;
    t.n_dims = 3;
    for (size_t i = 0; i < 3; ++i) t.dims[i] = dims[i];
    t.bytes = t.elements() * 4;
    t.offset = at_;
    t.data = file_.bytes().subspan(at_, t.bytes);
    at_ += t.bytes + 32;
    manifest_.tensors.push_back(t);
    return static_cast<int32_t>(manifest_.tensors.size()) - 1;
  }

  sys::TempDir dir_;
  std::string path_;
  sys::MappedFile file_;
  Manifest manifest_;
  uint64_t at_ = 96;
  std::unique_ptr<sys::WorkerPool> pool_;
  sys::NodePartition partition_{{0, 0}};
};

std::vector<std::string> Contents(const ExpertStore& store) {
  std::vector<std::string> contents;
  for (const QuantView& view : store.Matrices()) {
    const auto bytes = static_cast<size_t>(view.rows * view.planes[0].row_bytes);
    contents.emplace_back(reinterpret_cast<const char*>(view.planes[0].data), bytes);
  }
  return contents;
}

bool Inside(HostSpan<const std::byte> range, const std::byte* data) {
  return data >= range.data() && data < range.data() + range.size();
}

TEST(HostMemoryTest, ACopyHasTheSameBytesElsewhere) {
  for (const std::vector<int>& nodes : {std::vector<int>{0, 0}, {0, 1}}) {
    for (const bool release : {false, true}) {
      MappedModel model;
      model.SetNodes(nodes);  // a second node that this machine may not have: bytes are placed by workers all the same
      auto store = ExpertStore::Create(model.manifest());
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      const std::vector<std::string> before = Contents(**store);
      ASSERT_EQ(before.size(), 3 * kExperts * kLayers);
      CopyOptions options{.touch = model.Touch(), .huge_pages = sys::ReadHugePageState()};
      options.release_source = release;
      options.drop_cache = release;
      uint64_t seen = 0, total = 0;
      options.touch.progress = [&](uint64_t done, uint64_t all) {
        seen = done;
        total = all;
        return true;
      };
      const auto report = (*store)->CopyToHugePages(options);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE((*store)->copied());
      EXPECT_EQ(seen, total);
      EXPECT_GE(report->bytes, (*store)->TotalBytes());
      EXPECT_LE(report->bytes, CopyBytes(**store));
      EXPECT_LE(report->huge_bytes.value_or(0), report->bytes);
      EXPECT_EQ(Contents(**store), before);
      for (const QuantView& view : (*store)->Matrices()) {
        EXPECT_FALSE(Inside(model.file().bytes(), view.planes[0].data));
      }
      if (release) {
        // The file's own pages have gone, apart from those with ends of tensors.
        const auto pages = sys::ReadRangePages(model.file().bytes());
        ASSERT_TRUE(pages.has_value());
        EXPECT_LT(pages->resident_bytes, model.file().bytes().size() / 2);
      }
      EXPECT_EQ(report->locality.measured.has_value(), nodes[1] == 1 && sys::CountNodes({}).has_value());
    }
  }
}

TEST(HostMemoryTest, WithoutHugePagesTheCopyIsOnSmallOnes) {
  MappedModel model;
  auto store = ExpertStore::Create(model.manifest());
  ASSERT_TRUE(store.ok());
  sys::HugePageState never;
  never.transparent = "never";
  const auto report = (*store)->CopyToHugePages({.touch = model.Touch(), .huge_pages = never});
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->all_huge());
  EXPECT_FALSE(report->reserved);
}

TEST(HostMemoryTest, CancellingLeavesTheStoreAsItWas) {
  MappedModel model;
  auto store = ExpertStore::Create(model.manifest());
  ASSERT_TRUE(store.ok());
  CopyOptions options{.touch = model.Touch(), .huge_pages = sys::ReadHugePageState()};
  options.touch.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ((*store)->CopyToHugePages(options).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE((*store)->copied());
  for (const QuantView& view : (*store)->Matrices()) EXPECT_TRUE(Inside(model.file().bytes(), view.planes[0].data));
  EXPECT_EQ(Prefault(model.manifest(), **store, options.touch).status().code(), StatusCode::kCancelled);
}

TEST(HostMemoryTest, AShortenedFileIsAnError) {
  MappedModel model;
  auto store = ExpertStore::Create(model.manifest());
  ASSERT_TRUE(store.ok());
  ASSERT_EQ(truncate(model.path().c_str(), 5000), 0);
  const auto prefault = Prefault(model.manifest(), **store, model.Touch());
  ASSERT_FALSE(prefault.ok());
  EXPECT_EQ(prefault.status().code(), StatusCode::kIo);
  EXPECT_NE(prefault.status().message().find(model.path()), std::string_view::npos);
  const auto copy = (*store)->CopyToHugePages({.touch = model.Touch(), .huge_pages = sys::ReadHugePageState()});
  EXPECT_EQ(copy.status().code(), StatusCode::kIo);
  EXPECT_FALSE((*store)->copied());
}

TEST(HostMemoryTest, PrefaultMapsEveryTensor) {
  MappedModel model;
  auto store = ExpertStore::Create(model.manifest());
  ASSERT_TRUE(store.ok());
  model.SetNodes({0, 1});
  uint64_t tensors = 0;
  for (const Tensor& tensor : model.manifest().tensors) tensors += tensor.bytes;
  const auto report = Prefault(model.manifest(), **store, model.Touch());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->bytes, tensors);
  EXPECT_GE(sys::ReadRangePages(model.file().bytes())->resident_bytes, tensors);
  EXPECT_GT(report->locality.planned, 0.7);  // matrices of three and four pages
  EXPECT_LT(report->locality.planned, 1.0);
}

TEST(HostMemoryTest, PrefaultLeavesCopiedExpertsAlone) {
  MappedModel model;
  auto store = ExpertStore::Create(model.manifest());
  ASSERT_TRUE(store.ok());
  CopyOptions options{.touch = model.Touch(), .huge_pages = sys::ReadHugePageState(), .release_source = true};
  ASSERT_TRUE((*store)->CopyToHugePages(options).ok());
  const auto report = Prefault(model.manifest(), **store, model.Touch());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->bytes, kLayers * kHidden * 33 * 4);
}

QuantView View(const std::byte* data, int64_t rows, int64_t row_bytes) {
  QuantView view;
  view.rows = rows;
  view.planes[0] = {data, row_bytes};
  return view;
}

TEST(LayOutCopyTest, NeighboursStayNeighbours) {
  std::vector<std::byte> memory(4096);
  const std::byte* const base = memory.data();
  // Out of order; the first two touch, one is part of another, one stands apart.
  const std::vector<QuantView> views = {View(base + 500, 10, 30), View(base + 100, 40, 10), View(base + 600, 5, 10),
                                        View(base + 2000, 7, 100)};
  const CopyLayout layout = LayOutCopy(views);
  ASSERT_EQ(layout.segments.size(), 2u);
  EXPECT_EQ(layout.segments[0].source, base + 100);
  EXPECT_EQ(layout.segments[0].bytes, 700u);
  EXPECT_EQ(layout.segments[0].offset, 0u);
  EXPECT_EQ(layout.segments[1].source, base + 2000);
  EXPECT_EQ(layout.segments[1].offset, 704u);
  EXPECT_EQ(layout.bytes, 1404u);
  EXPECT_EQ(layout.OffsetOf(base + 100), 0u);
  EXPECT_EQ(layout.OffsetOf(base + 500), 400u);
  EXPECT_EQ(layout.OffsetOf(base + 2100), 804u);
  EXPECT_EQ(LayOutCopy({}).bytes, 0u);
}

}  // namespace
}  // namespace bellhop::store
