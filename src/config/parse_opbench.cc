// The options of `bellhop opbench`.
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "config/parse_options.h"
#include "config/parse_values.h"

namespace bellhop::config {
namespace {

void AddOpbenchLayer(CommandSpec* command, OpbenchOptions* o) {
  constexpr int64_t kMaxWidth = 1 << 20;
  constexpr int64_t kMaxExperts = 1 << 20;
  constexpr int64_t kMaxActive = 1024;
  Append(command, "Layer",
         {
             Value("hidden", {}, "N", "Width of the layer's input and output", IntegerSetter(&o->hidden, 1, kMaxWidth),
                   fmt::format("{}", o->hidden)),
             Value("inter", {}, "N", "Inner width of an expert", IntegerSetter(&o->inter, 1, kMaxWidth),
                   fmt::format("{}", o->inter)),
             Value("experts", {}, "N", "CPU: experts in memory, which calls take in turn; GPU: experts of a layer",
                   IntegerSetter(&o->experts, 0, kMaxExperts, "0: the default"), "as many as fill --rotate; 512"),
             Value("topk", {}, "N", "Experts that each row uses; CPU: at most --active",
                   IntegerSetter(&o->topk, 0, kMaxActive, "0: the default"), "all active ones; 10"),
             Value("seed", {"-s"}, "N", "Seed of weights and activations", WholeSetter(&o->seed),
                   fmt::format("{}", o->seed)),
         });
  Append(command, "Layer, --device cpu",
         {
             Value("active", {}, "N", "Experts that a call computes", IntegerSetter(&o->active, 1, kMaxActive),
                   fmt::format("{}", o->active)),
             Value("rotate", {}, "SIZE", "Weights of different calls do not repeat within SIZE",
                   ByteSizeSetter(&o->rotate_bytes), "2GiB"),
         });
  Append(
      command, "Layer, --device cuda",
      {
          Value("layers", {}, "N", "Layers with weights of their own, which take turns",
                IntegerSetter(&o->layers, 1, 1024), fmt::format("{}", o->layers)),
          List("mode", {}, "NAME,...",
               "Where experts are: resident; off_all: in slots of an offloaded bank; off_cpu, off_gpu: a part of "
               "them, the CPU computes the others or the GPU reads them over PCIe; off_ring: a part, the CPU answers "
               "at once",
               NameListSetter(&o->modes, {"resident", "off_all", "off_cpu", "off_gpu", "off_ring"}), o->modes.front()),
          List("hit-rate", {}, "PERCENT,...", "Routes to experts in slots, of off_cpu, off_gpu and off_ring",
               PercentListSetter(&o->hit_rates), fmt::format("{}", o->hit_rates.front())),
      });
}

void AddOpbenchCases(CommandSpec* command, OpbenchOptions* o) {
  constexpr int64_t kMaxRows = 8192;
  Append(command, "Cases",
         {
             List("format", {}, "NAME,...",
                  "Weight formats: all, gguf, onnx, a GGUF name such as q4_k, or an ONNX one with its scale group: "
                  "int4_b32, int4sm80_b64, int3_b64, int8_b32, mxfp4_b32, nvfp4_b16",
                  TextItemsSetter(&o->formats), "all"),
             List("rows", {}, "N,...", "Rows of a call", IntegerListSetter(&o->rows, 1, kMaxRows), "1,2,4,8,16,64,256"),
             List("threads", {"-t"}, "N,...",
                  "CPU threads; 0: one per physical core within the CPU quota. With --device cuda one number",
                  IntegerListSetter(&o->threads, 0, kMaxThreads), "0"),
             Value("reps", {}, "N", "Timed calls of each case, after some that are not counted; reference: fewer",
                   IntegerSetter(&o->repetitions, 1, 10000), fmt::format("{}", o->repetitions)),
         });
  Append(command, "Cases, --device cpu",
         {
             List("isa", {}, "NAME,...", "CPU kernels: reference, avx2, avx512, amx, auto for the best or all",
                  NameListSetter(&o->isas, {"all", "auto", "reference", "avx2", "avx512", "amx"}), "all"),
             Value("class", {}, "NAME", "Numeric class: decode, prompt, or auto: decode up to 32 rows",
                   ChoiceSetter<BenchClass>(
                       &o->bench_class,
                       {{"auto", BenchClass::kAuto}, {"decode", BenchClass::kDecode}, {"prompt", BenchClass::kPrompt}}),
                   "auto"),
         });
}

// Options that mean nothing on the device, as far as they differ from their defaults.
Status CheckOpbenchDevice(const OpbenchOptions& o) {
  const OpbenchOptions defaults;
  const bool gpu = o.device == Device::kCuda;
  const std::pair<std::string_view, bool> of_cpu[] = {{"--active", o.active != defaults.active},
                                                      {"--rotate", o.rotate_bytes != defaults.rotate_bytes},
                                                      {"--isa", o.isas != defaults.isas},
                                                      {"--class", o.bench_class != defaults.bench_class}};
  const std::pair<std::string_view, bool> of_gpu[] = {{"--mode", o.modes != defaults.modes},
                                                      {"--hit-rate", o.hit_rates != defaults.hit_rates},
                                                      {"--layers", o.layers != defaults.layers}};
  for (const auto& [name, given] : of_cpu) {
    if (gpu && given) return InvalidArgument("{} is of --device cpu; leave it out", name);
  }
  for (const auto& [name, given] : of_gpu) {
    if (!gpu && given) return InvalidArgument("{} is of --device cuda; add that, or leave it out", name);
  }
  if (gpu && o.threads.size() > 1) return InvalidArgument("--threads: one number with --device cuda");
  return Status();
}

}  // namespace

CommandSpec OpbenchCommand(OpbenchOptions* o) {
  CommandSpec command{.name = "opbench",
                      .arguments = "",
                      .summary = "Measure layers of experts with synthetic weights",
                      .description =
                          "Times a mixture-of-experts layer, to the combined output, for each weight format and number "
                          "of rows, beside the read bandwidth of memory measured in the same run. On the CPU, which is "
                          "what --device auto means, from routes in memory, for each kernel bundle and number of "
                          "threads; on the GPU from the rows that the router reads, for each placement of the experts. "
                          "Weights are random and come from memory, not from caches.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  AddOpbenchLayer(&command, o);
  AddOpbenchCases(&command, o);
  Append(&command, kWhere,
         {
             Value("device", {}, "NAME", "cpu, cuda or auto",
                   ChoiceSetter<Device>(&o->device,
                                        {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}),
                   "auto"),
             Flag("no-pin", {}, "Do not bind threads to cores", FlagSetter(&o->pin_threads, false)),
         });
  AddBenchOutput(&command, &o->format, &o->out, &o->output);
  command.finish = [o]() -> Status {
    FinishBenchOutput(&o->format, &o->output);
    BELLHOP_TRY(CheckOpbenchDevice(*o));
    if (o->device == Device::kCuda) return Status();
    if (o->topk > o->active) {
      return InvalidArgument("--topk {} exceeds --active {}: a row cannot use more experts than the call has", o->topk,
                             o->active);
    }
    if (o->experts != 0 && o->experts < o->active) {
      return InvalidArgument("--experts {} is less than --active {}; raise it or leave it out", o->experts, o->active);
    }
    return Status();
  };
  return command;
}

}  // namespace bellhop::config
