// Products of what has no kernel of its own: file rows, or gate and up in different formats. Fragments are made by code
// that chooses the format while it runs.
#include "kernels/cuda/prompt_gemm.cuh"

namespace bellhop::kernels {
namespace prompt_gemm {

// Chunks of 64 columns. Its tables are those of the codebook formats.
struct AnyProduct {
  static constexpr int kGroups = 2, kTerms = 2;
  static constexpr bool kOneScale = false, kMins = true;
  using Tables = TileIq3Xxs::Tables;
  struct Chunk {
    GroupFragment<2> f[2];
  };
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<2>* f) {
    *f = c.f[i];
  }
};

namespace {

__device__ __forceinline__ void Clear(AnyProduct::Chunk* c) {
#pragma unroll
  for (auto& f : c->f) f = {};
}

// File rows: lanes of a quad decode 16 columns each and exchange them; two bf16 terms hold them.
template <quant::WeightFormat F>
__device__ __noinline__ void ReadFile(const DeviceMatrix& w, const uint8_t* data, int tile, int chunk,
                                      const Codebooks& books, int lane, AnyProduct::Chunk* c) {
  using Decoder = BlockDecoder<F>;
  constexpr int kParts = Decoder::kElems / 16;
  const int g = lane / 4, t = lane % 4, part = 4 * chunk + t;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = tile * kTileRows + g + 8 * r;
    float own[16] = {};
    if (row < w.rows && part < w.cols / 16) {
      Decoder::Decode16(data + row * w.row_bytes + int64_t{part / kParts} * Decoder::kBytes, part % kParts, books, own);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) c->f[i].scale[0][r] = c->f[i].scale[1][r] = 1, c->f[i].min[r] = 0;
    // Part p is with lane p of the quad; of it this lane needs elements 4t .. 4t + 3.
    float value[4][4];
#pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      const int other = t ^ turn;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float give = other == 0 ? own[q] : other == 1 ? own[4 + q] : other == 2 ? own[8 + q] : own[12 + q];
        const float take = __shfl_xor_sync(~0u, give, turn);
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          if (p == other) value[p][q] = take;
        }
      }
    }
#pragma unroll
    for (int p = 0; p < 4; ++p) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        float a = value[p][2 * pair], b = value[p][2 * pair + 1];
#pragma unroll
        for (int term = 0; term < 2; ++term) c->f[p / 2].a[term][p % 2][2 * pair + r] = TakePair(a, b);
      }
    }
  }
}

template <typename Format>
__device__ __noinline__ void ReadTile(const DeviceMatrix& w, const uint8_t* data, int tile, int chunk,
                                      const typename Format::Tables& tables, int lane, AnyProduct::Chunk* c) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int group = 2 * chunk + i, from = group / Format::kGroups;
    if (from >= w.chunks) continue;
    const auto loaded =
        Format::Load(data + (int64_t{tile} * w.chunks + from) * Tiles(Format::kFormat).chunk_bytes, lane);
    GroupFragment<Format::kTerms> f;
    Format::Expand(loaded, group % Format::kGroups, lane % 4, tables, &f);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int term = 0; term < Format::kTerms; ++term) c->f[i].a[term][half][e] = f.a[term][half][e];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) c->f[i].scale[half][r] = f.scale[Format::kOneScale ? 0 : half][r];
    }
    if constexpr (Format::kMins) {
#pragma unroll
      for (int r = 0; r < 2; ++r) c->f[i].min[r] = f.min[r];
    }
  }
}

// Chunk `chunk` of 64 columns. One copy of the code: it holds the decoders of all formats.
__device__ __noinline__ void ReadChunk(const DeviceMatrix& w, const uint8_t* data, int tile, int chunk,
                                       const Codebooks& books, const AnyProduct::Tables& tables, int lane,
                                       AnyProduct::Chunk* c) {
  using quant::WeightFormat;
  Clear(c);
  if (w.layout == MatrixLayout::kFile) {
    switch (w.format) {
#define BELLHOP_BLOCK_FORMAT(F)                                      \
  case WeightFormat::F:                                              \
    ReadFile<WeightFormat::F>(w, data, tile, chunk, books, lane, c); \
    break;
#include "kernels/block_decode.def"
#undef BELLHOP_BLOCK_FORMAT
      default: break;
    }
    return;
  }
  const NoTables none;
  switch (w.format) {
#define BELLHOP_TILE(Format, table) \
  case Format::kFormat: ReadTile<Format>(w, data, tile, chunk, table, lane, c); break;
    BELLHOP_TILE(TileTwoTermF32, none)
    BELLHOP_TILE(TileF16, none)
    BELLHOP_TILE(TileBF16, none)
    BELLHOP_TILE(TileQ4_0, none)
    BELLHOP_TILE(TileQ8_0, none)
    BELLHOP_TILE(TileMxfp4, none)
    BELLHOP_TILE(TileQ4K, none)
    BELLHOP_TILE(TileQ6K, none)
    BELLHOP_TILE(TileInt3, none)
    BELLHOP_TILE(TileIq3Xxs, tables)
#undef BELLHOP_TILE
    default: break;
  }
}

}  // namespace

template <>
class ChunkReader<AnyProduct> {
 public:
  static __device__ __forceinline__ int Chunks(const DeviceMatrix& w) { return (w.cols + 63) / 64; }
  __device__ __forceinline__ ChunkReader(const DeviceMatrix& matrix, const uint8_t* data, int tile, int chunk = 0)
      : matrix_(&matrix), data_(data), tile_(tile), chunk_(chunk) {}
  __device__ __forceinline__ AnyProduct::Chunk Next(const Codebooks& books, const AnyProduct::Tables& tables,
                                                    int lane) {
    AnyProduct::Chunk c;
    ReadChunk(*matrix_, data_, tile_, chunk_++, books, tables, lane, &c);
    return c;
  }

 private:
  const DeviceMatrix* matrix_;
  const uint8_t* data_;
  int tile_, chunk_;
};

// A warp a chunk of 64 columns of a tile: two chunks of f16.
__global__ void __launch_bounds__(256)
    DecodeKernel(const __grid_constant__ DeviceMatrix w, Codebooks books, int32_t chunks, uint8_t* to) {
  __shared__ AnyProduct::Tables tables;  // not read: file rows
  const int lane = static_cast<int>(threadIdx.x % 32);
  LetNextStart();
  AwaitPrevious();
  const auto piece = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int wide = (w.cols + 63) / 64;
  const auto tile = static_cast<int>(piece / wide), c = static_cast<int>(piece % wide);
  if (tile >= w.tiles()) return;
  const AnyProduct::Chunk chunk = ChunkReader<AnyProduct>(w, w.data, tile, c).Next(books, tables, lane);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (2 * c + i >= chunks) break;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t words[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const __nv_bfloat162 high = Pair(chunk.f[i].a[0][p / 2][p % 2 * 2 + r]);
        const __nv_bfloat162 low = Pair(chunk.f[i].a[1][p / 2][p % 2 * 2 + r]);
        const __half a = __float2half_rn(__bfloat162float(high.x) + __bfloat162float(low.x));
        const __half b = __float2half_rn(__bfloat162float(high.y) + __bfloat162float(low.y));
        words[p] = __half_as_ushort(a) | static_cast<uint32_t>(__half_as_ushort(b)) << 16;
      }
      uint8_t* const at = to + (int64_t{tile} * chunks + 2 * c + i) * Tiles(quant::WeightFormat::kF16).chunk_bytes;
      *reinterpret_cast<uint4*>(at + 512 * r + lane * 16) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

}  // namespace prompt_gemm

cudaError_t LaunchAnyProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  return prompt_gemm::LaunchAs<prompt_gemm::AnyProduct>(p, queue);
}

cudaError_t LaunchDecodeTiles(const DeviceMatrix& from, const Codebooks& books, uint8_t* to, DeviceMatrix* result,
                              const cuda::LaunchQueue& queue) {
  if (from.layout != MatrixLayout::kFile) return cudaErrorInvalidValue;
  *result = from;
  result->format = quant::WeightFormat::kF16;
  result->layout = MatrixLayout::kTiles;
  result->data = to;
  result->chunks = (from.cols + 31) / 32;
  result->row_bytes = 0;
  const int64_t pieces = int64_t{from.tiles()} * ((from.cols + 63) / 64);
  return cuda::Launch(queue,
                      {.name = "decode tiles",
                       .bytes = static_cast<uint64_t>(from.rows * from.row_bytes) +
                                DeviceMatrixBytes(result->format, from.rows, from.cols, 0)},
                      {.grid = dim3(static_cast<unsigned>((pieces + 7) / 8)), .block = dim3(256), .overlap = true},
                      prompt_gemm::DecodeKernel, from, books, result->chunks, to);
}

}  // namespace bellhop::kernels
