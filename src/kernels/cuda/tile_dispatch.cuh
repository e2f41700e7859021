// From a format that is known at launch to kernel code that is compiled for it, and the slow path for all others.
#pragma once

#include "kernels/cuda/tile_product.cuh"

namespace bellhop::kernels {

// Any format and layout, chosen while the kernel runs: what has no kernel of its own, or matrices of several formats in
// one launch. Tables are those of the codebook formats.
struct AnyFormat {
  static constexpr int kGroups = 8;
  using Tables = TileIq3Xxs::Tables;
};

// One matrix format's product with the first chunk loaded early: weights do not depend on the kernel before.
template <typename Format, int kN>
struct TileWork {
  typename Format::Chunk loaded;
  __device__ __forceinline__ void Prefetch(const DeviceMatrix& w, const uint8_t* data, int tile, int first, int lane) {
    constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
    if (first < w.chunks) loaded = Format::Load(data + (int64_t{tile} * w.chunks + first) * kBytes, lane);
  }
  __device__ __forceinline__ void Run(const DeviceMatrix& w, const uint8_t* data, int tile, int first, int step,
                                      const typename Format::Tables& tables, const Codebooks&,
                                      const ColumnPointers<kN>& x, int lane, float (&acc)[kN][4]) {
    constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
    MultiplyTile<Format, kN>(data + int64_t{tile} * w.chunks * kBytes, w.chunks, first, step, loaded, tables, x, lane,
                             acc);
  }
};

template <typename Format, int kN>
__device__ __noinline__ void RunTile(const DeviceMatrix& w, const uint8_t* data, int tile, int first, int step,
                                     const typename Format::Tables& tables, const Codebooks& books,
                                     const ColumnPointers<kN>& x, int lane, float (&acc)[kN][4]) {
  TileWork<Format, kN> work;
  work.Prefetch(w, data, tile, first, lane);
  work.Run(w, data, tile, first, step, tables, books, x, lane, acc);
}

template <quant::WeightFormat F, int kN>
__device__ __noinline__ void RunFile(const DeviceMatrix& w, const uint8_t* data, int tile, int first, int step,
                                     const Codebooks& books, const ColumnPointers<kN>& x, int lane,
                                     float (&acc)[kN][4]) {
  DeviceMatrix here = w;
  here.data = data;
  MultiplyFile<F, kN>(here, tile * kTileRows, first, step, books, x, lane, acc);
}

template <int kN>
struct TileWork<AnyFormat, kN> {
  __device__ __forceinline__ void Prefetch(const DeviceMatrix&, const uint8_t*, int, int, int) {}
  __device__ __forceinline__ void Run(const DeviceMatrix& w, const uint8_t* data, int tile, int first, int step,
                                      const AnyFormat::Tables& tables, const Codebooks& books,
                                      const ColumnPointers<kN>& x, int lane, float (&acc)[kN][4]) {
    using quant::WeightFormat;
    const NoTables none;
    if (w.layout == MatrixLayout::kFile) {
      switch (w.format) {
#define BELLHOP_BLOCK_FORMAT(F)                                                    \
  case WeightFormat::F:                                                            \
    RunFile<WeightFormat::F, kN>(w, data, tile, first, step, books, x, lane, acc); \
    break;
#include "kernels/block_decode.def"
#undef BELLHOP_BLOCK_FORMAT
        default: break;
      }
      return;
    }
    switch (w.format) {
#define BELLHOP_TILE(Format, table) \
  case Format::kFormat: RunTile<Format, kN>(w, data, tile, first, step, table, books, x, lane, acc); break;
      BELLHOP_TILE(TileF32, none)
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
};

// The format that all matrices share, if it has kernels of its own; else nullopt-like kF64.
inline quant::WeightFormat SharedTileFormat(const DeviceMatrix* matrices, int count) {
  for (int i = 0; i < count; ++i) {
    if (matrices[i].layout != MatrixLayout::kTiles || matrices[i].format != matrices[0].format) {
      return quant::WeightFormat::kF64;
    }
  }
  return matrices[0].format;
}

// fn.template operator()<Format>() for the tile format; other() where only AnyFormat does.
template <typename Fn, typename Other>
cudaError_t DispatchTileFormat(quant::WeightFormat format, const Fn& fn, const Other& other) {
  switch (format) {
    case TileF16::kFormat: return fn.template operator()<TileF16>();
    case TileBF16::kFormat: return fn.template operator()<TileBF16>();
    case TileQ4_0::kFormat: return fn.template operator()<TileQ4_0>();
    case TileQ8_0::kFormat: return fn.template operator()<TileQ8_0>();
    case TileMxfp4::kFormat: return fn.template operator()<TileMxfp4>();
    case TileQ4K::kFormat: return fn.template operator()<TileQ4K>();
    case TileQ6K::kFormat: return fn.template operator()<TileQ6K>();
    case TileIq3Xxs::kFormat: return fn.template operator()<TileIq3Xxs>();
    case TileInt3::kFormat: return fn.template operator()<TileInt3>();
    default: return other();
  }
}

// n8 tiles that a pass over the weights takes, by rows in the step. More rows are more passes.
template <typename Fn>
cudaError_t DispatchWidth(int rows, int terms, const Fn& fn) {
  if (terms == 3) return fn.template operator()<2, 3>();
  if (rows <= 4) return fn.template operator()<1, 2>();
  return rows <= 8 ? fn.template operator()<2, 2>() : fn.template operator()<4, 2>();
}

}  // namespace bellhop::kernels
