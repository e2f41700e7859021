// What the engine uses of a model: steps over rows of sequences, whatever computes them. transformer.h is the CPU,
// gpu_model.h the GPU with the CPU as its cold path.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "model/kv_cache.h"
#include "model/sequence_state.h"
#include "model/spec.h"
#include "model/stages.h"
#include "moe/moe_layer.h"

namespace bellhop::cuda {
class Device;
class Stream;
}  // namespace bellhop::cuda

namespace bellhop::model {

// Bounds TransformerOptions::max_rows; sizes of buffers then fit 64 bits for every spec that a file can hold.
inline constexpr int32_t kMaxStepRows = 65536;

struct TransformerOptions {
  int32_t max_rows = 512;      // rows of one step, 1 to kMaxStepRows
  int32_t context_tokens = 0;  // of one sequence
  int32_t sequences = 1;       // that can be full at the same time
  kernels::KvType kv_type = kernels::KvType::kF16;
};

// What only a model on a GPU moves. Totals since ResetCounts.
struct StepModelTraffic {
  uint64_t rings = 0, zero_cold_layers = 0;
  uint64_t pcie_bytes = 0;  // read or copied over the bus
  uint64_t wait_ns = 0;     // that the GPU waited for the CPU
};

// Work on a step's logits where a GPU has them, submitted behind the step: sampling, which layers above make.
class StepSampler {
 public:
  virtual ~StepSampler() = default;
  // logits [rows][stride] in device memory, of the step's rows in their order. When the work is done they are as
  // before.
  virtual Status Submit(float* logits, int64_t stride, int32_t rows, const cuda::Stream& stream) = 0;
  // After the step: whether the row's logits are no numbers.
  virtual bool IsFault(int32_t row) const = 0;
};

class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual std::unique_ptr<SequenceState> NewSequence() = 0;

  // Runs one step of at most max_rows rows. Every row's sequence must have room (SequenceState::Reserve); the caller
  // accepts rows afterwards. logits [rows that want them, vocab], in row order. kInvalidArgument for a token outside
  // the vocabulary; kInternal "numeric fault" naming the first row whose result is not a number.
  virtual Status Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits) = 0;

  // Where logits are before they come to the host; null: in host memory, and ForwardAndSample is kUnsupported.
  virtual cuda::Device* device() { return nullptr; }
  // A step of the decode class, of 32 rows at most, with `sampler` behind it over all rows. Rows that want logits get
  // them as from Forward.
  virtual Status ForwardAndSample(HostSpan<const StepRow> rows, MatView<float> logits, StepSampler* sampler) {
    return Unsupported("this model's logits are sampled on the host");
  }

  virtual const ModelSpec& spec() const = 0;
  virtual const TransformerOptions& options() const = 0;

  // Of the steps so far; null: a dense model. Not const: counters may have to be fetched from a device.
  virtual const moe::RouteCounts* counts() = 0;
  virtual void ResetCounts() = 0;
  // Null removes it and never fails. kUnsupported: this backend does not report routes. A dense model has none.
  virtual Status SetObserver(moe::RouteObserver* observer) = 0;
  virtual StepModelTraffic Traffic() { return {}; }
};

// What every backend shares.

Status CheckOptions(const TransformerOptions& options);
// Whether the step's size and its tokens are possible.
Status CheckStep(const ModelSpec& spec, const TransformerOptions& options, HostSpan<const StepRow> rows);

// Whether no value is a NaN or infinite.
bool AllFinite(const float* x, int64_t n);

// What is wrong with a row of a step.
inline constexpr uint8_t kBadRouter = 1, kBadLogits = 2;
// "numeric fault" for the first row with such a bit.
Status CheckFaults(HostSpan<const StepRow> rows, HostSpan<const uint8_t> bad_rows);

// The cache of a model: its layers and how many pages it has.
std::vector<KvLayerShape> KvShapes(const ModelSpec& spec);
int64_t KvPageCount(const TransformerOptions& options);

}  // namespace bellhop::model
