#include "kernels/gemm.h"
#include "quant/codec.h"

namespace bellhop::kernels {

#define BELLHOP_DEFINE_kReference(name, format)                         \
  void name(const std::byte* src, int64_t count, float* dst) noexcept { \
    quant::DecodeRow(quant::WeightFormat::format, src, count, dst);     \
  }
#define BELLHOP_DEFINE_kAvx2(name, format)
#define BELLHOP_DEFINE_kAvx512(name, format)
#define BELLHOP_ROW_DECODE(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/row_decode.def"

}  // namespace bellhop::kernels
