// How rows, and the pages that hold them, are divided over NUMA nodes. Pure functions: who touches the pages is decided
// in page_touch.h, where they ended up is asked in page_residency.h.
//
// Contract between whoever places bytes and whoever computes: of every matrix, node i reads the rows Rows(i, rows), and
// its workers share these. On one node that is every row.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"

namespace bellhop::sys {

class NodePartition {
 public:
  // One node with one worker.
  NodePartition() : NodePartition(std::vector<int>{0}) {}
  // worker_nodes[w]: the NUMA node of worker w. Workers of a node must be neighbours, as ChooseWorkerCpus orders them;
  // any other order (or none at all) makes one node of all workers.
  explicit NodePartition(const std::vector<int>& worker_nodes);

  int nodes() const { return static_cast<int>(nodes_.size()); }
  int workers() const { return workers_; }
  // The system's number of the node with index i in [0, nodes()).
  int node(int i) const { return nodes_[static_cast<size_t>(i)].number; }
  // Its workers.
  RowRange Workers(int i) const { return nodes_[static_cast<size_t>(i)].workers; }
  int IndexOfWorker(int worker) const;

  // The rows of [0, rows) that belong to node i: contiguous, ascending with i, all rows covered, bounds multiples of
  // `grain` (or `rows`), in proportion to the node's workers. It is the union of WorkerPool::Split over its workers, so
  // ParallelFor over the rows of a matrix reads what the node owns.
  RowRange Rows(int i, int64_t rows, int64_t grain = 1) const;

 private:
  struct Node {
    int number = 0;
    RowRange workers;
  };
  std::vector<Node> nodes_;
  int workers_ = 1;
};

// Rows of equal size, one after the other, at an offset from anything page-aligned.
struct MatrixBytes {
  uint64_t offset = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;

  uint64_t bytes() const { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(row_bytes); }
};

// Whole pages [begin, end) of one node.
struct PageRun {
  uint64_t begin = 0, end = 0;
  int node_index = 0;

  uint64_t bytes() const { return end - begin; }
};

struct PagePlan {
  std::vector<PageRun> runs;  // ascending, without overlap; neighbours differ in node or have a gap between them
  uint64_t bytes = 0;         // of the matrices
  uint64_t local_bytes = 0;   // of them those on pages of the node that reads them

  double local_share() const { return bytes > 0 ? static_cast<double>(local_bytes) / static_cast<double>(bytes) : 1; }
};

// Gives every page that matrices touch to the node that owns most of the bytes on it (the first one when equal).
// `matrices` ascend by offset (of two that overlap the first one counts); page_bytes is not 0. A matrix smaller than a
// few pages is local in part only, which local_share() tells.
PagePlan AssignPages(const NodePartition& partition, HostSpan<const MatrixBytes> matrices, uint64_t page_bytes);

}  // namespace bellhop::sys
