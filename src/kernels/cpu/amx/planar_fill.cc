// Planar codes have at most 16 values per scale group, except for INT8: a group's values are scaled and rounded once,
// and 32 codes at a time look theirs up.
#include "kernels/cpu/amx/planar_fill.h"

#include "kernels/cpu/avx512/planar.h"

namespace bellhop::kernels::avx512 {
namespace {

#include "kernels/cpu/planar_transpose_body.inc"

// Rows of a tile: [row block of 16][group of 32 columns][16 rows][32].
inline constexpr int64_t kFillGroupBytes = 1024;
inline constexpr int64_t kFillRowBytes = 64;

inline __m512i RoundPairs(F32x16 a, F32x16 b) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.v, a.v)); }

// From the first code of a row to those of column c, a multiple of 32.
template <PlanarLayout kLayout>
inline int64_t FillColumnBytes(int64_t c) {
  using Facts = PlanarFacts<kLayout>;
  return Facts::kSm80 ? c / 64 * 128 + c % 64 / 32 * (4 * Facts::kBits) : c * Facts::kBits / 8;
}

// 32 words, the low bits of word j being code j.
template <PlanarLayout kLayout>
inline __m512i CodeWords(const uint8_t* p) {
  if constexpr (kLayout == PlanarLayout::kInt4Sm80) {  // word m of the chunk: codes m, m + 8, m + 16, m + 24
    alignas(64) static constexpr uint16_t kShift[32] = {0, 0, 0, 0, 0, 0, 0, 0, 4,  4,  4,  4,  4,  4,  4,  4,
                                                        8, 8, 8, 8, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12, 12};
    return _mm512_srlv_epi16(_mm512_broadcast_i32x4(Load16(p)), _mm512_load_si512(kShift));
  } else if constexpr (kLayout == PlanarLayout::kInt3) {  // code j: bits 3j % 8 up of the word at byte 3j / 8
    alignas(64) static constexpr uint8_t kBytes[64] = {
        0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4,  3, 4,  3, 4,  4,  5,  4,  5,  4,  5,  5,  6,  5,  6,
        6, 7, 6, 7, 6, 7, 7, 8, 7, 8, 7, 8, 8, 9, 8, 9, 9, 10, 9, 10, 9, 10, 10, 11, 10, 11, 10, 11, 11, 12, 11, 12};
    alignas(64) static constexpr uint16_t kShift[32] = {0, 3, 6, 1, 4, 7, 2, 5, 0, 3, 6, 1, 4, 7, 2, 5,
                                                        0, 3, 6, 1, 4, 7, 2, 5, 0, 3, 6, 1, 4, 7, 2, 5};
    const __m128i twelve = _mm_insert_epi32(Load8(p), LoadAs<int32_t>(p + 8), 2);
    const __m512i words = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(twelve), _mm512_load_si512(kBytes));
    return _mm512_srlv_epi16(words, _mm512_load_si512(kShift));
  } else {  // two codes per byte, as the upper halves of words; shifted by multiplying, off the port of the permutes
    alignas(64) static constexpr int8_t kBytes[64] = {-1, 0,  -1, 0,  -1, 1,  -1, 1,  -1, 2,  -1, 2,  -1, 3,  -1, 3,
                                                      -1, 4,  -1, 4,  -1, 5,  -1, 5,  -1, 6,  -1, 6,  -1, 7,  -1, 7,
                                                      -1, 8,  -1, 8,  -1, 9,  -1, 9,  -1, 10, -1, 10, -1, 11, -1, 11,
                                                      -1, 12, -1, 12, -1, 13, -1, 13, -1, 14, -1, 14, -1, 15, -1, 15};
    const __m512i words = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Load16(p)), _mm512_load_si512(kBytes));
    return _mm512_mulhi_epu16(words, _mm512_set1_epi32(16 << 16 | 256));
  }
}

// Word j becomes entry (word & 15) | table[j] of two tables of 16 in one register.
inline void StoreLookedUp(uint8_t* out, __m512i tables, __m512i words, __m512i table) {
  const __m512i index = _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(15), table, 0xEA);
  _mm512_store_si512(out, _mm512_permutexvar_epi16(index, tables));
}

inline constexpr int kRowsAhead = 4;                            // whose codes move into L1 meanwhile
inline constexpr int kFillRows = 16;                            // rows of a row block
inline constexpr int kFillScalesPerRow = kMaxChunkGroups + 48;  // whole sixteens, and rows must not share L1 sets

// Whole blocks of 32 columns of some rows of one row block. Column blocks come first and rows second, so that a tile is
// written front to back: the lines of one row are 1 KiB apart, and the L1 cache holds few of those.
struct FillPiece {
  const uint8_t* codes[kFillRows];
  int rows;
  int64_t blocks;
  int64_t group, group_left;  // elements; of the first group that are left
  int64_t ahead;              // as in FillArgs
  bool zero_points;
  uint8_t* out;  // the first row's
  alignas(64) float scale[kFillRows * kFillScalesPerRow];
  alignas(64) float shift[kFillRows * kFillScalesPerRow];  // implicit minus explicit zero point
};

template <PlanarLayout kLayout>
inline void FillLookedUp(const FillPiece& f) {
  using Facts = PlanarFacts<kLayout>;
  const F32x16 codes = Load(Facts::kFp4 ? kFp4Table : Facts::kBits == 3 ? kInt3Table : kInt4Table);
  const auto values = [&](int r, int64_t g) BELLHOP_INLINE {
    const int64_t i = r * kFillScalesPerRow + g;
    return Mul(f.zero_points ? Add(codes, Splat(f.shift[i])) : codes, Splat(f.scale[i]));
  };
  const auto words = [&](int r, int64_t block) BELLHOP_INLINE {
    const uint8_t* p = f.codes[r] + FillColumnBytes<kLayout>(32 * block);
    PrefetchAhead(p, f.ahead);
    return CodeWords<kLayout>(p);
  };
  const auto out = [&](int r, int64_t block)
                       BELLHOP_INLINE { return f.out + block * kFillGroupBytes + r * kFillRowBytes; };
  const __m512i first = _mm512_setzero_si512(), second = _mm512_set1_epi16(16);
  int64_t i = 0;
  if (f.group == 32) {
    const auto pair = [&](int r, int64_t block) BELLHOP_INLINE {
      const __m512i tables = RoundPairs(values(r, block), values(r, block + 1));
      StoreLookedUp(out(r, block), tables, words(r, block), first);
      StoreLookedUp(out(r, block + 1), tables, words(r, block + 1), second);
    };
    if (f.blocks == 8) {  // a block of columns
      for (int r = 0; r < f.rows; ++r) {
        if (r + kRowsAhead < f.rows) {
          constexpr int64_t kBytes = 32 * Facts::kBits;  // of a raw layout
          const uint8_t* next = f.codes[r + kRowsAhead];
          for (int64_t b = 0; b < kBytes; b += 64) _mm_prefetch(next + b, _MM_HINT_T0);
          _mm_prefetch(next + kBytes - 1, _MM_HINT_T0);
        }
        ForEach<4>([&]<int p>() BELLHOP_INLINE { pair(r, 2 * p); });
      }
      return;
    }
    for (; i + 2 <= f.blocks; i += 2) {
      for (int r = 0; r < f.rows; ++r) pair(r, i);
    }
    if (i == f.blocks) return;
    for (int r = 0; r < f.rows; ++r) {
      StoreLookedUp(out(r, i), RoundPairs(values(r, i), values(r, i)), words(r, i), first);
    }
  } else if (f.group == 16) {
    const __m512i halves = _mm512_inserti64x4(first, _mm256_set1_epi16(16), 1);
    for (; i < f.blocks; ++i) {
      for (int r = 0; r < f.rows; ++r) {
        StoreLookedUp(out(r, i), RoundPairs(values(r, 2 * i), values(r, 2 * i + 1)), words(r, i), halves);
      }
    }
  } else {  // a few blocks of a group at a time
    int64_t g = 0, left = f.group_left;
    while (i < f.blocks) {
      int64_t n = (left + 31) / 32 < 4 ? (left + 31) / 32 : 4;
      if (n > f.blocks - i) n = f.blocks - i;
      for (int r = 0; r < f.rows; ++r) {
        const __m512i tables = RoundPairs(values(r, g), values(r, g));
        for (int64_t b = i; b < i + n; ++b) StoreLookedUp(out(r, b), tables, words(r, b), first);
      }
      i += n;
      left -= 32 * n;
      if (left <= 0) {
        ++g;
        left = f.group;
      }
    }
  }
}

template <PlanarLayout kLayout>
inline void FillInt8(const FillPiece& f) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  int64_t g = 0, left = f.group_left;
  for (int64_t i = 0; i < f.blocks; ++i) {
    const int64_t g_high = left > 16 ? g : g + 1;  // of the upper sixteen
    for (int r = 0; r < f.rows; ++r) {
      const uint8_t* p = f.codes[r] + FillColumnBytes<kLayout>(32 * i);
      PrefetchAhead(p, f.ahead);
      F32x16 value[2];
      ForEach<2>([&]<int v>() BELLHOP_INLINE {
        __m128i bytes = Load16(p + 16 * v);
        if constexpr (kLayout == PlanarLayout::kInt8Sm80) bytes = _mm_shuffle_epi8(bytes, order);
        value[v] = FromU8(bytes);
        const int64_t at = r * kFillScalesPerRow + (v == 0 ? g : g_high);
        if (f.zero_points) value[v] = Add(value[v], Splat(f.shift[at]));
        value[v] = Mul(value[v], Splat(f.scale[at]));
      });
      _mm512_store_si512(f.out + i * kFillGroupBytes + r * kFillRowBytes, RoundPairs(value[0], value[1]));
    }
    left -= 32;
    for (; left <= 0; left += f.group) ++g;
  }
}

// The columns after the last whole block.
template <PlanarLayout kLayout>
inline void FillTail(const FillPiece& f, int64_t n, int64_t g, int64_t group_left) {
  for (int r = 0; r < f.rows; ++r) {
    alignas(64) float values[32] = {};
    const int64_t at = r * kFillScalesPerRow + g;
    DecodeTail<kLayout>(f.codes[r] + FillColumnBytes<kLayout>(32 * f.blocks), n, group_left, f.scale + at,
                        f.zero_points ? f.shift + at : nullptr, values);
    _mm512_store_si512(f.out + f.blocks * kFillGroupBytes + r * kFillRowBytes,
                       RoundPairs(Load(values), Load(values + 16)));
  }
}

// Columns [begin, begin + count) of rows [row, row + rows), whose codes begin at codes[] (column `begin`, a multiple of
// 128), up to whole groups of 32; `out` is the first row's.
template <PlanarLayout kLayout>
inline void FillPlanarColumns(const quant::QuantView& w, const uint8_t* const* codes, int64_t row, int rows,
                              int64_t begin, int64_t count, int64_t ahead, uint8_t* out) {
  using Facts = PlanarFacts<kLayout>;
  FillPiece f;
  f.rows = rows;
  f.ahead = ahead;
  f.group = w.group;
  f.zero_points = !Facts::kFp4 && w.planes[quant::kZeroPointsPlane].data != nullptr;
  // As many rows ahead as the codes; those of K-major planes are columns.
  const int64_t rows_ahead = ahead / w.planes[quant::kCodesPlane].row_bytes;
  const int64_t scales_ahead = rows_ahead * w.planes[quant::kScalesPlane].row_bytes;
  for (int64_t c = 0; c < count; c += kChunkElems) {
    const int64_t n = count - c < kChunkElems ? count - c : kChunkElems, at = begin + c;
    const int64_t first = at / w.group, groups = (at + n - 1) / w.group - first + 1;
    for (int r = 0; r < rows; ++r) {
      f.codes[r] = codes[r] + FillColumnBytes<kLayout>(c);
      const uint8_t* scales = PlaneRow(w.planes[quant::kScalesPlane], row + r);
      const uint8_t* first_scale = scales + (w.first_group + first) * ScaleBytes(w.scale_type);
      float* to = f.scale + r * kFillScalesPerRow;
      if (w.scale_type == quant::ScaleType::kF16 && groups <= 16) {  // what a block of columns needs
        PrefetchAhead(first_scale, scales_ahead);
        const auto* halves = reinterpret_cast<const uint16_t*>(first_scale);
        Store(to, FromF16(LoadHalvesN(halves, groups)));
      } else {
        PlanarScales(w.scale_type, first_scale, groups, scales_ahead, to);
      }
      if constexpr (!Facts::kFp4) {
        if (!f.zero_points) continue;
        ZeroPointShifts<kLayout>(PlaneRow(w.planes[quant::kZeroPointsPlane], row + r), w.first_group + first, groups,
                                 f.shift + r * kFillScalesPerRow);
      }
    }
    f.blocks = n / 32;
    f.group_left = w.group - at % w.group;
    f.out = out + c / 32 * kFillGroupBytes;
    if constexpr (Facts::kBits == 8) {
      FillInt8<kLayout>(f);
    } else {
      FillLookedUp<kLayout>(f);
    }
    const int64_t done = at + 32 * f.blocks;
    if constexpr (!Facts::kSm80) {  // SM80 rows are whole blocks
      if (done < at + n) FillTail<kLayout>(f, at + n - done, done / w.group - first, w.group - done % w.group);
    }
  }
}

// Calls fn(first, rows, out) for the rows of each row block: first row in args.rows, their number, the first one's
// place.
template <typename Fn>
inline void ForRowBlocksOf(const FillArgs& args, Fn fn) {
  const int64_t count = args.rows.end - args.rows.begin;
  const int64_t block_bytes = (args.weights->cols + 31) / 32 * kFillGroupBytes;
  for (int64_t i = 0; i < count;) {
    const int64_t row = args.first_row + i, left = kFillRows - row % kFillRows;
    const int rows = static_cast<int>(left < count - i ? left : count - i);
    fn(i, rows,
       reinterpret_cast<uint8_t*>(args.tile) + row / kFillRows * block_bytes + row % kFillRows * kFillRowBytes);
    i += rows;
  }
}

// A block of columns as most INT4 models have it, half scales for 32 columns each and no zero points, or half of it.
// One loop over the rows, so that constants stay in registers.
inline bool IsPlainInt4(const quant::QuantView& w) {
  return w.scale_type == quant::ScaleType::kF16 && w.planes[quant::kZeroPointsPlane].data == nullptr && w.group == 32;
}
template <int kGroups>
inline void FillInt4Block(const FillArgs& args) {
  static_assert(kGroups == 4 || kGroups == 8);
  const quant::QuantView& w = *args.weights;
  const int64_t code_bytes = w.planes[quant::kCodesPlane].row_bytes;
  const int64_t scale_bytes = w.planes[quant::kScalesPlane].row_bytes,
                scales_ahead = args.ahead / code_bytes * scale_bytes;
  const uint8_t* codes = PlaneRow(w.planes[quant::kCodesPlane], args.rows.begin);
  const uint8_t* scales = PlaneRow(w.planes[quant::kScalesPlane], args.rows.begin) + 2 * w.first_group;
  const F32x16 values = Load(kInt4Table);
  const __m512i first = _mm512_setzero_si512(), second = _mm512_set1_epi16(16);
  ForRowBlocksOf(args, [&](int64_t i, int rows, uint8_t* out) {
    for (int r = 0; r < rows; ++r, codes += code_bytes, scales += scale_bytes, out += kFillRowBytes) {
      if (i + r + kRowsAhead < args.rows.end - args.rows.begin) {
        const uint8_t* next = codes + kRowsAhead * code_bytes;
        _mm_prefetch(next, _MM_HINT_T0);
        if constexpr (kGroups == 8) _mm_prefetch(next + 64, _MM_HINT_T0);
        _mm_prefetch(next + 16 * kGroups - 1, _MM_HINT_T0);
      }
      PrefetchAhead(scales, scales_ahead);
      alignas(64) float scale[kGroups];
      if constexpr (kGroups == 8) {
        _mm256_store_ps(scale, _mm256_cvtph_ps(Load16(scales)));
      } else {
        _mm_store_ps(scale, _mm_cvtph_ps(Load8(scales)));
      }
      __asm__("" : "+m"(scale));  // broadcast when loaded, which takes none of the vector ports
      ForEach<kGroups / 2>([&]<int p>() BELLHOP_INLINE {
        const uint8_t* at = codes + 32 * p;
        PrefetchAhead(at, args.ahead);
        const __m512i tables = RoundPairs(Mul(values, Splat(scale[2 * p])), Mul(values, Splat(scale[2 * p + 1])));
        StoreLookedUp(out + 2 * p * kFillGroupBytes, tables, CodeWords<PlanarLayout::kInt4>(at), first);
        StoreLookedUp(out + (2 * p + 1) * kFillGroupBytes, tables, CodeWords<PlanarLayout::kInt4>(at + 16), second);
      });
    }
  });
}

template <PlanarLayout kLayout>
inline void FillTile(const FillArgs& args) {
  const quant::QuantView& w = *args.weights;
  if constexpr (kLayout == PlanarLayout::kInt4) {
    if (IsPlainInt4(w) && w.cols == 256) return FillInt4Block<8>(args);
    if (IsPlainInt4(w) && w.cols == 128) return FillInt4Block<4>(args);
  }
  ForRowBlocksOf(args, [&](int64_t i, int rows, uint8_t* out) {
    const uint8_t* codes[kFillRows];
    for (int r = 0; r < rows; ++r) {
      codes[r] = PlanarFacts<kLayout>::Row(w.planes[quant::kCodesPlane], args.rows.begin + i + r);
    }
    FillPlanarColumns<kLayout>(w, codes, args.rows.begin + i, rows, 0, w.cols, args.ahead, out);
  });
}

inline void FillKMajorTile(const FillArgs& args) {
  alignas(64) uint8_t raw[kTransposeRows * kTransposedRowBytes];
  const quant::QuantView& w = *args.weights;
  const int64_t first = args.rows.begin & ~int64_t{1};
  for (int64_t c = 0; c < w.cols; c += kTransposeCols) {
    const int64_t cols = w.cols - c < kTransposeCols ? w.cols - c : kTransposeCols;
    TransposeBlock(w, first, static_cast<int>(args.rows.end - first), c, cols, raw);
    ForRowBlocksOf(args, [&](int64_t i, int rows, uint8_t* out) {
      const uint8_t* codes[kFillRows];
      for (int r = 0; r < rows; ++r) codes[r] = raw + (args.rows.begin + i + r - first) * kTransposedRowBytes;
      FillPlanarColumns<PlanarLayout::kFp4>(w, codes, args.rows.begin + i, rows, c, cols, args.ahead,
                                            out + c / 32 * kFillGroupBytes);
    });
  }
}

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels::amx {

void FillPlanarTile(const FillArgs& args) noexcept {
  using avx512::PlanarLayout;
  switch (args.weights->format) {
    case quant::WeightFormat::kInt4: return avx512::FillTile<PlanarLayout::kInt4>(args);
    case quant::WeightFormat::kInt4Sm80: return avx512::FillTile<PlanarLayout::kInt4Sm80>(args);
    case quant::WeightFormat::kInt3: return avx512::FillTile<PlanarLayout::kInt3>(args);
    case quant::WeightFormat::kInt8: return avx512::FillTile<PlanarLayout::kInt8>(args);
    case quant::WeightFormat::kInt8Sm80: return avx512::FillTile<PlanarLayout::kInt8Sm80>(args);
    case quant::WeightFormat::kMxfp4KMajor:
    case quant::WeightFormat::kNvfp4KMajor: return avx512::FillKMajorTile(args);
    default: return avx512::FillTile<PlanarLayout::kFp4>(args);
  }
}

}  // namespace bellhop::kernels::amx
