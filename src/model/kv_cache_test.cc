#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "model/sequence_state.h"

namespace bellhop::model {
namespace {

std::unique_ptr<KvPool> MakePool(int32_t pages) {
  auto pool = KvPool::Create({{32, 16}, {0, 0}, {64, 64}}, kernels::KvType::kF16, pages);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(KvPoolTest, LayersAndHeadsOfAPageDoNotOverlap) {
  const std::vector<KvLayerShape> shapes = {{32, 16, 2}, {0, 0}, {64, 64}};
  auto created = KvPool::Create(shapes, kernels::KvType::kF16, 3);
  ASSERT_TRUE(created.ok());
  KvPool& pool = **created;
  EXPECT_EQ(pool.bytes(), KvPool::BytesFor(shapes, kernels::KvType::kF16, 3));
  for (const int32_t page : {0, 1, 2}) {
    EXPECT_EQ(pool.KeyRow(0, 0, page, 1) - pool.KeyRow(0, 0, page, 0), 16 * 2);
    EXPECT_EQ(pool.KeyRow(0, 1, page, 0) - pool.KeyRow(0, 0, page, 0), 64 * 16 * 2);
    EXPECT_EQ(pool.ValueRow(0, 0, page, 0) - pool.KeyRow(0, 1, page, 0), 64 * 16 * 2);
    EXPECT_EQ(pool.ValueRow(0, 1, page, 0) - pool.ValueRow(0, 0, page, 0), 64 * 8 * 2);
    EXPECT_EQ(pool.KeyRow(2, 0, page, 0) - pool.ValueRow(0, 1, page, 0), 64 * 8 * 2);
    EXPECT_EQ(pool.ValueRow(2, 0, page, 0) - pool.KeyRow(2, 0, page, 0), 64 * 64 * 2);
  }
  // A position is found through the block table where it was written.
  const kernels::KvHead keys = pool.KeyHead(0, 1), values = pool.ValueHead(2, 0);
  EXPECT_EQ(keys.base + 2 * keys.page_bytes + 5 * keys.row_bytes, pool.KeyRow(0, 1, 2, 5));
  EXPECT_EQ(values.base + 1 * values.page_bytes + 63 * values.row_bytes, pool.ValueRow(2, 0, 1, 63));
}

TEST(KvLayoutTest, IsThatOfThePool) {
  const std::vector<KvLayerShape> shapes = {{32, 16, 2}, {0, 0}, {64, 64}};
  const KvLayout layout = KvLayout::Create(shapes, kernels::KvType::kF16);
  auto created = KvPool::Create(shapes, kernels::KvType::kF16, 2);
  ASSERT_TRUE(created.ok());
  KvPool& pool = **created;
  EXPECT_EQ(layout.page_bytes() * 2, pool.bytes());
  EXPECT_EQ(layout.BytesFor(2), pool.bytes());
  const std::byte* const start = pool.KeyRow(0, 0, 0, 0);
  for (const int32_t layer : {0, 2}) {
    EXPECT_EQ(pool.KeyRow(layer, 0, 1, 0), start + layout.page_bytes() + layout.key_offset(layer));
    EXPECT_EQ(pool.ValueRow(layer, 0, 0, 0), start + layout.value_offset(layer));
  }
  EXPECT_EQ(pool.KeyRow(0, 1, 0, 0), start + layout.key_offset(0) + 64 * layout.Keys(0, 1).row_bytes);
  EXPECT_EQ(layout.key_offset(1), layout.value_offset(1));  // a layer without attention
}

// Pages somewhere else than in host memory.
class CountingPages final : public KvPages {
 public:
  explicit CountingPages(int32_t pages) : KvPages(pages) {}
  void CopyPage(int32_t from, int32_t to) override { copies.push_back({from, to}); }
  std::vector<std::pair<int32_t, int32_t>> copies;
};

TEST(KvPagesTest, SequencesNeedNoMoreThanCounts) {
  CountingPages pages(4);
  SequenceState a(&pages, 256, 0), b(&pages, 256, 0);
  ASSERT_TRUE(a.Reserve(70).ok());
  a.Accept(70);
  ASSERT_TRUE(b.ShareFrom(a, 70).ok());
  EXPECT_EQ(pages.references(1), 2);
  ASSERT_TRUE(b.Reserve(1).ok());
  EXPECT_EQ(pages.copies, (std::vector<std::pair<int32_t, int32_t>>{{1, 2}}));
  EXPECT_EQ(pages.free_pages(), 1);
  b.Reset();
  a.Reset();
  EXPECT_EQ(pages.free_pages(), pages.pages());
}

TEST(SequenceStateTest, ReservesAcceptsAndTruncates) {
  auto pool = MakePool(4);
  SequenceState sequence(pool.get(), 200, 0);
  ASSERT_TRUE(sequence.Reserve(130).ok());
  EXPECT_EQ(sequence.pages().size(), 3u);
  sequence.Accept(60);  // only the first 60 rows survive
  EXPECT_EQ(sequence.length(), 60);
  EXPECT_EQ(sequence.pages().size(), 1u);
  EXPECT_EQ(pool->free_pages(), 3);
  const Status full = sequence.Reserve(141);
  EXPECT_EQ(full.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(full.message().find("--ctx-size"), std::string_view::npos);
  ASSERT_TRUE(sequence.Reserve(140).ok());
  sequence.Accept(140);
  ASSERT_TRUE(sequence.Truncate(64).ok());
  EXPECT_EQ(sequence.pages().size(), 1u);
  EXPECT_FALSE(sequence.Truncate(65).ok());
  sequence.Reset();
  EXPECT_EQ(pool->free_pages(), 4);
}

TEST(SequenceStateTest, SharedPrefixIsCopiedOnWrite) {
  auto pool = MakePool(6);
  SequenceState a(pool.get(), 256, 0), b(pool.get(), 256, 0);
  ASSERT_TRUE(a.Reserve(100).ok());
  std::memset(pool->KeyRow(0, 0, a.pages()[1], 0), 7, 64);
  a.Accept(100);
  ASSERT_TRUE(b.ShareFrom(a, 70).ok());
  EXPECT_EQ(pool->free_pages(), 4);  // pages are shared
  EXPECT_EQ(b.pages()[1], a.pages()[1]);
  ASSERT_TRUE(b.Reserve(1).ok());  // writes into the shared second page
  EXPECT_NE(b.pages()[1], a.pages()[1]);
  EXPECT_EQ(b.pages()[0], a.pages()[0]);
  EXPECT_EQ(std::memcmp(pool->KeyRow(0, 0, b.pages()[1], 0), pool->KeyRow(0, 0, a.pages()[1], 0), 64), 0);
  a.Reset();
  EXPECT_EQ(pool->references(b.pages()[0]), 1);
}

TEST(SequenceStateTest, EmptyPoolIsAnError) {
  auto pool = MakePool(1);
  SequenceState a(pool.get(), 256, 0), b(pool.get(), 256, 0);
  ASSERT_TRUE(a.Reserve(64).ok());
  EXPECT_EQ(b.Reserve(1).code(), StatusCode::kOutOfMemory);
}

TEST(SequenceStateTest, RecurrentStateResumesAtCheckpointsOnly) {
  auto pool = MakePool(4);
  SequenceState sequence(pool.get(), 256, 2);
  auto advance = [&](int32_t n) {
    ASSERT_TRUE(sequence.Reserve(n).ok());
    sequence.Accept(n);
    sequence.recurrent()[0] = static_cast<float>(sequence.length());
  };
  advance(10);
  sequence.Checkpoint();
  advance(20);
  EXPECT_EQ(sequence.ResumePoint(25), 10);
  EXPECT_EQ(sequence.ResumePoint(9), 0);
  EXPECT_EQ(sequence.ResumePoint(30), 30);
  EXPECT_FALSE(sequence.Truncate(25).ok());
  ASSERT_TRUE(sequence.Truncate(10).ok());
  EXPECT_EQ(sequence.recurrent()[0], 10);
  ASSERT_TRUE(sequence.Truncate(0).ok());
  EXPECT_EQ(sequence.recurrent()[0], 0);
}

}  // namespace
}  // namespace bellhop::model
