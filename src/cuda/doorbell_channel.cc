#include "cuda/doorbell_channel.h"

#include <cstring>
#include <new>

#include "base/units.h"

namespace bellhop::cuda {
namespace {

constexpr uint64_t kLineFloats = kSignalLineBytes / sizeof(float);

struct Offsets {
  uint64_t ids, weights, x, sums, end;
};

// Each part begins on a line of its own.
Result<Offsets> Layout(const DoorbellShape& shape) {
  if (shape.rows < 1 || shape.rows > kDoorbellMaxRows || shape.used < 1 || shape.hidden < 1) {
    return InvalidArgument(
        "doorbell channel of {} rows, {} experts per row, hidden size {}: rows are 1 to {}, the others"
        " positive",
        shape.rows, shape.used, shape.hidden, kDoorbellMaxRows);
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  uint64_t routes = 0, row_bytes = 0, x_bytes = 0, sum_bytes = 0, end = 0;
  const uint64_t stride = RoundUp(static_cast<uint64_t>(shape.hidden), kLineFloats);
  if (!CheckedMul(rows * static_cast<uint64_t>(shape.used), sizeof(int32_t), &routes) ||
      !CheckedMul(stride, sizeof(float), &row_bytes) || !CheckedMul(row_bytes, rows, &x_bytes) ||
      !CheckedMul(x_bytes, kSumSlots, &sum_bytes)) {
    return InvalidArgument("doorbell channel: hidden size {} is too large", shape.hidden);
  }
  routes = RoundUp(routes, kSignalLineBytes);
  Offsets at{};
  at.ids = RoundUp(sizeof(DoorbellHeader), kSignalLineBytes);
  at.weights = at.ids + routes;
  at.x = at.weights + routes;
  if (!CheckedAdd(at.x, x_bytes, &at.sums) || !CheckedAdd(at.sums, sum_bytes, &end)) {
    return InvalidArgument("doorbell channel: hidden size {} is too large", shape.hidden);
  }
  at.end = end;
  return at;
}

const char* ServiceErrorText(uint32_t detail) {
  return static_cast<ServiceError>(detail) == ServiceError::kBadRequest
             ? "the request names a layer, a row or an expert that does not exist"
             : "the cold path failed";
}

}  // namespace

Result<uint64_t> DoorbellChannelBytes(const DoorbellShape& shape) {
  BELLHOP_TRY_ASSIGN(const Offsets at, Layout(shape));
  return at.end;
}

Result<DoorbellChannel> MakeDoorbellChannel(HostSpan<std::byte> memory, const DoorbellShape& shape) {
  BELLHOP_TRY_ASSIGN(const Offsets at, Layout(shape));
  if (memory.size() < at.end || reinterpret_cast<uintptr_t>(memory.data()) % kSignalLineBytes != 0) {
    return InvalidArgument("doorbell channel: {} bytes at {} are not {} bytes aligned to {}", memory.size(),
                           static_cast<const void*>(memory.data()), at.end, kSignalLineBytes);
  }
  std::byte* base = memory.data();
  DoorbellChannel channel;
  channel.header = new (base) DoorbellHeader();
  channel.ids = reinterpret_cast<int32_t*>(base + at.ids);
  channel.weights = reinterpret_cast<float*>(base + at.weights);
  channel.x = reinterpret_cast<float*>(base + at.x);
  channel.sums = reinterpret_cast<uint32_t*>(base + at.sums);
  channel.max_rows = shape.rows;
  channel.max_used = shape.used;
  channel.hidden = shape.hidden;
  channel.stride = static_cast<int64_t>(RoundUp(static_cast<uint64_t>(shape.hidden), kLineFloats));
  std::memset(channel.sums, 0xFF, at.end - at.sums);  // kNoSum
  return channel;
}

Status DoorbellDeviceStatus(const DoorbellChannel& channel) {
  if (LoadAcquireSystem(channel.header->failed) == 0) return Status();
  const DeviceError& error = channel.header->error;
  switch (error.code) {
    case DeviceErrorCode::kNone: break;
    case DeviceErrorCode::kDeadline:
      return CudaError(
          "layer {}: the CPU did not answer doorbell request {} within {} ms; the cold path hangs or its thread is "
          "dead: "
          "load the model again",
          error.layer, error.seq, error.waited_ns / 1000000);
    case DeviceErrorCode::kAborted:
      return Cancelled("layer {}: the step was aborted while it waited for doorbell request {}; load the model again",
                       error.layer, error.seq);
    case DeviceErrorCode::kOverflow:
      return Internal(
          "layer {}: a doorbell request was refused: it has more rows or experts than the channel's {} and {}, or "
          "request {} is still outstanding",
          error.layer, channel.max_rows, channel.max_used, error.seq);
    case DeviceErrorCode::kService:
      return Internal("layer {}: doorbell request {} failed on the CPU: {}", error.layer, error.seq,
                      ServiceErrorText(error.detail));
  }
  return Internal("layer {}: unknown device error {}", error.layer, static_cast<uint32_t>(error.code));
}

Status DoorbellRowStatus(const RowError& error) {
  switch (error.code) {
    case RowErrorCode::kNone: return Status();
    case RowErrorCode::kRouter:
      return Internal(
          "layer {}: the router's output is not a number, so the sequence cannot go on; the model file or "
          "its hidden state is damaged",
          error.layer);
    case RowErrorCode::kExpert:
      return IoError("layer {}: an expert that the sequence needs could not be read; check the disk and the model file",
                     error.layer);
  }
  return Internal("layer {}: unknown row error {}", error.layer, static_cast<uint32_t>(error.code));
}

}  // namespace bellhop::cuda
