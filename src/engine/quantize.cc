#include "engine/quantize.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/units.h"
#include "engine/quantize_convert.h"
#include "engine/quantize_plan.h"
#include "engine/worker_threads.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "sys/topology.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {
namespace {

namespace fs = std::filesystem;
using formats::GgufModel;
using formats::GgufWriter;
using manifest::Metadata;

constexpr std::string_view kFileTypeKey = "general.file_type";
constexpr std::string_view kQuantVersionKey = "general.quantization_version";
// The version of the block layouts in docs/formats.md.
constexpr uint64_t kQuantVersion = 2;

Status CheckOutput(const std::string& out, const GgufModel& model, bool overwrite) {
  std::error_code ignored;
  for (const formats::GgufFile& file : model.files()) {
    if (fs::equivalent(file.name, out, ignored)) {
      return InvalidArgument("{}: input and output are the same file; choose another name for the output", out);
    }
  }
  const fs::file_status status = fs::status(out, ignored);
  if (!fs::exists(status)) return Status();
  if (!fs::is_regular_file(status)) return InvalidArgument("{}: exists and is not a regular file", out);
  if (!overwrite) return InvalidArgument("{}: exists already; pass --overwrite to replace it", out);
  return Status();
}

// Better now than after an hour; a file system that does not say how much is free is let through.
Status CheckSpace(const std::string& out, uint64_t bytes) {
  std::error_code error;
  const fs::path folder = fs::path(out).parent_path();
  const fs::space_info space = fs::space(folder.empty() ? fs::path(".") : folder, error);
  if (error || space.available >= bytes) return Status();
  return IoError("{}: {} are needed and the file system has {} left; make room or choose another folder", out,
                 FormatBytes(bytes), FormatBytes(space.available));
}

// All keys in their order, except those that describe one file alone; the two that describe formats as they are now.
Status AddKeys(const Metadata& metadata, const QuantizePlan& plan, GgufWriter* writer) {
  const int32_t file_type = FileTypeOf(plan.main_format);
  bool has_blocks = false;
  for (const TensorPlan& tensor : plan.tensors) has_blocks |= quant::Traits(tensor.format).block_elems > 1;
  Metadata kept;
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (entry.key == kFileTypeKey || entry.key == kQuantVersionKey) continue;
    BELLHOP_TRY(kept.Add(entry.key, entry.value));
  }
  BELLHOP_TRY(writer->AddAll(kept));
  if (file_type >= 0) BELLHOP_TRY(writer->AddUint(kFileTypeKey, static_cast<uint64_t>(file_type)));
  if (has_blocks) BELLHOP_TRY(writer->AddUint(kQuantVersionKey, kQuantVersion));
  return Status();
}

uint64_t OutputBytes(const TensorPlan& plan) {
  const quant::FormatTraits& traits = quant::Traits(plan.format);
  return plan.tensor->elements() / traits.block_elems * traits.block_bytes;
}

// Counts what the sources emit, for the caller's progress display.
struct ProgressCounter {
  const QuantizeOptions& options;
  uint64_t done = 0, total = 0;

  GgufWriter::Emit Wrap(const GgufWriter::Emit& emit, const std::string& tensor) {
    return [this, &emit, &tensor](HostSpan<const std::byte> piece) -> Status {
      BELLHOP_TRY(emit(piece));
      done += piece.size();
      if (options.progress) options.progress(done, total, tensor);
      return Status();
    };
  }
};

Status AddTensors(const QuantizePlan& plan, const QuantizeOptions& options, sys::WorkerPool* pool,
                  ProgressCounter* progress, GgufWriter* writer) {
  for (const TensorPlan& tensor : plan.tensors) {
    const manifest::Tensor& source = *tensor.tensor;
    progress->total += OutputBytes(tensor);
    const std::vector<uint64_t> dims(source.dims.begin(), source.dims.begin() + source.n_dims);
    const auto emit_all = [&source, tensor, &options, pool, progress](const GgufWriter::Emit& emit) {
      const GgufWriter::Emit counted = progress->Wrap(emit, source.name);
      return tensor.converts() ? ConvertTensor(source, tensor.format, *pool, options.cancel, counted)
                               : CopyTensor(source, options.cancel, counted);
    };
    BELLHOP_TRY(writer->AddTensor(source.name, tensor.format, dims, emit_all));
  }
  return Status();
}

}  // namespace

Result<QuantizeReport> Quantize(const std::string& in, const std::string& out, const QuantizeOptions& options) {
  BELLHOP_TRY_ASSIGN(const GgufModel model, GgufModel::Open(in));
  BELLHOP_TRY_ASSIGN(QuantizePlan plan, PlanQuantize(model, options));
  BELLHOP_TRY(CheckOutput(out, model, options.overwrite));
  BELLHOP_TRY_ASSIGN(const sys::WorkerPool::Options workers,
                     ChooseWorkers(sys::ReadTopology(), options.threads, true, &plan.notes));
  BELLHOP_TRY_ASSIGN(const std::unique_ptr<sys::WorkerPool> pool, sys::WorkerPool::Create(workers));

  GgufWriter writer(model.files().front().alignment);
  ProgressCounter progress{options};
  BELLHOP_TRY(AddKeys(model.metadata(), plan, &writer));
  BELLHOP_TRY(AddTensors(plan, options, pool.get(), &progress, &writer));
  BELLHOP_TRY(CheckSpace(out, writer.FileBytes()));
  BELLHOP_TRY(writer.Write(out));

  QuantizeReport report;
  report.in_bytes = model.total_bytes();
  report.out_bytes = writer.FileBytes();
  report.tensors = plan.tensors.size();
  for (const TensorPlan& tensor : plan.tensors) report.converted += tensor.converts() ? 1 : 0;
  report.notes = std::move(plan.notes);
  if (model.files().size() > 1) {
    report.notes.push_back(fmt::format("{} parts joined into one file", model.files().size()));
  }
  return report;
}

}  // namespace bellhop::engine
