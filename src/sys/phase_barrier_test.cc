#include "sys/phase_barrier.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sys/work_ranges.h"

namespace bellhop::sys {
namespace {

std::unique_ptr<WorkerPool> Pool(int workers) {
  auto pool = WorkerPool::Create({.cpus = std::vector<int>(static_cast<size_t>(workers), 0), .pin = false});
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(PhaseBarrierTest, WritesBeforeAreSeenAfter) {
  for (const int workers : {1, 2, 3, 8}) {
    const auto pool = Pool(workers);
    PhaseBarrier barrier(workers);
    std::vector<int> value(static_cast<size_t>(workers)), wrong(static_cast<size_t>(workers));
    for (int run = 0; run < 20; ++run) {
      pool->Run([&](int worker, int n) {
        for (int meeting = 1; meeting <= 5; ++meeting) {
          value[static_cast<size_t>(worker)] = run * 100 + meeting;  // plain: the barrier orders it
          barrier.Wait(worker);
          for (int w = 0; w < n; ++w)
            wrong[static_cast<size_t>(worker)] += value[static_cast<size_t>(w)] != run * 100 + meeting;
          barrier.Wait(worker);
        }
      });
    }
    EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0) << workers << " workers";
  }
}

TEST(PhaseBarrierTest, IdleWorkEndsWhenItSaysSo) {
  const auto pool = Pool(4);
  PhaseBarrier barrier(4);
  std::vector<int> slices(4);
  pool->Run([&](int worker, int) {
    int left = 3;
    barrier.Wait(worker, [&] {
      if (left == 0) return false;
      --left;
      ++slices[static_cast<size_t>(worker)];
      return true;
    });
  });
  for (const int n : slices) EXPECT_LE(n, 3);
}

TEST(WorkRangesTest, EveryUnitIsTakenOnce) {
  for (const int workers : {1, 2, 5}) {
    const auto pool = Pool(workers);
    WorkRanges work(workers);
    for (const int64_t count : {0, 1, 3, 64, 1000}) {
      for (const int64_t most : {1, 7}) {
        std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
        work.Reset(count);
        pool->Run([&](int worker, int) {
          for (WorkRanges::Run run; (run = work.NextRun(worker, most)).begin < run.end;) {
            const RowRange share = WorkerPool::Split(count, 1, run.share, workers);
            EXPECT_LE(share.begin, run.begin);
            EXPECT_LE(run.end, share.end);
            EXPECT_LE(run.end - run.begin, run.share == worker ? most : 1);
            for (int64_t unit = run.begin; unit < run.end; ++unit) taken[static_cast<size_t>(unit)].fetch_add(1);
          }
        });
        for (const auto& n : taken) EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

TEST(WorkRangesTest, OwnShareComesFirstAndInOrder) {
  WorkRanges work(2);
  work.Reset(10);
  EXPECT_EQ(work.First(1), 5);
  for (int64_t unit = 5; unit < 10; ++unit) EXPECT_EQ(work.Next(1), unit);
  EXPECT_EQ(work.First(1), -1);
  EXPECT_EQ(work.Next(1), 4);  // from worker 0, whose next one stays its own
  EXPECT_EQ(work.First(0), 0);
  EXPECT_EQ(work.Next(0), 0);
  for (int64_t unit = 3; unit > 0; --unit) EXPECT_EQ(work.Next(1), unit);
  EXPECT_EQ(work.Next(1), -1);
  EXPECT_EQ(work.Next(0), -1);
}

TEST(WorkRangesTest, RunsGetShorterTowardsTheEndOfAShare) {
  WorkRanges work(1);
  work.Reset(20);
  std::vector<int64_t> sizes;
  for (WorkRanges::Run run; (run = work.NextRun(0, 4)).begin < run.end;) sizes.push_back(run.end - run.begin);
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 4, 4, 2, 1, 1}));
}

TEST(WorkRangesTest, TheFullestShareGivesFirst) {
  WorkRanges work(3);
  work.Reset(12, 2);
  while (work.First(1) >= 0) work.Next(1);
  work.Next(2);
  EXPECT_EQ(work.Next(1), 3);
  EXPECT_EQ(work.Next(1), 11);
}

TEST(WorkRangesTest, SetsAreApart) {
  WorkRanges work(2);
  work.Reset(6, 3, 0);
  work.Reset(4, 1, 3);
  EXPECT_EQ(work.Next(1, 0), 3);
  EXPECT_EQ(work.Next(1, 3), 2);
  EXPECT_EQ(work.First(0, 0), 0);
  EXPECT_EQ(work.First(1, 3), 3);
}

}  // namespace
}  // namespace bellhop::sys
