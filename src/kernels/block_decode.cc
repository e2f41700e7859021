#include "kernels/block_decode.h"

#include "quant/codebooks.h"

namespace bellhop::kernels {
namespace {

CodeLevels PackLevels(const int8_t (&values)[16]) {
  CodeLevels levels{};
  for (int code = 0; code < 16; ++code) {
    uint64_t& half = code < 8 ? levels.low : levels.high;
    half |= static_cast<uint64_t>(static_cast<uint8_t>(values[code])) << (8 * (code % 8));
  }
  return levels;
}

}  // namespace

Codebooks HostCodebooks() {
  return {
      .iq2xxs_grid = quant::kIq2xxsGrid[0],
      .iq2xs_grid = quant::kIq2xsGrid[0],
      .iq2s_grid = quant::kIq2sGrid[0],
      .iq3xxs_grid = quant::kIq3xxsGrid[0],
      .iq3s_grid = quant::kIq3sGrid[0],
      .iq1s_grid_nibbles = quant::kIq1sGridNibbles,
      .iq4_levels = PackLevels(quant::kIq4Values),
      .fp4_levels = PackLevels(quant::kFp4Values),
  };
}

}  // namespace bellhop::kernels
