#include "engine/quantize_convert.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/codec.h"

namespace bellhop::engine {
namespace {

using quant::Traits;
using quant::WeightFormat;

// Elements that a worker decodes at a time: a row, or a part of a long one. A multiple of every block, and small enough
// that the f32 values stay in the L2 cache.
constexpr uint64_t kPieceElements = 65536;
constexpr uint64_t kChunkElements = uint64_t{4} << 20;  // 16 MiB of F32, the widest format
constexpr uint64_t kCopyBytes = uint64_t{16} << 20;

bool IsCancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

Status CancelledStatus() { return Cancelled("cancelled; nothing was written"); }

uint64_t Bytes(WeightFormat format, uint64_t elements) {
  return elements / Traits(format).block_elems * Traits(format).block_bytes;
}

// From 65520 up a value rounds to infinity in binary16.
Status CheckF16Range(const float* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i]) && std::fabs(values[i]) >= 65520.0f) {
      return InvalidArgument("value {} exceeds the range of F16; use BF16 or F32 for this tensor (--tensor-type)",
                             values[i]);
    }
  }
  return Status();
}

// The pieces of a tensor: piece p covers part p % per_row of row p / per_row.
struct Pieces {
  explicit Pieces(const manifest::Tensor& tensor)
      : cols(tensor.dims[0]),
        per_row((cols + kPieceElements - 1) / kPieceElements),
        total(tensor.rows() * per_row),
        per_chunk(std::max<uint64_t>(1, kChunkElements / std::min(cols, kPieceElements))) {}

  uint64_t row(uint64_t piece) const { return piece / per_row; }
  // First element in the tensor; `piece` may be one past the last.
  uint64_t begin(uint64_t piece) const { return row(piece) * cols + piece % per_row * kPieceElements; }
  uint64_t elements(uint64_t piece) const { return std::min(kPieceElements, cols - piece % per_row * kPieceElements); }

  uint64_t cols, per_row, total, per_chunk;
};

class Converter {
 public:
  Converter(const manifest::Tensor& tensor, WeightFormat to, sys::WorkerPool& pool)
      : tensor_(tensor),
        to_(to),
        pool_(pool),
        pieces_(tensor),
        scratch_(static_cast<size_t>(pool.size())),
        failures_(static_cast<size_t>(pool.size())) {
    for (std::vector<float>& values : scratch_) {
      values.resize(static_cast<size_t>(std::min(pieces_.cols, kPieceElements)));
    }
  }

  uint64_t pieces() const { return pieces_.total; }
  uint64_t pieces_per_chunk() const { return pieces_.per_chunk; }

  // Pieces [begin, end) into out_.
  Result<HostSpan<const std::byte>> Chunk(uint64_t begin, uint64_t end) {
    const uint64_t first = pieces_.begin(begin);
    const uint64_t bytes = Bytes(to_, pieces_.begin(end) - first);
    if (out_.size() < bytes) out_.resize(static_cast<size_t>(bytes));
    pool_.Run([&](int worker, int workers) {
      const RowRange range = sys::WorkerPool::Split(static_cast<int64_t>(end - begin), 1, worker, workers);
      Status& failure = failures_[static_cast<size_t>(worker)];
      for (int64_t i = range.begin; i < range.end && failure.ok(); ++i) {
        const uint64_t piece = begin + static_cast<uint64_t>(i);
        failure = Piece(piece, worker, out_.data() + Bytes(to_, pieces_.begin(piece) - first));
      }
    });
    // Workers hold ascending ranges, so this is the first failure in the tensor whatever their number.
    for (const Status& failure : failures_) BELLHOP_TRY(failure);
    return HostSpan<const std::byte>(out_.data(), static_cast<size_t>(bytes));
  }

 private:
  Status Piece(uint64_t piece, int worker, std::byte* dst) {
    const uint64_t count = pieces_.elements(piece);
    float* values = scratch_[static_cast<size_t>(worker)].data();
    quant::DecodeRow(tensor_.format, tensor_.data.data() + Bytes(tensor_.format, pieces_.begin(piece)),
                     static_cast<int64_t>(count), values);
    Status status = to_ == WeightFormat::kF16 ? CheckF16Range(values, count) : Status();
    if (status.ok()) status = quant::EncodeRow(to_, values, static_cast<int64_t>(count), nullptr, dst);
    return status.WithContext(fmt::format("row {}", pieces_.row(piece)));
  }

  const manifest::Tensor& tensor_;
  WeightFormat to_;
  sys::WorkerPool& pool_;
  Pieces pieces_;
  std::vector<std::vector<float>> scratch_;  // one per worker
  std::vector<Status> failures_;
  std::vector<std::byte> out_;
};

}  // namespace

Status ConvertTensor(const manifest::Tensor& tensor, WeightFormat to, sys::WorkerPool& pool,
                     const std::atomic<bool>* cancel, const formats::GgufWriter::Emit& emit) {
  Converter converter(tensor, to, pool);
  for (uint64_t at = 0; at < converter.pieces(); at += converter.pieces_per_chunk()) {
    if (IsCancelled(cancel)) return CancelledStatus();
    const uint64_t end = std::min(converter.pieces(), at + converter.pieces_per_chunk());
    BELLHOP_TRY_ASSIGN(const HostSpan<const std::byte> chunk, converter.Chunk(at, end));
    BELLHOP_TRY(emit(chunk));
  }
  return Status();
}

Status CopyTensor(const manifest::Tensor& tensor, const std::atomic<bool>* cancel,
                  const formats::GgufWriter::Emit& emit) {
  for (uint64_t at = 0; at < tensor.bytes; at += kCopyBytes) {
    if (IsCancelled(cancel)) return CancelledStatus();
    BELLHOP_TRY(emit(tensor.data.subspan(at, std::min(kCopyBytes, tensor.bytes - at))));
  }
  return Status();
}

}  // namespace bellhop::engine
