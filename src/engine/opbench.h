// The synthetic benchmark of one layer of experts: the cold path as a model calls it, from routes in memory to the
// combined output, for every weight format, kernel bundle and number of rows asked for.
//
// Weights are random but valid (quant/random_weights.h) and larger than the caches: each call takes the next experts of
// one big allocation. The read bandwidth that results are held against is that of the same memory, read by the same
// pool in the same run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/options.h"

namespace bellhop::engine {

struct OpbenchCase {
  std::string format;  // as --format takes it: "q4_0", "int4_b32"
  std::string isa;     // kernel bundle: "avx512"
  std::string kernel;  // that computes the products
  int32_t threads = 0;
  int32_t rows = 0;
  int64_t hidden = 0, inter = 0;
  bool prompt = false;           // numeric class of the call
  int32_t experts = 0;           // in memory
  int32_t distinct_experts = 0;  // of one call
  uint64_t weight_bytes = 0;     // of those
  double flops = 0;              // of one call; a multiplication and an addition are two
  std::vector<double> us;        // every timed call, in order
  // The same on the reference kernels. When a call would take many seconds, one with fewer experts was timed:
  // scalar_share of the work is in scalar_us.
  std::vector<double> scalar_us;
  double scalar_share = 1;
};

struct OpbenchBandwidth {
  int32_t threads = 0;
  std::vector<double> gbps;  // one per measurement, spread over the run
};

struct OpbenchReport {
  std::vector<OpbenchCase> cases;
  std::vector<OpbenchBandwidth> bandwidth;  // one per thread count of the cases
  std::vector<std::string> notes;
  bool cancelled = false;  // `cases` holds those that were complete by then
};

struct OpbenchControl {
  // Called before each case and each measurement of the reference, on the calling thread.
  std::function<void(int64_t done, int64_t total, const std::string& what)> progress;
  const std::atomic<bool>* cancel = nullptr;  // polled between calls; null: never
};

// Formats that are part of a list ("all") get a shape of whole blocks, which a note says, and are left out where there
// are no kernels; those asked for by name must fit.
// kInvalidArgument: a shape that a format cannot hold, unknown names, weights that do not fit in the available memory;
// kUnsupported: a device or a kernel bundle that is not there. All are found before anything is timed.
Result<OpbenchReport> RunOpbench(const config::OpbenchOptions& options, const OpbenchControl& control);

}  // namespace bellhop::engine
