// Experts of a prompt's chunk: products over tiles of routes.
#include "kernels/cuda/prompt_gemm.h"

namespace bellhop::kernels {
namespace {

PromptProduct Product(const PromptExpertArgs& args) {
  PromptProduct p;
  p.rows = args.rows;
  p.books = args.books;
  p.port_scale = args.port_scale;
  p.slot_bytes = args.bank.slot_bytes;
  p.staging = args.bank.staging;
  p.device = args.device;
  if (args.all_rows) return p;
  p.used = args.used;
  p.first_slot = args.first_slot;
  p.end_slot = args.end_slot;
  p.tiles = args.routes.tiles;
  p.tile_count = args.routes.tile_count;
  p.order = args.routes.order;
  p.experts = args.experts;
  p.tile_rows = args.routes.tile_rows;
  p.max_tiles = PromptTiles(int64_t{args.rows} * args.used, args.experts, p.tile_rows);
  return p;
}

bool IsPossible(const PromptExpertArgs& args) {
  if (args.rows <= 0) return false;
  return args.all_rows ? args.used == 1 : args.used > 0 && args.experts > 0;
}

}  // namespace

cudaError_t LaunchPromptFc1(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  PromptProduct p = Product(args);
  p.w = args.bank.gate;
  p.up = args.bank.up;
  p.w_bias = args.bank.gate_bias;
  p.up_bias = args.bank.up_bias;
  p.w_factor = args.bank.gate_scale;
  p.up_factor = args.bank.up_scale;
  p.w_staged = args.bank.staging.gate;
  p.up_staged = args.bank.staging.up;
  p.activates = true;
  p.x = args.x;
  p.gathers = !args.all_rows;
  p.hidden = args.hidden;
  p.activation = args.activation;
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.limit = args.limit;
  return LaunchPromptProduct(p, queue);
}

cudaError_t LaunchPromptFc2(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  PromptProduct p = Product(args);
  p.w = args.bank.down;
  p.w_bias = args.bank.down_bias;
  p.w_factor = args.bank.down_scale;
  p.w_staged = args.bank.staging.down;
  p.x = args.hidden;
  p.scatters = !args.all_rows;
  p.y = args.all_rows ? args.residual : args.partial;
  p.y_stride = args.bank.down.rows;
  p.adds = args.all_rows;
  p.row_factors = args.all_rows ? args.shared_weights : nullptr;
  return LaunchPromptProduct(p, queue);
}

}  // namespace bellhop::kernels
