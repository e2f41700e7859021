#include "sys/numa_partition.h"

#include <algorithm>
#include <set>

#include "sys/worker_pool.h"

namespace bellhop::sys {
namespace {

// Collects bytes page by page, in ascending order.
class PageSweep {
 public:
  PageSweep(int nodes, uint64_t page_bytes, PagePlan* plan)
      : page_bytes_(page_bytes), on_page_(static_cast<size_t>(nodes)), plan_(plan) {}

  void Add(uint64_t begin, uint64_t end, int node_index) {
    begin = std::max(begin, done_);  // what two matrices share counts once
    if (begin >= end) return;
    done_ = end;
    plan_->bytes += end - begin;
    while (begin < end) {
      const uint64_t page = begin / page_bytes_ * page_bytes_;
      if (page != page_) Flush();
      if (begin == page && end - begin >= page_bytes_) {
        const uint64_t whole = (end - begin) / page_bytes_ * page_bytes_;
        plan_->local_bytes += whole;
        Append({begin, begin + whole, node_index});
        begin += whole;
        continue;
      }
      const uint64_t part = std::min(end, page + page_bytes_) - begin;
      page_ = page;
      touched_ = true;
      on_page_[static_cast<size_t>(node_index)] += part;
      begin += part;
    }
  }

  // Gives the page that was begun to its owner.
  void Flush() {
    if (!touched_) return;
    const auto most = std::max_element(on_page_.begin(), on_page_.end());
    plan_->local_bytes += *most;
    Append({page_, page_ + page_bytes_, static_cast<int>(most - on_page_.begin())});
    std::fill(on_page_.begin(), on_page_.end(), 0);
    touched_ = false;
  }

 private:
  void Append(const PageRun& run) {
    std::vector<PageRun>& runs = plan_->runs;
    if (!runs.empty() && runs.back().end == run.begin && runs.back().node_index == run.node_index) {
      runs.back().end = run.end;
    } else {
      runs.push_back(run);
    }
  }

  uint64_t page_bytes_;
  uint64_t page_ = 0;
  uint64_t done_ = 0;              // end of what was added
  bool touched_ = false;           // on_page_ holds something
  std::vector<uint64_t> on_page_;  // bytes by node on page_
  PagePlan* plan_;
};

}  // namespace

NodePartition::NodePartition(const std::vector<int>& worker_nodes) {
  workers_ = std::max(static_cast<int>(worker_nodes.size()), 1);
  std::set<int> seen;
  for (size_t w = 0; w < worker_nodes.size(); ++w) {
    const auto worker = static_cast<int64_t>(w);
    if (w > 0 && worker_nodes[w] == worker_nodes[w - 1]) {
      nodes_.back().workers.end = worker + 1;
      continue;
    }
    if (!seen.insert(worker_nodes[w]).second) {  // a node in two places
      nodes_.clear();
      break;
    }
    nodes_.push_back({worker_nodes[w], {worker, worker + 1}});
  }
  if (nodes_.empty()) nodes_.push_back({worker_nodes.empty() ? 0 : worker_nodes[0], {0, workers_}});
}

int NodePartition::IndexOfWorker(int worker) const {
  for (int i = 0; i < nodes(); ++i) {
    if (worker < Workers(i).end) return i;
  }
  return nodes() - 1;
}

RowRange NodePartition::Rows(int i, int64_t rows, int64_t grain) const {
  const RowRange range = Workers(i);
  return {WorkerPool::Split(rows, grain, static_cast<int>(range.begin), workers_).begin,
          WorkerPool::Split(rows, grain, static_cast<int>(range.end) - 1, workers_).end};
}

PagePlan AssignPages(const NodePartition& partition, HostSpan<const MatrixBytes> matrices, uint64_t page_bytes) {
  PagePlan plan;
  PageSweep sweep(partition.nodes(), page_bytes, &plan);
  for (const MatrixBytes& matrix : matrices) {
    for (int i = 0; i < partition.nodes(); ++i) {
      const RowRange rows = partition.Rows(i, matrix.rows);
      sweep.Add(matrix.offset + static_cast<uint64_t>(rows.begin * matrix.row_bytes),
                matrix.offset + static_cast<uint64_t>(rows.end * matrix.row_bytes), i);
    }
  }
  sweep.Flush();
  return plan;
}

}  // namespace bellhop::sys
