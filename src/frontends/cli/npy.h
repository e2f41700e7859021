// NumPy's array file, version 1.0.
#pragma once

#include <cstdint>
#include <string>

#include "base/span.h"

namespace bellhop::cli {

// A C-ordered float32 array [rows, columns] as the bytes of a .npy file.
std::string NpyFile(HostSpan<const float> values, int64_t rows, int64_t columns);

}  // namespace bellhop::cli
