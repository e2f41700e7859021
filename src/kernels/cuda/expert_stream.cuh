// Weights of the experts of a step on their way to a warp. Blocks stay and walk through units of work, a unit is one
// expert's pair of tiles with the same columns: gate and up, or two neighbours of down. Chunks of the pair, in turn,
// come through a ring in shared memory that a warp fills ahead for itself, from unit to unit without a pause; nobody
// else waits for it.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/expert_product.cuh"
#include "kernels/cuda/experts.cuh"

namespace bellhop::kernels {
namespace expert_stream {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;

// Blocks of a multiprocessor: with what kernels of a step have of its shared memory (cuda::LaunchShape), a warp has
// some 5 KB of ring.
template <typename Format>
inline constexpr int kBlocks = Tiles(Format::kFormat).chunk_bytes > 2048 ? 3 : 4;
template <typename Format>
inline constexpr int kDepth = Tiles(Format::kFormat).chunk_bytes > 2560   ? 2
                              : Tiles(Format::kFormat).chunk_bytes > 1280 ? 3
                              : Tiles(Format::kFormat).chunk_bytes > 1024 ? 4
                                                                          : 5;

// Group `index`. one_row: routes are distinct experts, and need no groups; without a slot: none.
struct Groups {
  int count = 0, rows = 0;
  bool one_row = false;
};
__device__ __forceinline__ Groups FindGroups(const ExpertArgs& args, bool one_row) {
  const int rows = *args.rows, groups = args.all_rows ? 1 : one_row ? args.used : *args.routes.group_count;
  return {rows == 0 ? 0 : groups, rows, one_row && !args.all_rows};
}
__device__ __forceinline__ ExpertGroup GroupAt(const ExpertArgs& args, const Groups& groups, int index) {
  if (groups.one_row) {
    const int slot = args.routes.slots[index];
    return {slot, args.routes.ids[index], index, slot < 0 ? 0 : 1};
  }
  return experts::GroupOf(args, index, groups.rows);
}
__device__ __forceinline__ int RouteAt(const ExpertArgs& args, const Groups& groups, const ExpertGroup& group, int i) {
  return groups.one_row ? group.first : experts::RouteOf(args, group, i);
}

// A part of all units, which are numbered group by group.
struct UnitSpan {
  int per_group, first, count, step;
};

// Walks over units. Work: what is known of a unit's weights; TakeGroup(args, group), and TakeUnit(unit) that is false
// where there is nothing to do.
template <typename Work>
class UnitCursor {
 public:
  Work work;
  ExpertGroup group;

  __device__ __forceinline__ UnitCursor(const ExpertArgs& args, const Groups& groups, const UnitSpan& span,
                                        const Work& begin)
      : work(begin), args_(args), groups_(groups), span_(span), left_(span.count) {
    if (left_ <= 0) return;
    index_ = span.first / span.per_group;
    unit_ = span.first - index_ * span.per_group;
    TakeGroup();
    Settle();
  }
  __device__ __forceinline__ bool more() const { return left_ > 0; }
  __device__ __forceinline__ int unit() const { return unit_; }
  __device__ __forceinline__ int index() const { return index_; }
  __device__ __forceinline__ const uint8_t* Tile(int m) const { return work.Tile(args_, m, unit_); }
  __device__ __forceinline__ void Next() {
    Advance();
    Settle();
  }

 private:
  __device__ __forceinline__ void TakeGroup() {
    group = GroupAt(args_, groups_, index_);
    if (group.count > 0) work.TakeGroup(args_, group);
  }
  __device__ __forceinline__ void Settle() {
    while (left_ > 0 && !(group.count > 0 && work.TakeUnit(args_, unit_))) Advance();
  }
  __device__ __forceinline__ void Advance() {
    if (--left_ <= 0) return;
    unit_ += span_.step;
    if (unit_ < span_.per_group) return;
    do {
      unit_ -= span_.per_group;
      ++index_;
    } while (unit_ >= span_.per_group);
    TakeGroup();
  }

  const ExpertArgs& args_;
  const Groups& groups_;
  UnitSpan span_;
  int left_, index_ = 0, unit_ = 0;
};

// Passes over a unit's weights: `few` rows or less take one, more take one for each `many`.
__device__ __forceinline__ int Passes(int rows, int few, int many) {
  return rows <= few ? 1 : (rows + many - 1) / many;
}

// One warp's. Work has chunk_count, of the warp, and Tile(args, m, unit): the first of them of tile m of the pair.
template <typename Format, int kTerms, typename Work>
class WeightStream {
  static constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes, kSlots = kDepth<Format>;
  static constexpr int kFew = FewRows<Format, kTerms>::kRows, kMany = ManyRows<Format, kTerms>::kRows;

 public:
  static constexpr int kRingBytes = kBytes * kSlots;

  __device__ __forceinline__ WeightStream(const ExpertArgs& args, const Groups& groups, const UnitSpan& span,
                                          const Work& begin, uint8_t* ring, int lane)
      : cursor_(args, groups, span, begin),
        ring_(ring),
        address_(static_cast<uint32_t>(__cvta_generic_to_shared(ring))),
        lane_(lane) {
    TakeUnit();
    Fill<0>();
  }

  // The next chunk, of tile kTile of its pair; calls take turns. It stays until the next call.
  template <int kTile>
  __device__ __forceinline__ SharedBytes Take() {
    AwaitCopies<kSlots - 2>();
    __syncwarp();  // all lanes' copies are here, and all have read the chunk before
    Issue<(kTile + kSlots - 1) % 2>(before_);
    before_ = next_;
    next_ = next_ + kBytes == kRingBytes ? 0 : next_ + kBytes;
    return {ring_ + before_};
  }

 private:
  template <int kSlot>
  __device__ __forceinline__ void Fill() {
    if constexpr (kSlot < kSlots - 1) {
      Issue<kSlot % 2>(kSlot * kBytes);
      Fill<kSlot + 1>();
    }
  }
  // Copies are counted also where there is nothing left.
  template <int kTile>
  __device__ __forceinline__ void Issue(int slot) {
    if (left_ > 0) {
      CopyAsyncWarp<kBytes>(address_ + static_cast<uint32_t>(slot), from_[kTile], lane_);
      from_[kTile] += kBytes;
      if (kTile == 1 && --left_ == 0) NextPass();
    }
    CommitCopies();
  }
  __device__ __forceinline__ void NextPass() {
    if (--passes_ == 0) {
      cursor_.Next();
      TakeUnit();
    } else {
      left_ = cursor_.work.chunk_count;
      from_[0] -= left_ * kBytes;
      from_[1] -= left_ * kBytes;
    }
  }
  __device__ __forceinline__ void TakeUnit() {
    while (cursor_.more() && cursor_.work.chunk_count == 0) cursor_.Next();
    if (!cursor_.more()) return;
    left_ = cursor_.work.chunk_count;
    passes_ = Passes(cursor_.group.count, kFew, kMany);
    from_[0] = cursor_.Tile(0);
    from_[1] = cursor_.Tile(1);
  }

  UnitCursor<Work> cursor_;
  const uint8_t* from_[2] = {};  // what comes next of the pair
  uint8_t* ring_;
  uint32_t address_;
  int lane_, left_ = 0, passes_ = 0;             // chunks of a tile in this pass; with this one
  int before_ = kRingBytes - kBytes, next_ = 0;  // of the ring: the chunk that was taken last, the next one
};

// A warp: its chunks of both tiles of a pair, numbered as the columns are, in two classes, [begin, middle) and
// [middle, end). sums: of rows g and g + 8 of each tile.
template <typename Shape, typename Stream>
__device__ __forceinline__ void MultiplyPair(Stream* stream, const LanePointers& x,
                                             const typename Shape::Codes::Tables& tables, int begin, int middle,
                                             int end, int lane, float (&sums)[2][2]) {
  using Codes = typename Shape::Codes;
  constexpr int kTurns = Codes::kTurns;
  LaneTerms<Shape> ahead;
  TurnInput<Shape> input;
  const auto multiply = [&](SharedBytes chunk, int c, int m, UnitSums<Shape>& to) {
    typename Codes::Codes codes;
    Codes::Load(chunk, lane, &codes);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      // Both tiles multiply the same activations, which stay if they are one turn.
      if (kTurns > 1 || m == 0) {
        input.Take(ahead, x.unit);
        const int next = turn + 1 < kTurns || (kTurns > 1 && m == 0) || c + 1 == end ? c : c + 1;
        ahead.Load(x, next * Shape::kChunkColumns + (turn + 1) % kTurns * Shape::kTurnColumns);
      }
      MultiplyTurn<Shape>(
          codes, turn, input, tables, lane, x.own_unit,
          [&](int n, int r) { return Codes::LoadScale(chunk, r, lane, turn, n * Shape::kUnits + x.own_unit); }, to);
    }
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = 0;
  if (begin == end) return;
  ahead.Load(x, begin * Shape::kChunkColumns);
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    UnitSums<Shape> acc[2] = {};
    const int last = part == 0 ? middle : end;
#pragma unroll 1
    for (int c = part == 0 ? begin : middle; c < last; ++c) {
      multiply(stream->template Take<0>(), c, 0, acc[0]);
      multiply(stream->template Take<1>(), c, 1, acc[1]);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      float own[2];
      AddUnits<Shape>(acc[m], own);
      sums[m][0] += own[0];
      sums[m][1] += own[1];
    }
  }
}

}  // namespace expert_stream
}  // namespace bellhop::kernels
