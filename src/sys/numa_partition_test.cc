#include "sys/numa_partition.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sys/worker_pool.h"

namespace bellhop::sys {
namespace {

constexpr uint64_t kPage = 4096;

TEST(NodePartitionTest, GroupsNeighbours) {
  const NodePartition partition({0, 0, 0, 2, 2});
  ASSERT_EQ(partition.nodes(), 2);
  EXPECT_EQ(partition.workers(), 5);
  EXPECT_EQ(partition.node(0), 0);
  EXPECT_EQ(partition.node(1), 2);
  EXPECT_EQ(partition.Workers(1).begin, 3);
  EXPECT_EQ(partition.Workers(1).end, 5);
  EXPECT_EQ(partition.IndexOfWorker(2), 0);
  EXPECT_EQ(partition.IndexOfWorker(3), 1);
}

TEST(NodePartitionTest, UnorderedWorkersAreOneNode) {
  for (const std::vector<int>& nodes : {std::vector<int>{0, 1, 0}, std::vector<int>{}, std::vector<int>{3}}) {
    const NodePartition partition(nodes);
    EXPECT_EQ(partition.nodes(), 1);
    EXPECT_EQ(partition.Rows(0, 77).begin, 0);
    EXPECT_EQ(partition.Rows(0, 77).end, 77);
  }
  EXPECT_EQ(NodePartition({3}).node(0), 3);
  EXPECT_EQ(NodePartition().workers(), 1);
}

TEST(NodePartitionTest, RowsAreTheWorkersSplit) {
  for (const std::vector<int>& nodes : {std::vector<int>{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2, 3, 3}, {1, 5}}) {
    const NodePartition partition(nodes);
    for (const int64_t rows : {0, 1, 3, 7, 64, 768, 1001}) {
      for (const int64_t grain : {1, 8, 32}) {
        int64_t expected = 0;
        for (int i = 0; i < partition.nodes(); ++i) {
          const RowRange range = partition.Rows(i, rows, grain);
          EXPECT_EQ(range.begin, expected);
          expected = range.end;
          const RowRange workers = partition.Workers(i);
          for (int64_t w = workers.begin; w < workers.end; ++w) {
            const RowRange own = WorkerPool::Split(rows, grain, static_cast<int>(w), partition.workers());
            EXPECT_GE(own.begin, range.begin);
            EXPECT_LE(own.end, range.end);
          }
        }
        EXPECT_EQ(expected, rows);
      }
    }
  }
  // Three of four workers: three quarters.
  EXPECT_EQ(NodePartition({0, 0, 0, 1}).Rows(0, 768).end, 576);
}

// One matrix on two nodes: its first half and its second.
TEST(AssignPagesTest, SplitsAMatrixInTwo) {
  const NodePartition partition({0, 1});
  const std::vector<MatrixBytes> matrices = {{.offset = 8 * kPage, .rows = 64, .row_bytes = 1024}};
  const PagePlan plan = AssignPages(partition, matrices, kPage);
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[0].begin, 8 * kPage);
  EXPECT_EQ(plan.runs[0].end, 16 * kPage);
  EXPECT_EQ(plan.runs[0].node_index, 0);
  EXPECT_EQ(plan.runs[1].begin, 16 * kPage);
  EXPECT_EQ(plan.runs[1].end, 24 * kPage);
  EXPECT_EQ(plan.runs[1].node_index, 1);
  EXPECT_EQ(plan.bytes, 65536u);
  EXPECT_EQ(plan.local_share(), 1);
}

TEST(AssignPagesTest, SharedPagesGoToTheLargerPart) {
  const NodePartition partition({0, 1});
  // Half of 6 rows of 1000 bytes is 3000: page 0 holds 3000 bytes of node 0 and 1096 of node 1.
  const std::vector<MatrixBytes> matrices = {{.offset = 0, .rows = 6, .row_bytes = 1000}};
  const PagePlan plan = AssignPages(partition, matrices, kPage);
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[0].end, kPage);
  EXPECT_EQ(plan.runs[1].node_index, 1);
  EXPECT_EQ(plan.runs[1].end, 2 * kPage);
  EXPECT_EQ(plan.bytes, 6000u);
  EXPECT_EQ(plan.local_bytes, 6000u - 1096u);
}

TEST(AssignPagesTest, MatricesSmallerThanAHugePageAreHalfLocal) {
  const NodePartition partition({0, 1});
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  std::vector<MatrixBytes> matrices;
  for (uint64_t i = 0; i < 64; ++i) matrices.push_back({.offset = i * 786432, .rows = 768, .row_bytes = 1024});
  const PagePlan small = AssignPages(partition, matrices, kPage);
  EXPECT_EQ(small.local_share(), 1);
  const PagePlan huge = AssignPages(partition, matrices, kHuge);
  EXPECT_LT(huge.local_share(), 0.7);
  EXPECT_GE(huge.local_share(), 0.5);
}

TEST(AssignPagesTest, OneNodeIsOneRunUpToGaps) {
  const std::vector<MatrixBytes> matrices = {{.offset = 100, .rows = 10, .row_bytes = 1000},
                                             {.offset = 10'100, .rows = 3, .row_bytes = 50},
                                             {.offset = 50'000, .rows = 1, .row_bytes = 10}};
  const PagePlan plan = AssignPages(NodePartition({0, 0, 0}), matrices, kPage);
  ASSERT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.runs[0].begin, 0u);
  EXPECT_EQ(plan.runs[0].end, 3 * kPage);
  EXPECT_EQ(plan.runs[1].begin, 12 * kPage);
  EXPECT_EQ(plan.runs[1].end, 13 * kPage);
  EXPECT_EQ(plan.local_bytes, plan.bytes);
}

TEST(AssignPagesTest, NothingNeedsNoPages) {
  EXPECT_TRUE(AssignPages(NodePartition({0, 1}), {}, kPage).runs.empty());
  const std::vector<MatrixBytes> empty = {{.offset = 5, .rows = 0, .row_bytes = 10}};
  EXPECT_TRUE(AssignPages(NodePartition({0, 1}), empty, kPage).runs.empty());
  EXPECT_EQ(AssignPages(NodePartition({0, 1}), empty, kPage).local_share(), 1);
}

TEST(AssignPagesTest, MatricesThatOverlapCountOnce) {
  const std::vector<MatrixBytes> matrices = {{.offset = 0, .rows = 8, .row_bytes = 2048},
                                             {.offset = 0, .rows = 8, .row_bytes = 2048},
                                             {.offset = 8192, .rows = 8, .row_bytes = 2048}};
  const PagePlan plan = AssignPages(NodePartition({0, 1}), matrices, kPage);
  EXPECT_EQ(plan.bytes, 24576u);
  uint64_t end = 0;
  for (const PageRun& run : plan.runs) {
    EXPECT_EQ(run.begin, end);
    end = run.end;
  }
  EXPECT_EQ(end, 24576u);
}

// Against a byte-by-byte count.
TEST(AssignPagesTest, EqualsCountingBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::vector<int> nodes;
    for (int node = 0, count = 1 + static_cast<int>(random() % 4); node < count; ++node) {
      nodes.insert(nodes.end(), 1 + random() % 3, node);
    }
    const NodePartition partition(nodes);
    std::vector<MatrixBytes> matrices;
    uint64_t offset = random() % 100;
    for (int m = 0; m < 12; ++m) {
      const MatrixBytes matrix{.offset = offset,
                               .rows = static_cast<int64_t>(random() % 40),
                               .row_bytes = static_cast<int64_t>(1 + random() % 40)};
      matrices.push_back(matrix);
      offset += matrix.bytes() + (random() % 3 == 0 ? random() % 300 : 0);
    }
    constexpr uint64_t kTinyPage = 64;
    std::map<uint64_t, std::map<int, uint64_t>> pages;
    for (const MatrixBytes& matrix : matrices) {
      for (int i = 0; i < partition.nodes(); ++i) {
        const RowRange rows = partition.Rows(i, matrix.rows);
        for (int64_t b = rows.begin * matrix.row_bytes; b < rows.end * matrix.row_bytes; ++b) {
          ++pages[(matrix.offset + static_cast<uint64_t>(b)) / kTinyPage][i];
        }
      }
    }
    const PagePlan plan = AssignPages(partition, matrices, kTinyPage);
    uint64_t local = 0, seen = 0, last_end = 0;
    for (const PageRun& run : plan.runs) {
      EXPECT_GE(run.begin, last_end);
      last_end = run.end;
      for (uint64_t page = run.begin / kTinyPage; page < run.end / kTinyPage; ++page, ++seen) {
        ASSERT_TRUE(pages.contains(page));
        uint64_t most = 0;
        for (const auto& [node, bytes] : pages[page]) most = std::max(most, bytes);
        EXPECT_EQ(pages[page][run.node_index], most);
        local += most;
      }
    }
    EXPECT_EQ(seen, pages.size());
    EXPECT_EQ(plan.local_bytes, local);
  }
}

}  // namespace
}  // namespace bellhop::sys
