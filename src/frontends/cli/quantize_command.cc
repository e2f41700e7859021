#include "engine/quantize.h"

#include "base/units.h"
#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/progress.h"

namespace bellhop::cli {

Status Quantize(const config::QuantizeCommandOptions& options, Console& console) {
  const engine::Interrupts interrupts;
  Progress progress(console, "quantize");
  engine::QuantizeOptions request{
      .type = options.type,
      .dense_type = options.dense_type,
      .output_type = options.output_type,
      .tensor_types = options.tensor_types,
      .threads = options.threads,
      .allow_requantize = options.allow_requantize,
      .overwrite = options.overwrite,
      .progress =
          [&](uint64_t done, uint64_t total, const std::string& tensor) {
            progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(total), tensor);
          },

      .cancel = &interrupts.flag(),
  };
  BELLHOP_TRY_ASSIGN(const engine::QuantizeReport report, engine::Quantize(options.in, options.out, request));
  progress.Clear();
  if (console.json()) {
    console.WriteJson({{"in", options.in},
                       {"out", options.out},
                       {"in_bytes", report.in_bytes},
                       {"out_bytes", report.out_bytes},
                       {"tensors", report.tensors},
                       {"converted", report.converted},
                       {"notes", report.notes}});
    return Status();
  }
  for (const std::string& note : report.notes) console.Print("note: {}\n", OneLine(note));
  console.Print("wrote {}: {} of {} tensors converted, {} -> {}\n", OneLine(options.out), report.converted,
                report.tensors, FormatBytes(report.in_bytes), FormatBytes(report.out_bytes));
  return Status();
}

}  // namespace bellhop::cli
