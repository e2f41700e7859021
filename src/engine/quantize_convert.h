// One tensor from its format to another, in bounded memory and on all workers.
#pragma once

#include <atomic>

#include "base/status.h"
#include "formats/gguf/gguf_writer.h"
#include "manifest/manifest.h"
#include "quant/format.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {

// Emits the tensor's values in `to`, in order, in pieces of at most 16 MiB. Rows must be whole blocks of both formats.
// The bytes do not depend on the pool. kInvalidArgument names the row of a value that `to` cannot hold.
Status ConvertTensor(const manifest::Tensor& tensor, quant::WeightFormat to, sys::WorkerPool& pool,
                     const std::atomic<bool>* cancel, const formats::GgufWriter::Emit& emit);

// The tensor's own bytes in pieces of the same size.
Status CopyTensor(const manifest::Tensor& tensor, const std::atomic<bool>* cancel,
                  const formats::GgufWriter::Emit& emit);

}  // namespace bellhop::engine
