// What a ring costs, measured: a captured graph of layers that do nothing but ring and wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "cuda/device.h"
#include "cuda/doorbell_channel.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace bellhop::cuda {

class DoorbellProbe {
 public:
  // One row of `hidden` floats with one route, to the only expert of layer 0, again and again: `layers` times in a
  // replay. The device must outlive the probe.
  static Result<std::unique_ptr<DoorbellProbe>> Create(Device* device, int32_t layers, int64_t hidden);

  // Somebody must answer it while layers ring.
  const DoorbellChannel& channel() const { return channel_; }

  // Whether the expert is a miss, so that each layer of later replays rings.
  Status SetRinging(bool rings);
  // One replay; waits for its end. Microseconds of a layer. The device's errors are DoorbellDeviceStatus(channel()).
  Result<double> Replay();

 private:
  struct Inputs;  // of every layer, in device memory
  DoorbellProbe(Stream stream, Event begin, Event end, int32_t layers)
      : stream_(std::move(stream)), begin_(std::move(begin)), end_(std::move(end)), layers_(layers) {}
  Status Prepare(Device* device, int64_t hidden);
  Status SubmitLayers();

  Stream stream_;
  Event begin_, end_;
  int32_t layers_;
  PinnedBuffer channel_memory_, host_inputs_, host_state_;
  DeviceBuffer inputs_, state_, x_, y_;
  DoorbellChannel channel_;
  std::optional<GraphExec> graph_;
};

}  // namespace bellhop::cuda
