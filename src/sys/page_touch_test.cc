#include "sys/page_touch.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

namespace bellhop::sys {
namespace {

std::unique_ptr<WorkerPool> MakePool(size_t workers) {
  auto pool = WorkerPool::Create({.cpus = std::vector<int>(workers, 0), .pin = false});
  return std::move(pool).value();
}

// Every byte of every run once, in chunks, by the workers of its node.
TEST(TouchPagesTest, CoversEveryRunOnce) {
  const auto pool = MakePool(3);
  const NodePartition partition({0, 0, 1});
  const std::vector<PageRun> runs = {{0, 100, 0}, {100, 130, 1}, {200, 205, 0}, {300, 400, 1}};
  std::vector<int> touched(400);
  std::mutex mutex;
  std::vector<uint64_t> progress;
  PageTouchOptions options;
  options.chunk_bytes = 16;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 235u);
    progress.push_back(done);
    return true;
  };
  const Status status = TouchPages(*pool, partition, runs, options, [&](uint64_t begin, uint64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_LE(end - begin, 16u);
    for (uint64_t i = begin; i < end; ++i) ++touched[i];
    return Status();
  });
  ASSERT_TRUE(status.ok());
  for (size_t i = 0; i < touched.size(); ++i) {
    const bool inside = i < 130 || (i >= 200 && i < 205) || i >= 300;
    EXPECT_EQ(touched[i], inside ? 1 : 0) << i;
  }
  ASSERT_GE(progress.size(), 2u);
  EXPECT_EQ(progress.front(), 0u);
  EXPECT_EQ(progress.back(), 235u);
}

TEST(TouchPagesTest, WorkersTouchTheirNode) {
  const auto pool = MakePool(4);
  const NodePartition partition({0, 0, 1, 1});
  const std::vector<PageRun> runs = {{0, 4096, 0}, {4096, 8192, 1}};
  static thread_local int this_worker = -1;
  pool->Run([](int worker, int) { this_worker = worker; });
  PageTouchOptions options;
  options.chunk_bytes = 8;
  const Status status = TouchPages(*pool, partition, runs, options, [&](uint64_t begin, uint64_t) {
    EXPECT_EQ(partition.IndexOfWorker(this_worker), begin < 4096 ? 0 : 1);
    return Status();
  });
  EXPECT_TRUE(status.ok());
}

TEST(TouchPagesTest, TheFirstFailureEndsIt) {
  const auto pool = MakePool(2);
  const std::vector<PageRun> runs = {{0, 1000, 0}};
  int calls = 0;
  std::mutex mutex;
  PageTouchOptions options;
  options.chunk_bytes = 10;
  const Status status =
      TouchPages(*pool, NodePartition({0, 0}), runs, options, [&](uint64_t begin, uint64_t) -> Status {
        const std::lock_guard<std::mutex> lock(mutex);
        ++calls;
        return begin >= 50 ? IoError("page {}", begin) : Status();
      });
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_LE(calls, 8);
}

TEST(TouchPagesTest, ProgressCancels) {
  const auto pool = MakePool(2);
  const std::vector<PageRun> runs = {{0, 1000, 0}};
  PageTouchOptions options;
  options.progress = [](uint64_t, uint64_t) { return false; };
  bool called = false;
  const Status status = TouchPages(*pool, NodePartition({0, 0}), runs, options, [&](uint64_t, uint64_t) {
    called = true;
    return Status();
  });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(called);
}

TEST(TouchPagesTest, NothingToTouchIsDone) {
  const auto pool = MakePool(1);
  EXPECT_TRUE(TouchPages(*pool, NodePartition(), {}, {}, [](uint64_t, uint64_t) { return IoError("called"); }).ok());
}

}  // namespace
}  // namespace bellhop::sys
