#include "sys/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "sys/clock.h"
#include "sys/thread_affinity.h"

namespace bellhop::sys {
namespace {

std::unique_ptr<WorkerPool> MakePool(int workers, int spin_us = 50) {
  const std::vector<int> allowed = *ReadThreadAffinity();
  WorkerPool::Options options;
  options.spin_us = spin_us;
  for (int i = 0; i < workers; ++i) options.cpus.push_back(allowed[static_cast<size_t>(i) % allowed.size()]);
  Result<std::unique_ptr<WorkerPool>> pool = WorkerPool::Create(options);
  EXPECT_TRUE(pool.ok()) << pool.status().ToString();
  return std::move(pool).value();
}

// Sleeps until every worker but the caller is asleep. The test's own time limit catches a pool that never is.
void WaitUntilIdle(const WorkerPool& pool) {
  while (pool.sleeping_workers() != pool.size() - 1) SleepUs(200);
}

TEST(WorkerPoolTest, EveryWorkerRunsOncePerPhase) {
  for (const int workers : {1, 2, 3, 7, 16}) {
    auto pool = MakePool(workers);
    ASSERT_EQ(pool->size(), workers);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(workers));
    for (int i = 0; i < 50; ++i) {
      pool->Run([&](int worker, int count) {
        EXPECT_EQ(count, workers);
        calls[static_cast<size_t>(worker)].fetch_add(1, std::memory_order_relaxed);
      });
    }
    for (const auto& c : calls) EXPECT_EQ(c.load(), 50);
  }
}

TEST(WorkerPoolTest, WorkerZeroIsTheCaller) {
  for (const int workers : {1, 3}) {
    auto pool = MakePool(workers);
    std::vector<std::thread::id> ids(static_cast<size_t>(workers));
    pool->Run([&](int worker, int) { ids[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    for (size_t i = 1; i < ids.size(); ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]);
    }
  }
}

// Plain variables, alternately written by the caller and by the workers: a lost ordering is a wrong sum here and a
// report under ThreadSanitizer.
TEST(WorkerPoolTest, StressPlainDataIsVisibleBothWays) {
  constexpr int kRuns = 100'000;
  auto pool = MakePool(2);
  struct alignas(64) Cell {
    int64_t value = 0;
  };
  std::vector<Cell> cells(2);
  int64_t input = 0, bad = 0;
  for (int i = 0; i < kRuns; ++i) {
    input = i;
    pool->Run([&](int worker, int) { cells[static_cast<size_t>(worker)].value += input + worker; });
    if (cells[0].value + 1 + i != cells[1].value) ++bad;
  }
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(cells[0].value, int64_t{kRuns} * (kRuns - 1) / 2);
  EXPECT_EQ(cells[1].value, cells[0].value + kRuns);
}

TEST(WorkerPoolTest, StressWithMoreWorkersThanCpus) {
  const int workers = static_cast<int>(ReadThreadAffinity()->size()) * 2 + 1;
  auto pool = MakePool(workers);
  EXPECT_EQ(pool->spin_us(), 0);
  ASSERT_FALSE(pool->notes().empty());
  EXPECT_NE(pool->notes()[0].find("share"), std::string::npos);
  std::vector<int64_t> counts(static_cast<size_t>(workers), 0);
  for (int i = 0; i < 2000; ++i) pool->Run([&](int worker, int) { ++counts[static_cast<size_t>(worker)]; });
  for (const int64_t count : counts) EXPECT_EQ(count, 2000);
}

TEST(WorkerPoolTest, IdleWorkersSleepAndWake) {
  for (const int spin_us : {0, 50}) {
    auto pool = MakePool(3, spin_us);
    for (int i = 0; i < 5; ++i) {
      WaitUntilIdle(*pool);
      std::atomic<int> calls{0};
      pool->Run([&](int, int) { calls.fetch_add(1); });
      EXPECT_EQ(calls.load(), 3);
    }
  }
}

TEST(WorkerPoolTest, CallerSleepsThroughALongPhase) {
  auto pool = MakePool(2);
  int finished = 0;
  for (int i = 0; i < 3; ++i) {
    pool->Run([&](int worker, int) {
      if (worker == 0) return;
      SleepUs(3000);
      ++finished;
    });
  }
  EXPECT_EQ(finished, 3);
}

TEST(WorkerPoolTest, RunFromDifferentThreads) {
  auto pool = MakePool(2);
  int64_t total = 0;
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      std::vector<int64_t> parts(2, 0);
      pool->Run([&](int worker, int) { parts[static_cast<size_t>(worker)] = worker + 1; });
      total += parts[0] + parts[1];
    }).join();
  }
  EXPECT_EQ(total, 60);
}

TEST(WorkerPoolTest, DestructorJoinsWorkersThatSleepAndThatSpin) {
  for (int i = 0; i < 20; ++i) {
    auto pool = MakePool(3, i % 2 == 0 ? 0 : 1000);
    if (i % 4 == 0) WaitUntilIdle(*pool);
  }
}

TEST(WorkerPoolTest, RefusedPinningIsANote) {
  WorkerPool::Options options;
  options.cpus = {ReadThreadAffinity()->front(), 60'000};
  Result<std::unique_ptr<WorkerPool>> pool = WorkerPool::Create(options);
  ASSERT_TRUE(pool.ok());
  bool noted = false;
  for (const std::string& note : (*pool)->notes()) noted |= note.find("CPU 60000") != std::string::npos;
  EXPECT_TRUE(noted);
  int calls[2] = {};
  (*pool)->Run([&](int worker, int) { ++calls[worker]; });
  EXPECT_EQ(calls[0] + calls[1], 2);
}

TEST(WorkerPoolTest, WorkersArePinned) {
  const std::vector<int> allowed = *ReadThreadAffinity();
  if (allowed.size() < 2) GTEST_SKIP() << "one CPU allowed: nothing to tell pinned from unpinned";
  auto pool = MakePool(2);
  std::vector<int> affinity;
  pool->Run([&](int worker, int) {
    if (worker == 1) affinity = *ReadThreadAffinity();
  });
  EXPECT_EQ(affinity, std::vector<int>{allowed[1]});
}

TEST(WorkerPoolTest, BadOptionsAreRefused) {
  EXPECT_EQ(WorkerPool::Create({}).status().code(), StatusCode::kInvalidArgument);
  WorkerPool::Options options;
  options.cpus = {0};
  options.spin_us = -1;
  EXPECT_EQ(WorkerPool::Create(options).status().code(), StatusCode::kInvalidArgument);
  options.spin_us = 1;
  options.cpus.assign(100'000, 0);
  EXPECT_EQ(WorkerPool::Create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(WorkerPoolTest, SplitCoversEverythingOnceAndEvenly) {
  for (const int64_t count : {0, 1, 2, 7, 31, 32, 33, 100, 4096, 5001}) {
    for (const int64_t grain : {1, 2, 8, 32, 10'000}) {
      for (const int workers : {1, 2, 3, 7, 16, 64}) {
        int64_t next = 0, most = 0, least = count;
        for (int w = 0; w < workers; ++w) {
          const RowRange range = WorkerPool::Split(count, grain, w, workers);
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.begin, range.end);
          ASSERT_TRUE(range.end == count || range.end % grain == 0);
          most = std::max(most, range.size());
          least = std::min(least, range.size());
          next = range.end;
        }
        ASSERT_EQ(next, count);
        ASSERT_LE(most - least, 2 * grain) << count << " " << grain << " " << workers;
      }
    }
  }
}

TEST(WorkerPoolTest, SplitIsSafeForHugeCounts) {
  const int64_t count = INT64_MAX - 3;
  EXPECT_EQ(WorkerPool::Split(count, 32, 0, 7).begin, 0);
  EXPECT_EQ(WorkerPool::Split(count, 32, 6, 7).end, count);
  EXPECT_EQ(WorkerPool::Split(5, 0, 0, 1).end, 5);
}

TEST(WorkerPoolTest, ParallelForVisitsEachIndexOnce) {
  for (const int workers : {1, 2, 5}) {
    auto pool = MakePool(workers);
    for (const int64_t count : {0, 1, 31, 32, 33, 1000}) {
      std::vector<int> visits(static_cast<size_t>(count), 0);
      pool->ParallelFor(count, 32, [&](RowRange range) {
        for (int64_t i = range.begin; i < range.end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), int64_t{0}), count);
      for (const int v : visits) EXPECT_EQ(v, 1);
    }
  }
}

}  // namespace
}  // namespace bellhop::sys
