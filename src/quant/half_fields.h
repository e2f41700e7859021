// Where the blocks of GGUF formats keep binary16 numbers. Private to quant/.
#pragma once

#include <array>

#include "quant/format.h"

namespace bellhop::quant {

// Byte offsets of the f16 fields of a block; unused entries are -1.
using HalfOffsets = std::array<int, 2>;
HalfOffsets HalfFields(WeightFormat format);

}  // namespace bellhop::quant
