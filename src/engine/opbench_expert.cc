#include "engine/opbench_expert.h"

#include <string_view>

#include "base/units.h"
#include "quant/random_weights.h"
#include "sys/aligned_buffer.h"

namespace bellhop::engine {
namespace {

// kInvalidArgument names the option that gave the columns.
Result<uint64_t> MatrixBytes(const OpbenchFormat& format, int64_t rows, int64_t cols, std::string_view flag) {
  const quant::MatrixSpec spec = format.Matrix(rows, cols);
  const Status valid = quant::CheckSpec(spec);
  if (!valid.ok()) return valid.WithContext(fmt::format("{} {} with {}", flag, cols, format.name));
  return quant::MatrixBytes(spec);
}

}  // namespace

Result<OpbenchExpert> OpbenchExpert::Create(const OpbenchFormat& format, int64_t hidden, int64_t inter) {
  OpbenchExpert expert{.format = format, .hidden = hidden, .inter = inter};
  BELLHOP_TRY_ASSIGN(expert.fc1_bytes, MatrixBytes(format, inter, hidden, "--hidden"));
  BELLHOP_TRY_ASSIGN(expert.down_bytes, MatrixBytes(format, hidden, inter, "--inter"));
  expert.up = RoundUp(expert.fc1_bytes, sys::AlignedBuffer::kAlignment);
  expert.down = 2 * expert.up;
  expert.stride = expert.down + RoundUp(expert.down_bytes, sys::AlignedBuffer::kAlignment);
  return expert;
}

store::ExpertView OpbenchExpert::View(const std::byte* memory) const {
  store::ExpertView view;
  view.gate = quant::PlaceMatrix(format.Matrix(inter, hidden), memory);
  view.up = quant::PlaceMatrix(format.Matrix(inter, hidden), memory + up);
  view.down = quant::PlaceMatrix(format.Matrix(hidden, inter), memory + down);
  return view;
}

store::ExpertView OpbenchExpert::Fill(std::byte* memory, uint64_t seed) const {
  quant::FillRandomMatrix(format.Matrix(inter, hidden), {memory, fc1_bytes}, seed);
  quant::FillRandomMatrix(format.Matrix(inter, hidden), {memory + up, fc1_bytes}, seed + 1);
  quant::FillRandomMatrix(format.Matrix(hidden, inter), {memory + down, down_bytes}, seed + 2);
  return View(memory);
}

OpbenchWidths WholeBlocks(const OpbenchFormat& format, OpbenchWidths asked) {
  if (!format.from_list) return asked;
  const int64_t block = quant::Traits(format.format).block_elems;
  return {CeilDiv(asked.hidden, block) * block, CeilDiv(asked.inter, block) * block};
}

}  // namespace bellhop::engine
