// The options of every command. What a value does is in parse_values.cc, how values arrive in parse.cc.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "config/parse_options.h"
#include "config/parse_values.h"

namespace bellhop::config {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxBatchRows = 65536;
constexpr double kMaxReal = 1e6;
constexpr int64_t kMaxConnections = 65536;
constexpr uint32_t kDefaultParallel = 4;

void AddModel(CommandSpec* command, std::string* path, std::string help) {
  OptionSpec model = Value("model", {"-m"}, "FILE", std::move(help), TextSetter(path));
  model.positional = true;
  Append(command, kModel, {std::move(model)});
}

constexpr const char* kShippedHelp = "GGUF file; also without -m. Default: the shipped model, tiny-moe-q4_0.gguf";

std::vector<OptionSpec> InputOptions(TextInput* input, const std::string& what) {
  return {
      Rival("input", Value("prompt", {"-p"}, "TEXT", what, LiteralSetter(&input->prompt))),
      Rival("input",
            Value("file", {"-f"}, "FILE", "The same from a file; with -, or without either option, from standard input",
                  TextSetter(&input->file))),
      Flag("escape", {"-e"}, "Replace \\n, \\t, \\\\, \\\" and \\xHH in text given as an option",
           FlagSetter(&input->escape)),
  };
}

OptionSpec Calibration(CalibrationConfig* calibration, std::string help) {
  const auto set = [calibration, path = TextSetter(&calibration->path)](std::string_view text) -> Status {
    BELLHOP_TRY(path(text));
    calibration->is_explicit = true;
    return Status();
  };
  return Value("calibration", {}, "FILE", std::move(help), set, "in the user's cache folder");
}

// `with_lists`: the command has its own --threads and --isa.
void AddRuntime(CommandSpec* command, RuntimeConfig* runtime, bool with_lists) {
  std::vector<OptionSpec> options;
  options.push_back(Value(
      "device", {}, "NAME", "cpu, cuda or auto",
      ChoiceSetter<Device>(&runtime->device, {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}),
      "auto"));
  if (!with_lists) {
    options.push_back(Value("threads", {"-t"}, "N", "CPU threads; 0: one per physical core within the CPU quota",
                            IntegerSetter(&runtime->threads, 0, kMaxThreads, "0: one per core"),
                            fmt::format("{}", runtime->threads)));
    options.push_back(Value(
        "isa", {}, "NAME", "CPU kernels: reference, avx2, avx512, amx or auto for the best",
        ChoiceSetter<std::string>(
            &runtime->isa,
            {{"auto", "auto"}, {"reference", "reference"}, {"avx2", "avx2"}, {"avx512", "avx512"}, {"amx", "amx"}}),
        runtime->isa));
  }
  options.push_back(Flag("no-pin", {}, "Do not bind threads to cores", FlagSetter(&runtime->pin_threads, false)));
  options.push_back(Value("vram", {}, "SIZE", "GPU memory to use: 12GiB, 12GB, 512MiB, 0 or auto",
                          SizeSetter(&runtime->vram_bytes), "auto"));
  options.push_back(
      Value("ram", {}, "SIZE", "Host memory to use, as for --vram", SizeSetter(&runtime->ram_bytes), "auto"));
  options.push_back(Value(
      "hugepages", {}, "MODE", "Copy experts to huge pages at load: off, auto or required (an error when it cannot be)",
      ChoiceSetter<HugePagesMode>(
          &runtime->huge_pages,
          {{"off", HugePagesMode::kOff}, {"auto", HugePagesMode::kAuto}, {"required", HugePagesMode::kRequired}}),
      "off"));
  options.push_back(
      Value("prefault", {}, "MODE", "Read the whole model into memory at load: off, auto (when it fits) or required",
            ChoiceSetter<PrefaultMode>(
                &runtime->prefault,
                {{"off", PrefaultMode::kOff}, {"auto", PrefaultMode::kAuto}, {"required", PrefaultMode::kRequired}}),
            "auto"));
  options.push_back(Value("gpu-experts", {}, "N|P%", "Experts in GPU slots: N per layer, or a share of all",
                          ExpertShareSetter(&runtime->gpu_experts, &runtime->gpu_experts_percent), "as many as fit"));
  options.push_back(
      Value("offload", {}, "MODE", "Experts on CPU and GPU: off, auto or required (an error when it cannot be)",
            ChoiceSetter<OffloadMode>(
                &runtime->offload,
                {{"off", OffloadMode::kOff}, {"auto", OffloadMode::kAuto}, {"required", OffloadMode::kRequired}}),
            "auto"));
  options.push_back(Value(
      "miss-lane", {}, "LANE", "Where experts without a GPU slot run: cpu, pcie, split or auto",
      ChoiceSetter<MissLane>(
          &runtime->miss_lane,
          {{"auto", MissLane::kAuto}, {"cpu", MissLane::kCpu}, {"pcie", MissLane::kPcie}, {"split", MissLane::kSplit}}),
      "auto"));
  options.push_back(Value("profile", {}, "FILE", "Expert popularity, made by `bellhop profile`, to fill GPU slots by",
                          TextSetter(&runtime->profile_path)));
  options.push_back(Calibration(&runtime->calibration,
                                "This machine's rates, measured by `bellhop doctor --calibrate`, that plans go by"));
  options.push_back(Flag("deterministic", {}, "Results that do not depend on what else is in a step",
                         FlagSetter(&runtime->deterministic)));
  Append(command, kWhere, std::move(options));
}

std::vector<std::pair<std::string, KvCacheType>> CacheTypes() {
  return {{"f16", KvCacheType::kF16}, {"f32", KvCacheType::kF32}, {"bf16", KvCacheType::kBF16}};
}

void AddContext(CommandSpec* command, ContextConfig* context, OptionStorage* storage) {
  Append(command, kContext,
         {
             Value("ctx-size", {"-c", "--ctx"}, "N",
                   fmt::format("Context in tokens; 0: the model's own, at most {}", kDefaultContextTokens),
                   CountSetter(&context->context_tokens, 0, kMaxInt, "0: the model's own"),
                   fmt::format("{}", context->context_tokens)),
             Value("batch-size", {"-b"}, "N", "Prompt tokens in one chunk",
                   CountSetter(&context->batch_rows, 1, kMaxBatchRows), fmt::format("{}", context->batch_rows)),
             Value("cache-type", {}, "TYPE", "KV cache: f16, f32 or bf16",
                   ChoiceSetter(&context->kv_type, CacheTypes()), "f16; f32 with --act f32"),
             Value("cache-type-k", {"-ctk"}, "TYPE", "The same for keys; must equal --cache-type-v",
                   ChoiceSetter(&storage->cache_type_k, CacheTypes())),
             Value("cache-type-v", {"-ctv"}, "TYPE", "The same for values; must equal --cache-type-k",
                   ChoiceSetter(&storage->cache_type_v, CacheTypes())),
             Value("act", {}, "MODE", "auto, or f32: prompts are computed as exactly as generated tokens, for checking",
                   ChoiceSetter<ActMode>(&context->act, {{"auto", ActMode::kAuto}, {"f32", ActMode::kF32}}), "auto"),
         });
}

// Keys and values have one type here; llama.cpp's pair of options is accepted when it agrees.
Status FinishContext(ContextConfig* context, const OptionStorage& storage) {
  const KvCacheType key = storage.cache_type_k, value = storage.cache_type_v;
  if (key == KvCacheType::kAuto && value == KvCacheType::kAuto) return Status();
  if (key != value) {
    return InvalidArgument("--cache-type-k and --cache-type-v must be given together and be equal; use --cache-type");
  }
  if (context->kv_type != KvCacheType::kAuto && context->kv_type != key) {
    return InvalidArgument("--cache-type contradicts --cache-type-k and --cache-type-v; give --cache-type alone");
  }
  context->kv_type = key;
  return Status();
}

void FinishInput(TextInput* input) {
  if (input->escape && input->prompt) input->prompt = Unescape(*input->prompt);
}

void AddSampling(CommandSpec* command, SamplingOptions* s) {
  Append(command, kSampling,
         {
             Value("temp", {}, "X", "Temperature; 0: always the likeliest token",
                   RealSetter(&s->temperature, 0, kMaxReal), fmt::format("{}", s->temperature)),
             Value("top-k", {}, "N", "Keep the N likeliest tokens; 0: all",
                   IntegerSetter(&s->top_k, -1, kMaxInt, "0: all"), fmt::format("{}", s->top_k)),
             Value("top-p", {}, "X", "Keep the likeliest tokens that add up to X; 1: all", RealSetter(&s->top_p, 0, 1),
                   fmt::format("{}", s->top_p)),
             Value("min-p", {}, "X", "Keep tokens at least X times as likely as the likeliest; 0: all",
                   RealSetter(&s->min_p, 0, 1), fmt::format("{}", s->min_p)),
             Value("repeat-penalty", {}, "X", "Divide the logits of recent tokens; 1: off",
                   RealSetter(&s->repeat_penalty, 1e-6, kMaxReal), fmt::format("{}", s->repeat_penalty)),
             Value("presence-penalty", {}, "X", "Subtract X from the logits of recent tokens",
                   RealSetter(&s->presence_penalty, -kMaxReal, kMaxReal), fmt::format("{}", s->presence_penalty)),
             Value("frequency-penalty", {}, "X", "Subtract X for each time a recent token occurred",
                   RealSetter(&s->frequency_penalty, -kMaxReal, kMaxReal), fmt::format("{}", s->frequency_penalty)),
             Value("repeat-last-n", {}, "N", "Recent tokens that penalties look at; 0: none, -1: all",
                   IntegerSetter(&s->repeat_last_n, -1, 1 << 24, "-1: the whole context"),
                   fmt::format("{}", s->repeat_last_n)),
             Value("seed", {"-s"}, "N", "Seed of the random numbers; -1: random, reported by --stats and --json",
                   SeedSetter(&s->seed), "-1"),
             List("logit-bias", {}, "ID+X",
                  "Add X to (or with -, subtract from) the logit of token ID; -inf bans it. Repeatable",
                  LogitBiasSetter(&s->logit_bias)),
             Flag("greedy", {}, "Always the likeliest token, whatever the other sampling options say",
                  FlagSetter(&s->greedy)),
         });
}

OptionSpec Timers(RuntimeConfig* runtime) {
  return Flag("timers", {},
              "Measure how long the GPU waits for the CPU, for the statistics; steps take a little longer",
              FlagSetter(&runtime->timers));
}

CommandSpec RunCommand(OptionStorage* storage) {
  RunOptions* const o = &storage->run;
  CommandSpec command{.name = "run",
                      .arguments = "[MODEL]",
                      .summary = "Generate text, or chat",
                      .description =
                          "Continues a prompt, or answers it when the model has a chat template. Without a prompt it "
                          "reads standard input, and on a terminal it chats: /reset forgets the conversation, /stats "
                          "shows timings, /exit leaves, Ctrl-C ends an answer.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  Append(&command, kText, InputOptions(&o->input, "The prompt, taken literally; special tokens in it are recognised"));
  Append(&command, kText,
         {
             Value("system-prompt", {"-sys"}, "TEXT", "System message for the chat template",
                   LiteralSetter(&o->system_prompt)),
             Flag("conversation", {"-cnv"}, "Chat, also when input is no terminal: one message per line",
                  FlagSetter(&o->conversation)),
             Flag("raw", {}, "No chat template: continue the text as it is", FlagSetter(&o->raw)),
             Value("predict", {"-n", "--n-predict"}, "N", "Tokens to generate at most; -1: until the model ends",
                   IntegerSetter(&o->predict, -1, kMaxInt, "-1: no limit"), fmt::format("{}", o->predict)),
             List("stop", {"-r", "--reverse-prompt"}, "TEXT", "End before this text. Repeatable",
                  TextListSetter(&o->stop)),
             Flag("ignore-eos", {}, "Go on after the model's end-of-text token", FlagSetter(&o->ignore_eos)),
             Flag("special", {}, "Print special tokens too", FlagSetter(&o->special)),
         });
  AddSampling(&command, &o->sampling);
  AddContext(&command, &o->engine.context, storage);
  Append(&command, kContext,
         {
             Flag("context-shift", {}, "When the context is full, drop the oldest half instead of ending",
                  FlagSetter(&o->engine.context.shift)),
             Value("keep", {}, "N", "Prompt tokens that a shift keeps; -1: all",
                   IntegerSetter(&o->engine.context.keep_tokens, -1, kMaxInt, "-1: the whole prompt"),
                   fmt::format("{}", o->engine.context.keep_tokens)),
         });
  AddRuntime(&command, &o->engine.runtime, false);
  Append(&command, kOutput,
         {
             Flag("stats", {}, "Timings, expert hits and what the GPU moved on standard error at the end",
                  FlagSetter(&o->stats)),
             Timers(&o->engine.runtime),
         });
  AddOutput(&command, &o->output,
            "One JSON object at the end instead of text: prompt_ids, ids, text, finish_reason, timings, experts, seed");
  command.finish = [o, storage]() -> Status {
    BELLHOP_TRY(FinishContext(&o->engine.context, *storage));
    FinishInput(&o->input);
    if (o->input.escape) {
      if (o->system_prompt) o->system_prompt = Unescape(*o->system_prompt);
      for (std::string& stop : o->stop) stop = Unescape(stop);
    }
    if (o->conversation && o->raw)
      return InvalidArgument("--conversation needs the chat template that --raw turns off");
    if (o->conversation && o->output.json)
      return InvalidArgument("--json gives one object, so not with --conversation");
    if (o->system_prompt && o->raw) {
      return InvalidArgument(
          "--system-prompt goes into the chat template that --raw turns off; put it into the prompt");
    }
    return Status();
  };
  return command;
}

CommandSpec InspectCommand(InspectOptions* o) {
  CommandSpec command{.name = "inspect",
                      .arguments = "[MODEL]",
                      .summary = "Show what a model file holds",
                      .description = "Metadata, weight formats and sizes; any architecture, and no weights are read.",
                      .options = {},
                      .finish = [] { return Status(); },
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->model_path, kShippedHelp);
  Append(&command, kOutput,
         {
             Flag("tensors", {}, "Also every tensor (--json always has them)", FlagSetter(&o->tensors)),
             Value("max-array", {}, "N", "Elements shown of a metadata array", CountSetter(&o->max_array, 0, kMaxInt),
                   fmt::format("{}", o->max_array)),
         });
  AddOutput(&command, &o->output, "One JSON object instead of tables");
  return command;
}

CommandSpec TokenizeCommand(TokenizeOptions* o) {
  CommandSpec command{.name = "tokenize",
                      .arguments = "[MODEL]",
                      .summary = "Turn text into tokens, or tokens into text",
                      .description = "Prints one token per line, number and text. Text is taken byte for byte.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->model_path, kShippedHelp);
  Append(&command, kText, InputOptions(&o->input, "The text"));
  Append(
      &command, kText,
      {
          Rival("input",
                List("decode", {}, "IDS", "Print the text of these tokens instead: 1,2,3", IdListSetter(&o->decode))),
          Flag("no-bos", {}, "Do not add the tokens that the model puts at the ends of a text", FlagSetter(&o->no_bos)),
          Flag("no-special", {}, "Special tokens in the text are ordinary text", FlagSetter(&o->no_special)),
      });
  AddOutput(&command, &o->output, "One JSON object: ids and pieces, or the text with --decode");
  command.finish = [o]() -> Status {
    FinishInput(&o->input);
    return Status();
  };
  return command;
}

CommandSpec LogitsCommand(OptionStorage* storage) {
  LogitsOptions* const o = &storage->logits;
  CommandSpec command{
      .name = "logits",
      .arguments = "[MODEL]",
      .summary = "Compute the logits of a prompt",
      .description =
          "For checking against other engines. The text is not put into a chat template. --act f32 gives "
          "the most exact values.",
      .options = {},
      .finish = {},
      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  Append(&command, kText, InputOptions(&o->input, "The text; special tokens in it are recognised"));
  Append(
      &command, kText,
      {
          Rival("input", List("ids", {}, "IDS", "Tokens instead of text: 1,2,3", IdListSetter(&o->ids))),
          Flag("no-bos", {}, "Do not add the tokens that the model puts at the ends of a text", FlagSetter(&o->no_bos)),
      });
  AddContext(&command, &o->engine.context, storage);
  AddRuntime(&command, &o->engine.runtime, false);
  Append(&command, kOutput,
         {
             Value("out", {}, "FILE.npy", "Write the logits as float32 [positions, vocabulary]", TextSetter(&o->out)),
             Flag("all", {}, "Every position instead of the last", FlagSetter(&o->all)),
             Flag("experts", {}, "Also the experts chosen at every layer and position", FlagSetter(&o->experts)),
             Value("top", {}, "N", "Likeliest tokens shown per position", IntegerSetter(&o->top, 0, kMaxInt),
                   fmt::format("{}", o->top)),
         });
  AddOutput(&command, &o->output, "One JSON object: ids, the top tokens and experts of each position");
  command.finish = [o, storage]() -> Status {
    FinishInput(&o->input);
    return FinishContext(&o->engine.context, *storage);
  };
  return command;
}

void AddCorpus(CommandSpec* command, CorpusOptions* corpus) {
  OptionSpec file =
      Value("file", {"-f"}, "FILE",
            "Text, or .jsonl with one document per line: {\"text\": ..., \"source\": ...}; - is standard input",
            TextSetter(&corpus->file));
  file.required = true;
  Append(command, kText,
         {
             std::move(file),
             Value("window", {}, "N", "Tokens in one window; a remainder is dropped",
                   IntegerSetter(&corpus->window, 2, kMaxInt), fmt::format("{}", corpus->window)),
             Value("separator", {}, "TOKEN", "Text of the token after each .jsonl document",
                   TextSetter(&corpus->separator), "the model's end of text"),
         });
}

CommandSpec PerplexityCommand(OptionStorage* storage) {
  PerplexityOptions* const o = &storage->perplexity;
  CommandSpec command{.name = "perplexity",
                      .arguments = "[MODEL] -f FILE",
                      .summary = "Measure how well a model predicts a text",
                      .description =
                          "The text is cut into windows that do not overlap, each scored from its second token on. "
                          "Documents of one source in a .jsonl file are joined in file order, each followed by the "
                          "end-of-text token; sources are scored apart and together.",
                      .options = {},
                      .finish = [o, storage] { return FinishContext(&o->engine.context, *storage); },
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  AddCorpus(&command, &o->corpus);
  AddContext(&command, &o->engine.context, storage);
  AddRuntime(&command, &o->engine.runtime, false);
  AddOutput(&command, &o->output, "One JSON object: perplexity and windows of every source and of all");
  return command;
}

CommandSpec ProfileCommand(OptionStorage* storage) {
  ProfileOptions* const o = &storage->profile;
  CommandSpec command{.name = "profile",
                      .arguments = "[MODEL] -f FILE -o FILE.strp",
                      .summary = "Measure how popular each expert is",
                      .description =
                          "Runs a text through the model and counts the experts that it chooses. Writes a profile for "
                          "--profile, and the counts as JSON beside it.",
                      .options = {},
                      .finish = [o, storage] { return FinishContext(&o->engine.context, *storage); },
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  AddCorpus(&command, &o->corpus);
  OptionSpec out =
      Value("output", {"-o"}, "FILE.strp", "Profile to write; FILE.json gets the counts", TextSetter(&o->out));
  out.required = true;
  Append(&command, kOutput, {std::move(out)});
  AddContext(&command, &o->engine.context, storage);
  AddRuntime(&command, &o->engine.runtime, false);
  AddOutput(&command, &o->output, "The counts and the skew of every layer as one JSON object");
  return command;
}

// --json is another way to say --output json.
CommandSpec BenchCommand(OptionStorage* storage) {
  BenchOptions* const o = &storage->bench;
  CommandSpec command{.name = "bench",
                      .arguments = "[MODEL]",
                      .summary = "Measure speed",
                      .description =
                          "Prompt processing (pp) and generation (tg), with the weight bytes that generation reads and "
                          "its share of the read bandwidth measured in the same run.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  Append(
      &command, "Cases",
      {
          List("pp", {}, "N,...", "Prompt lengths; 0: none", IntegerListSetter(&o->prompt_tokens, 0, kMaxInt), "512"),
          List("tg", {}, "N,...", "Numbers of generated tokens; 0: none",
               IntegerListSetter(&o->decode_tokens, 0, kMaxInt), "128"),
          List("depth", {"-d"}, "N,...", "Tokens already in the context", IntegerListSetter(&o->depths, 0, kMaxInt),
               "0"),
          List("threads", {"-t"}, "N,...", "CPU threads; 0: one per physical core within the CPU quota",
               IntegerListSetter(&o->threads, 0, kMaxThreads), "0"),
          List("isa", {}, "NAME,...", "CPU kernels: reference, avx2, avx512, amx or auto",
               NameListSetter(&o->isas, {"auto", "reference", "avx2", "avx512", "amx"}), "auto"),
          List("residency", {}, "P,...", "Percent of the experts in GPU slots; above 0 needs a GPU",
               PercentListSetter(&o->residency), "0"),
          Value("reps", {}, "N", "Repetitions of each case, after one that is not counted",
                IntegerSetter(&o->repetitions, 1, 10000), fmt::format("{}", o->repetitions)),
      });
  AddContext(&command, &o->engine.context, storage);
  AddRuntime(&command, &o->engine.runtime, true);
  AddBenchOutput(&command, &o->format, &o->out, &o->output);
  Append(&command, kOutput, {Timers(&o->engine.runtime)});
  command.finish = [o, storage]() -> Status {
    FinishBenchOutput(&o->format, &o->output);
    return FinishContext(&o->engine.context, *storage);
  };
  return command;
}

CommandSpec QuantizeCommand(QuantizeCommandOptions* o) {
  CommandSpec command{
      .name = "quantize",
      .arguments = "IN OUT --type TYPE",
      .summary = "Write a model in another weight format",
      .description =
          "Norms, biases, routers and other small tensors stay as they are. OUT appears only when it is "
          "complete.",
      .options = {},
      .finish = [] { return Status(); },
      .take = [o] { return CommandOptions(*o); }};
  const auto positional = [](std::string name, std::string value_name, std::string help, Setter set) {
    OptionSpec spec = Value(std::move(name), {}, std::move(value_name), std::move(help), std::move(set));
    spec.positional = spec.required = true;
    spec.named = false;
    return spec;
  };
  Append(&command, kModel,
         {
             positional("in", "IN", "GGUF file to read", TextSetter(&o->in)),
             positional("out", "OUT", "GGUF file to write", TextSetter(&o->out)),
         });
  OptionSpec type = Value("type", {}, "TYPE", "Format of every matrix that can take it: q4_0, q4_k, q8_0, mxfp4, ...",
                          TextSetter(&o->type));
  type.required = true;
  Append(&command, "Formats",
         {
             std::move(type),
             Value("dense-type", {}, "TYPE", "Format of matrices that are no routed experts",
                   TextSetter(&o->dense_type), "as --type"),
             Value("output-type", {}, "TYPE", "Format of output.weight and token_embd.weight",
                   TextSetter(&o->output_type), "as --dense-type"),
             List("tensor-type", {}, "PATTERN=TYPE",
                  "Format of tensors whose names match; the first match wins. Repeatable",
                  AssignmentListSetter(&o->tensor_types, "PATTERN=TYPE, such as 'blk\\.0\\..*=q8_0'")),
             Flag("allow-requantize", {}, "Also from a format that has lost precision already",
                  FlagSetter(&o->allow_requantize)),
             Flag("overwrite", {}, "Replace OUT when it exists", FlagSetter(&o->overwrite)),
         });
  Append(&command, kWhere,
         {Value("threads", {"-t"}, "N", "CPU threads; 0: one per physical core",
                IntegerSetter(&o->threads, 0, kMaxThreads, "0: one per core"), fmt::format("{}", o->threads))});
  AddOutput(&command, &o->output, "One JSON object: bytes, tensors converted, notes");
  return command;
}

CommandSpec DoctorCommand(DoctorCommandOptions* o) {
  CommandSpec command{.name = "doctor",
                      .arguments = "[MODEL]",
                      .summary = "Check this machine: CPU, memory, GPU, limits",
                      .description =
                          "Says what is missing and what to do about it. With MODEL, also whether it fits. With "
                          "--calibrate, measures instead what plans for the GPU go by, and stores it.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  AddModel(&command, &o->model_path, "GGUF file to check as well; also without -m");
  Append(
      &command, kWhere,
      {
          Value("threads", {"-t"}, "N", "CPU threads to measure with; 0: one per physical core",
                IntegerSetter(&o->threads, 0, kMaxThreads, "0: one per core"), fmt::format("{}", o->threads)),
          Rival("measurement",
                Flag("no-measure", {}, "Do not measure bandwidth (two seconds)", FlagSetter(&o->measure, false))),
          Rival("measurement",
                Flag("calibrate", {}, "Measure memory, PCIe and the GPU's doorbell (some seconds), and store the rates",
                     FlagSetter(&o->calibrate))),
          Calibration(&o->calibration, "Where --calibrate stores the rates, and where stored ones are looked up"),
      });
  AddOutput(&command, &o->output, "One JSON object instead of a table");
  command.finish = [o]() -> Status {
    if (o->calibrate && !o->model_path.empty()) {
      return InvalidArgument("--calibrate measures the machine alone; leave MODEL out");
    }
    return Status();
  };
  return command;
}

CommandSpec ServeCommand(OptionStorage* storage) {
  ServeOptions* const o = &storage->serve;
  CommandSpec command{.name = "serve",
                      .arguments = "[MODEL]",
                      .summary = "Serve the model over HTTP",
                      .description =
                          "Answers the APIs of OpenAI (/v1/chat/completions, /v1/completions, /v1/responses) and "
                          "Anthropic (/v1/messages), and shows a page with a chat and the experts at /. Ctrl-C or "
                          "SIGTERM lets running answers finish.",
                      .options = {},
                      .finish = {},
                      .take = [o] { return CommandOptions(*o); }};
  o->engine.context.sequences = kDefaultParallel;
  AddModel(&command, &o->engine.model_path, kShippedHelp);
  Append(
      &command, kServer,
      {
          Value("host", {}, "ADDRESS", "Address to listen on; 0.0.0.0: all of this machine", TextSetter(&o->host),
                o->host),
          Value("port", {}, "N", "Port; 0: any free one", IntegerSetter(&o->port, 0, 65535, "0: any free one"),
                fmt::format("{}", o->port)),
          Value("alias", {"-a"}, "NAME", "The model's name in the API", TextSetter(&o->alias), "the file's"),
          Value("parallel", {"-np"}, "N", "Sequences that generate at a time, each with a context of its own",
                CountSetter(&o->engine.context.sequences, 1, kMaxSequences),
                fmt::format("{}", o->engine.context.sequences)),
          Value("queue", {}, "N", "Sequences that may wait; more are refused with 429",
                IntegerSetter(&o->queue, 0, kMaxInt), fmt::format("{}", o->queue)),
          List("api-key", {}, "KEY", "Ask for this key: Authorization: Bearer KEY. Repeatable",
               TextListSetter(&o->api_keys)),
          Value("api-key-file", {}, "FILE", "The same, one key per line", TextSetter(&o->api_key_file)),
          List("cors", {}, "ORIGIN", "Let pages of this origin call: https://example.org, or *. Repeatable",
               TextListSetter(&o->cors_origins)),
          Value("connections", {}, "N", "Connections served at a time; more wait",
                IntegerSetter(&o->connections, 1, kMaxConnections), fmt::format("{}", o->connections)),
          Value("max-body", {}, "SIZE", "Largest body of a request", ByteSizeSetter(&o->max_body_bytes), "16MiB"),
          Value("request-timeout", {}, "S", "Seconds that a request may take in all; 0: no limit",
                IntegerSetter(&o->request_seconds, 0, kMaxInt, "0: no limit"), fmt::format("{}", o->request_seconds)),
          Value("drain-timeout", {}, "S", "Seconds that running answers may still take at the end",
                IntegerSetter(&o->drain_seconds, 0, kMaxInt), fmt::format("{}", o->drain_seconds)),
      });
  AddContext(&command, &o->engine.context, storage);
  AddRuntime(&command, &o->engine.runtime, false);
  AddOutput(&command, &o->output, "The address as a JSON object: {\"url\": ...}");
  command.finish = [o, storage]() -> Status {
    if (o->max_body_bytes < 1024 || o->max_body_bytes > (uint64_t{1} << 30)) {
      return InvalidArgument("--max-body {}: must be 1 KiB to 1 GiB", o->max_body_bytes);
    }
    return FinishContext(&o->engine.context, *storage);
  };
  return command;
}

}  // namespace

std::vector<CalibrationConfig*> OptionStorage::Calibrations() {
  return {&run.engine.runtime.calibration,
          &logits.engine.runtime.calibration,
          &perplexity.engine.runtime.calibration,
          &profile.engine.runtime.calibration,
          &bench.engine.runtime.calibration,
          &serve.engine.runtime.calibration,
          &doctor.calibration};
}

std::vector<CommandSpec> BuildCommands(OptionStorage* storage) {
  std::vector<CommandSpec> commands;
  commands.push_back(RunCommand(storage));
  commands.push_back(ServeCommand(storage));
  commands.push_back(InspectCommand(&storage->inspect));
  commands.push_back(TokenizeCommand(&storage->tokenize));
  commands.push_back(LogitsCommand(storage));
  commands.push_back(PerplexityCommand(storage));
  commands.push_back(ProfileCommand(storage));
  commands.push_back(BenchCommand(storage));
  commands.push_back(OpbenchCommand(&storage->opbench));
  commands.push_back(QuantizeCommand(&storage->quantize));
  commands.push_back(DoctorCommand(&storage->doctor));
  for (CommandSpec& command : commands) {
    Append(&command, "Other",
           {
               // Read by the parser itself, before the others.
               Value("config", {}, "FILE.json", "Settings: an object of long option names and their values",
                     [](std::string_view) { return Status(); }),
               Flag("help", {"-h"}, "This text", [](std::string_view) { return Status(); }),
           });
  }
  return commands;
}

}  // namespace bellhop::config
