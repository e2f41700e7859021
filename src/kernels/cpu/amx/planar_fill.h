// Tiles of planar weights for the AMX product, looked up as bf16 without an f32 copy in between.
#pragma once

#include "kernels/gemm.h"

namespace bellhop::kernels::amx {

// GemmKernel::fill_tile for planar formats.
void FillPlanarTile(const FillArgs& args) noexcept;

}  // namespace bellhop::kernels::amx
