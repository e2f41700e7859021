#include "kernels/vec_ops.h"

#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels {

std::span<const VecOps> AllVecOps() {
  static const VecOps tables[] = {ref::kVecOps, avx2::kVecOps, avx512::kVecOps};
  return tables;
}

const VecOps& SelectVecOps(const sys::CpuCaps& caps) {
  const std::span<const VecOps> tables = AllVecOps();
  const VecOps* best = &tables[0];
  for (const VecOps& table : tables) {
    if (table.isa <= caps.isa) best = &table;
  }
  return *best;
}

}  // namespace bellhop::kernels
