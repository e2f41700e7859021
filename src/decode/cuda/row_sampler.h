// The device sampler with its memory: rows of a step, each as its Sampler would draw, from logits on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "decode/cuda/device_sampling.h"
#include "decode/sampler.h"

namespace bellhop::decode {

// One thread; one step at a time: rows, Submit, then results once the stream has completed. Allocates in Create alone.
class RowSampler {
 public:
  // Biases and penalized tokens of a row that the device takes.
  static constexpr int32_t kMaxEdits = 1024;

  static uint64_t DeviceBytes(int32_t rows, int32_t vocab);
  static uint64_t HostBytes(int32_t rows);
  // kUnsupported in builds without CUDA.
  static Result<std::unique_ptr<RowSampler>> Create(cuda::Device* device, int32_t rows, int32_t vocab);

  // What row `row` of the next step is sampled by: as sampler.Sample(logits, sequence, position) would. False, and the
  // row is as SetGreedy makes it: its sampler has more edits than kMaxEdits.
  bool SetRow(int32_t row, Sampler& sampler, uint64_t sequence, uint64_t position);
  // The largest logit as it is.
  void SetGreedy(int32_t row);

  // logits [rows][stride] on the device; when the work is done they are as they were.
  Status Submit(float* logits, int64_t stride, int32_t rows, const cuda::Stream& stream);
  const DeviceSample& result(int32_t row) const { return results()[row]; }

 private:
  RowSampler(cuda::Device* device, int32_t rows, int32_t vocab) : device_(device), rows_(rows), vocab_(vocab) {}
  DeviceSampling* params() const { return pinned_params_.as<DeviceSampling>().data(); }
  DeviceSample* results() const { return results_.as<DeviceSample>().data(); }
  Status Launch(const SampleArgs& args, const cuda::Stream& stream);

  cuda::Device* device_;
  int32_t rows_, vocab_;
  cuda::PinnedBuffer pinned_params_, biases_, penalized_, results_;
  cuda::DeviceBuffer params_, workspace_;
};

}  // namespace bellhop::decode
