#include "config/parse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

#include "config/parse_spec.h"
#include "config/parse_values.h"

namespace bellhop::config {
namespace {

using Arguments = std::vector<std::string>;

class ParseTest : public testing::Test {
 protected:
  ParseTest() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    config_path_ = testing::TempDir() + "bellhop_" + info->name() + ".json";
  }
  ~ParseTest() override { std::filesystem::remove(config_path_); }

  void WriteConfig(const std::string& text) { std::ofstream(config_path_) << text; }

  template <typename T>
  T Parse(const Arguments& arguments) {
    Result<Command> command = ParseCommandLine(arguments, environment_);
    EXPECT_TRUE(command.ok()) << command.status().ToString();
    if (!command.ok()) return T();
    settings_ = command->settings;
    warnings_ = command->warnings;
    if (!std::holds_alternative<T>(command->options)) {
      ADD_FAILURE() << "another command";
      return T();
    }
    return std::get<T>(command->options);
  }
  RunOptions Run(Arguments arguments) {
    arguments.insert(arguments.begin(), "run");
    return Parse<RunOptions>(arguments);
  }
  std::string Error(const Arguments& arguments) {
    const Result<Command> command = ParseCommandLine(arguments, environment_);
    if (command.ok()) return "no error";
    EXPECT_EQ(command.status().message().find('\n'), std::string::npos) << "more than one line";
    return std::string(command.status().message());
  }
  std::string Help(const Arguments& arguments) { return Parse<HelpRequest>(arguments).text; }

  std::string config_path_;
  Environment environment_;
  std::vector<Setting> settings_;
  std::vector<std::string> warnings_;
};

#define EXPECT_MENTIONS(text, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, text)

TEST_F(ParseTest, DefaultsAreThoseOfTheStructs) {
  const RunOptions run = Run({});
  EXPECT_EQ(run.engine.model_path, "");
  EXPECT_EQ(run.predict, -1);
  EXPECT_FLOAT_EQ(run.sampling.temperature, 0.8f);
  EXPECT_EQ(run.sampling.top_k, 40);
  EXPECT_FALSE(run.sampling.seed.has_value());
  EXPECT_FALSE(run.input.prompt.has_value());
  EXPECT_EQ(run.engine.context.batch_rows, 512u);
  EXPECT_EQ(run.engine.runtime.isa, "auto");
  EXPECT_TRUE(run.engine.runtime.pin_threads);
  EXPECT_TRUE(settings_.empty());
}

TEST_F(ParseTest, EveryKindOfValueArrives) {
  const RunOptions run = Run({"m.gguf",
                              "-p",
                              "hi",
                              "-n",
                              "5",
                              "-c",
                              "2048",
                              "-t",
                              "3",
                              "-b",
                              "64",
                              "--temp",
                              "0.5",
                              "--top-k",
                              "-1",
                              "--top-p",
                              "0.9",
                              "--min-p",
                              "0",
                              "-s",
                              "18446744073709551615",
                              "--repeat-penalty",
                              "1.1",
                              "--presence-penalty",
                              "-0.5",
                              "--frequency-penalty",
                              "0.25",
                              "--repeat-last-n",
                              "-1",
                              "--logit-bias",
                              "7+1.5",
                              "--logit-bias",
                              "8-inf",
                              "--stop",
                              "a",
                              "-r",
                              "b",
                              "--vram",
                              "12GiB",
                              "--ram",
                              "auto",
                              "--gpu-experts",
                              "25%",
                              "--isa",
                              "avx2",
                              "--device",
                              "cpu",
                              "--offload",
                              "off",
                              "--miss-lane",
                              "split",
                              "--hugepages",
                              "auto",
                              "--prefault",
                              "off",
                              "--profile",
                              "p.strp",
                              "--cache-type",
                              "bf16",
                              "--act",
                              "f32",
                              "--keep",
                              "-1",
                              "-sys",
                              "be brief",
                              "--greedy",
                              "--context-shift",
                              "--ignore-eos",
                              "--no-pin",
                              "--deterministic",
                              "--special",
                              "--stats",
                              "-v",
                              "--log-file",
                              "log.txt"});
  EXPECT_EQ(run.engine.model_path, "m.gguf");
  EXPECT_EQ(run.input.prompt, "hi");
  EXPECT_EQ(run.predict, 5);
  EXPECT_EQ(run.engine.context.context_tokens, 2048u);
  EXPECT_EQ(run.engine.runtime.threads, 3);
  EXPECT_EQ(run.engine.context.batch_rows, 64u);
  EXPECT_FLOAT_EQ(run.sampling.temperature, 0.5f);
  EXPECT_EQ(run.sampling.top_k, -1);
  EXPECT_FLOAT_EQ(run.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(run.sampling.min_p, 0.0f);
  EXPECT_EQ(run.sampling.seed, UINT64_MAX);
  EXPECT_FLOAT_EQ(run.sampling.repeat_penalty, 1.1f);
  EXPECT_FLOAT_EQ(run.sampling.presence_penalty, -0.5f);
  EXPECT_FLOAT_EQ(run.sampling.frequency_penalty, 0.25f);
  EXPECT_EQ(run.sampling.repeat_last_n, -1);
  ASSERT_EQ(run.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(run.sampling.logit_bias[0], std::make_pair(7, 1.5f));
  EXPECT_EQ(run.sampling.logit_bias[1].first, 8);
  EXPECT_TRUE(std::isinf(run.sampling.logit_bias[1].second));
  EXPECT_LT(run.sampling.logit_bias[1].second, 0);
  EXPECT_EQ(run.stop, (Arguments{"a", "b"}));
  EXPECT_EQ(run.engine.runtime.vram_bytes, uint64_t{12} << 30);
  EXPECT_FALSE(run.engine.runtime.ram_bytes.has_value());
  EXPECT_EQ(run.engine.runtime.gpu_experts_percent, 25.0);
  EXPECT_EQ(run.engine.runtime.isa, "avx2");
  EXPECT_EQ(run.engine.runtime.device, Device::kCpu);
  EXPECT_EQ(run.engine.runtime.offload, OffloadMode::kOff);
  EXPECT_EQ(run.engine.runtime.miss_lane, MissLane::kSplit);
  EXPECT_EQ(run.engine.runtime.huge_pages, HugePagesMode::kAuto);
  EXPECT_EQ(run.engine.runtime.prefault, PrefaultMode::kOff);
  EXPECT_EQ(run.engine.runtime.profile_path, "p.strp");
  EXPECT_EQ(run.engine.context.kv_type, KvCacheType::kBF16);
  EXPECT_EQ(run.engine.context.act, ActMode::kF32);
  EXPECT_EQ(run.engine.context.keep_tokens, -1);
  EXPECT_EQ(run.system_prompt, "be brief");
  EXPECT_TRUE(run.sampling.greedy);
  EXPECT_TRUE(run.engine.context.shift);
  EXPECT_TRUE(run.ignore_eos);
  EXPECT_FALSE(run.engine.runtime.pin_threads);
  EXPECT_TRUE(run.engine.runtime.deterministic);
  EXPECT_TRUE(run.special);
  EXPECT_TRUE(run.stats);
  EXPECT_TRUE(run.output.verbose);
  EXPECT_EQ(run.output.log_file, "log.txt");
}

TEST_F(ParseTest, ZeroAndAbsentAreDifferent) {
  EXPECT_FALSE(Run({}).engine.runtime.gpu_experts.has_value());
  EXPECT_EQ(Run({"--gpu-experts", "0"}).engine.runtime.gpu_experts, 0u);
  EXPECT_FALSE(Run({}).engine.runtime.vram_bytes.has_value());
  EXPECT_EQ(Run({"--vram", "0"}).engine.runtime.vram_bytes, 0u);
  EXPECT_FALSE(Run({}).input.prompt.has_value());
  EXPECT_EQ(Run({"-p", ""}).input.prompt, "");
  EXPECT_EQ(Run({"--prompt="}).input.prompt, "");
}

TEST_F(ParseTest, ValuesMayLookLikeOptions) {
  EXPECT_EQ(Run({"-p", "--greedy"}).input.prompt, "--greedy");
  EXPECT_EQ(Run({"-p", "-sys"}).input.prompt, "-sys");
  EXPECT_EQ(Run({"-p", "--help"}).input.prompt, "--help");
  EXPECT_EQ(Run({"-p", "--"}).input.prompt, "--");
  EXPECT_EQ(Run({"--prompt=--x=y"}).input.prompt, "--x=y");
  EXPECT_EQ(Run({"-p", "[a,b]"}).input.prompt, "[a,b]");
  EXPECT_EQ(Run({"-f", "-"}).input.file, "-");
  EXPECT_EQ(Run({"--", "-odd-name.gguf"}).engine.model_path, "-odd-name.gguf");
}

TEST_F(ParseTest, SpellingsOfOneOptionAreTheSame) {
  for (const std::string name : {"-c", "--ctx-size", "--ctx"}) {
    EXPECT_EQ(Run({name, "100"}).engine.context.context_tokens, 100u) << name;
  }
  for (const std::string name : {"-n", "--predict", "--n-predict"}) EXPECT_EQ(Run({name, "9"}).predict, 9) << name;
  EXPECT_EQ(Run({"-n9"}).predict, 9);
  EXPECT_EQ(Run({"--predict=9"}).predict, 9);
  const RunOptions joined = Run({"-vn", "9"});
  EXPECT_TRUE(joined.output.verbose);
  EXPECT_EQ(joined.predict, 9);
  EXPECT_TRUE(Run({"-cnv"}).conversation);
  EXPECT_EQ(Run({"-m", "a.gguf"}).engine.model_path, "a.gguf");
  EXPECT_EQ(Run({"--model", "a.gguf"}).engine.model_path, "a.gguf");
}

TEST_F(ParseTest, FlagsTakeFalse) {
  EXPECT_FALSE(Run({"--greedy=false"}).sampling.greedy);
  EXPECT_TRUE(Run({"--no-pin=off"}).engine.runtime.pin_threads);
  EXPECT_MENTIONS(Error({"run", "--greedy=maybe"}), "--greedy 'maybe': expects true or false");
}

TEST_F(ParseTest, ArgumentBeatsEnvironmentBeatsFileBeatsDefault) {
  WriteConfig(R"({"ctx-size": 100, "threads": 1, "temp": 0.25, "greedy": true})");
  environment_.variables = {{"BELLHOP_CTX_SIZE", "200"}, {"BELLHOP_THREADS", "2"}, {"BELLHOP_MODEL", "env.gguf"}};
  const RunOptions run = Run({"--config", config_path_, "-c", "300"});
  EXPECT_EQ(run.engine.context.context_tokens, 300u);
  EXPECT_EQ(run.engine.runtime.threads, 2);
  EXPECT_FLOAT_EQ(run.sampling.temperature, 0.25f);
  EXPECT_TRUE(run.sampling.greedy);
  EXPECT_EQ(run.engine.model_path, "env.gguf");
  EXPECT_EQ(run.predict, -1);
  EXPECT_EQ(Run({"pos.gguf"}).engine.model_path, "pos.gguf");

  std::map<std::string, std::string> sources;
  Run({"--config", config_path_, "-c", "300"});
  for (const Setting& setting : settings_) sources[setting.name] = setting.source;
  EXPECT_EQ(sources["ctx-size"], "argument");
  EXPECT_EQ(sources["threads"], "BELLHOP_THREADS");
  EXPECT_EQ(sources["temp"], config_path_ + ": temp");
}

TEST_F(ParseTest, ConfigFileMayComeFromTheEnvironment) {
  WriteConfig(R"({"predict": 3})");
  environment_.variables = {{"BELLHOP_CONFIG", config_path_}};
  EXPECT_EQ(Run({}).predict, 3);
}

TEST_F(ParseTest, ListsAddUpWithinALayerAndAHigherLayerReplacesThem) {
  WriteConfig(R"({"stop": ["x", "y"]})");
  EXPECT_EQ(Run({"--config", config_path_}).stop, (Arguments{"x", "y"}));
  EXPECT_EQ(Run({"--config", config_path_, "--stop", "a", "--stop", "b"}).stop, (Arguments{"a", "b"}));
  environment_.variables = {{"BELLHOP_STOP", "e"}};
  EXPECT_EQ(Run({"--config", config_path_}).stop, (Arguments{"e"}));
}

TEST_F(ParseTest, NumberListsReplaceTheirDefault) {
  const auto bench =
      Parse<BenchOptions>({"bench", "--pp", "16,32", "--pp", "64", "--tg", "0", "-t", "1,2", "--isa", "avx2,reference",
                           "--residency", "0,25%", "-o", "csv", "-d", "8", "--out", "b.json"});
  EXPECT_EQ(bench.out, "b.json");
  EXPECT_EQ(bench.prompt_tokens, (std::vector<int32_t>{16, 32, 64}));
  EXPECT_EQ(bench.decode_tokens, (std::vector<int32_t>{0}));
  EXPECT_EQ(bench.depths, (std::vector<int32_t>{8}));
  EXPECT_EQ(bench.threads, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(bench.isas, (Arguments{"avx2", "reference"}));
  EXPECT_EQ(bench.residency, (std::vector<double>{0, 25}));
  EXPECT_EQ(bench.format, BenchFormat::kCsv);
  EXPECT_EQ(Parse<BenchOptions>({"bench"}).prompt_tokens, (std::vector<int32_t>{512}));
  EXPECT_EQ(Parse<BenchOptions>({"bench", "--json"}).format, BenchFormat::kJson);
  EXPECT_TRUE(Parse<BenchOptions>({"bench", "-o", "json"}).output.json);
}

TEST_F(ParseTest, OpbenchFillsItsStruct) {
  const auto defaults = Parse<OpbenchOptions>({"opbench"});
  EXPECT_EQ(defaults.hidden, 2560);
  EXPECT_EQ(defaults.inter, 640);
  EXPECT_EQ(defaults.active, 8);
  EXPECT_EQ(defaults.formats, (Arguments{"all"}));
  EXPECT_EQ(defaults.isas, (Arguments{"all"}));
  EXPECT_EQ(defaults.rows, (std::vector<int32_t>{1, 2, 4, 8, 16, 64, 256}));
  EXPECT_EQ(defaults.rotate_bytes, uint64_t{2} << 30);
  EXPECT_EQ(defaults.arguments, (Arguments{"opbench"}));
  environment_.variables = {{"BELLHOP_ROTATE", "64MiB"}, {"BELLHOP_FORMAT", "q4_0"}, {"BELLHOP_CLASS", "prompt"}};
  const auto opbench = Parse<OpbenchOptions>({"opbench",
                                              "--hidden",
                                              "2048",
                                              "--inter",
                                              "768",
                                              "--active",
                                              "4",
                                              "--topk",
                                              "2",
                                              "--experts",
                                              "128",
                                              "--format",
                                              "int4_b32,q8_0",
                                              "--format",
                                              "mxfp4",
                                              "--isa",
                                              "avx2,amx",
                                              "--rows",
                                              "1,8",
                                              "-t",
                                              "1,2",
                                              "--reps",
                                              "3",
                                              "--seed",
                                              "18446744073709551615",
                                              "--device",
                                              "cpu",
                                              "--no-pin",
                                              "-o",
                                              "csv",
                                              "--out",
                                              "r.json"});
  EXPECT_EQ(opbench.hidden, 2048);
  EXPECT_EQ(opbench.inter, 768);
  EXPECT_EQ(opbench.active, 4);
  EXPECT_EQ(opbench.topk, 2);
  EXPECT_EQ(opbench.experts, 128);
  EXPECT_EQ(opbench.formats, (Arguments{"int4_b32", "q8_0", "mxfp4"}));
  EXPECT_EQ(opbench.isas, (Arguments{"avx2", "amx"}));
  EXPECT_EQ(opbench.rows, (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(opbench.threads, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(opbench.repetitions, 3);
  EXPECT_EQ(opbench.seed, UINT64_MAX);
  EXPECT_EQ(opbench.device, Device::kCpu);
  EXPECT_FALSE(opbench.pin_threads);
  EXPECT_EQ(opbench.format, BenchFormat::kCsv);
  EXPECT_EQ(opbench.out, "r.json");
  EXPECT_EQ(opbench.rotate_bytes, uint64_t{64} << 20);
  EXPECT_EQ(opbench.bench_class, BenchClass::kPrompt);
  EXPECT_EQ(Parse<OpbenchOptions>({"opbench"}).formats, (Arguments{"q4_0"}));
  EXPECT_TRUE(Parse<OpbenchOptions>({"opbench", "-o", "json"}).output.json);
}

TEST_F(ParseTest, OpbenchOnAGpuHasOptionsOfItsOwn) {
  const auto defaults = Parse<OpbenchOptions>({"opbench", "--device", "cuda"});
  EXPECT_EQ(defaults.device, Device::kCuda);
  EXPECT_EQ(defaults.modes, (Arguments{"resident"}));
  EXPECT_EQ(defaults.hit_rates, (std::vector<double>{60}));
  EXPECT_EQ(defaults.layers, 4);
  EXPECT_EQ(defaults.experts, 0);
  EXPECT_EQ(defaults.topk, 0);
  const auto given =
      Parse<OpbenchOptions>({"opbench", "--device", "cuda", "--mode", "off_all,off_cpu", "--mode", "off_gpu",
                             "--hit-rate", "19,60%", "--layers", "8", "--experts", "128", "--topk", "32", "-t", "3"});
  EXPECT_EQ(given.modes, (Arguments{"off_all", "off_cpu", "off_gpu"}));
  EXPECT_EQ(given.hit_rates, (std::vector<double>{19, 60}));
  EXPECT_EQ(given.layers, 8);
  EXPECT_EQ(given.experts, 128);
  EXPECT_EQ(given.topk, 32);
  EXPECT_EQ(given.threads, (std::vector<int32_t>{3}));
}

TEST_F(ParseTest, OtherCommandsFillTheirStructs) {
  const auto quantize = Parse<QuantizeCommandOptions>(
      {"quantize", "in.gguf", "out.gguf", "--type", "q4_0", "--tensor-type", "a=b=q8_0", "--tensor-type", "c=f16",
       "--dense-type", "q8_0", "--output-type", "q6_k", "-t", "2", "--allow-requantize", "--overwrite"});
  EXPECT_EQ(quantize.in, "in.gguf");
  EXPECT_EQ(quantize.out, "out.gguf");
  EXPECT_EQ(quantize.type, "q4_0");
  EXPECT_EQ(quantize.dense_type, "q8_0");
  EXPECT_EQ(quantize.output_type, "q6_k");
  EXPECT_EQ(quantize.threads, 2);
  EXPECT_TRUE(quantize.allow_requantize && quantize.overwrite);
  ASSERT_EQ(quantize.tensor_types.size(), 2u);
  EXPECT_EQ(quantize.tensor_types[0], std::make_pair(std::string("a=b"), std::string("q8_0")));

  const auto tokenize = Parse<TokenizeOptions>({"tokenize", "--decode", "1, 2,3", "--decode", "4"});
  EXPECT_EQ(tokenize.decode, (std::vector<int32_t>{1, 2, 3, 4}));
  const auto logits =
      Parse<LogitsOptions>({"logits", "m", "--ids", "5", "--out", "x.npy", "--all", "--experts", "--top", "3"});
  EXPECT_EQ(logits.ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(logits.out, "x.npy");
  EXPECT_TRUE(logits.all && logits.experts);
  EXPECT_EQ(logits.top, 3);
  const auto perplexity =
      Parse<PerplexityOptions>({"perplexity", "-f", "t.jsonl", "--window", "64", "--separator", "</s>"});
  EXPECT_EQ(perplexity.corpus.file, "t.jsonl");
  EXPECT_EQ(perplexity.corpus.window, 64);
  EXPECT_EQ(perplexity.corpus.separator, "</s>");
  const auto profile = Parse<ProfileOptions>({"profile", "-f", "t.txt", "-o", "p.strp"});
  EXPECT_EQ(profile.out, "p.strp");
  const auto inspect = Parse<InspectOptions>({"inspect", "m", "--tensors", "--max-array", "2", "--json"});
  EXPECT_TRUE(inspect.tensors && inspect.output.json);
  EXPECT_EQ(inspect.max_array, 2u);
  const auto doctor = Parse<DoctorCommandOptions>({"doctor", "--no-measure"});
  EXPECT_FALSE(doctor.measure);
  EXPECT_EQ(doctor.model_path, "");
  EXPECT_FALSE(doctor.calibrate);
}

TEST_F(ParseTest, TheCalibrationLiesInTheCacheFolderUnlessNamed) {
  EXPECT_EQ(Run({}).engine.runtime.calibration.path, "");
  environment_.variables = {{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "relative"}};
  EXPECT_EQ(Run({}).engine.runtime.calibration.path, "/home/u/.cache/bellhop/calibration.json");
  environment_.variables["XDG_CACHE_HOME"] = "/cache";
  const auto doctor = Parse<DoctorCommandOptions>({"doctor", "--calibrate"});
  EXPECT_TRUE(doctor.calibrate && doctor.measure);
  EXPECT_EQ(doctor.calibration.path, "/cache/bellhop/calibration.json");
  EXPECT_FALSE(doctor.calibration.is_explicit);
  EXPECT_TRUE(warnings_.empty());
  environment_.variables["BELLHOP_CALIBRATION"] = "twin.json";
  const CalibrationConfig twin = Run({}).engine.runtime.calibration;
  EXPECT_EQ(twin.path, "twin.json");
  EXPECT_TRUE(twin.is_explicit);
  const auto named = Parse<DoctorCommandOptions>({"doctor", "--calibration", "c.json"});
  EXPECT_EQ(named.calibration.path, "c.json");
  EXPECT_TRUE(named.calibration.is_explicit);
  EXPECT_MENTIONS(Error({"doctor", "--calibrate", "--no-measure"}), "exclude each other");
  EXPECT_MENTIONS(Error({"doctor", "m.gguf", "--calibrate"}), "leave MODEL out");
  EXPECT_MENTIONS(Error({"doctor", "--calibration="}), "--calibration");
  EXPECT_MENTIONS(Help({"help", "doctor"}), "--calibrate");
  EXPECT_MENTIONS(Help({"help", "run"}), "--calibration FILE");
}

TEST_F(ParseTest, EscapesAreReplacedOnRequestOnly) {
  EXPECT_EQ(Run({"-p", R"(a\nb)"}).input.prompt, R"(a\nb)");
  const RunOptions run = Run({"-e", "-p", R"(a\nb\t\\n\x41\q\)", "--stop", R"(\n)", "-sys", R"(\")"});
  EXPECT_EQ(run.input.prompt, "a\nb\t\\nA\\q\\");
  EXPECT_EQ(run.stop, (Arguments{"\n"}));
  EXPECT_EQ(run.system_prompt, "\"");
}

TEST_F(ParseTest, CacheTypesOfKeysAndValuesMustAgree) {
  EXPECT_EQ(Run({"-ctk", "f32", "-ctv", "f32"}).engine.context.kv_type, KvCacheType::kF32);
  EXPECT_MENTIONS(Error({"run", "-ctk", "f32"}), "--cache-type-k and --cache-type-v must be given together");
  EXPECT_MENTIONS(Error({"run", "-ctk", "f32", "-ctv", "f16"}), "be equal");
  EXPECT_MENTIONS(Error({"run", "-ctk", "q8_0", "-ctv", "q8_0"}), "--cache-type-k 'q8_0': expects f16, f32 or bf16");
  EXPECT_MENTIONS(Error({"run", "-ctk", "f16", "-ctv", "f16", "--cache-type", "f32"}), "contradicts");
}

TEST_F(ParseTest, ErrorsNameOptionValueAndWhatIsAccepted) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--threads", "abc"}, "--threads 'abc': expects a whole number from 0 to 4096"},
      {{"-t", "-1"}, "--threads '-1': expects a whole number from 0 to 4096"},
      {{"-t", "5000"}, "--threads '5000': expects a whole number from 0 to 4096"},
      {{"-t", ""}, "--threads '': expects a whole number"},
      {{"-t", "1.5"}, "--threads '1.5': expects a whole number"},
      {{"-t", "99999999999999999999"}, "expects a whole number"},
      {{"-c", "3000000000"}, "--ctx-size '3000000000': expects a whole number, 0 or more"},
      {{"-b", "0"}, "--batch-size '0': expects a whole number from 1 to 65536"},
      {{"-n", "-2"}, "--predict '-2': expects a whole number, -1 or more"},
      {{"--temp", "-0.1"}, "--temp '-0.1': expects a number from 0"},
      {{"--temp", "nan"}, "--temp 'nan': expects a number"},
      {{"--temp", "1e99"}, "--temp '1e99': expects a number"},
      {{"--top-p", "1.5"}, "--top-p '1.5': expects a number from 0 to 1"},
      {{"--min-p", "x"}, "--min-p 'x': expects a number from 0 to 1"},
      {{"--repeat-penalty", "0"}, "--repeat-penalty '0': expects a number from"},
      {{"-s", "-2"}, "--seed '-2': expects a whole number from 0 to 18446744073709551615"},
      {{"--vram", "lots"}, "--vram 'lots': expects a size such as 12GiB"},
      {{"--ram", "-1"}, "--ram '-1': expects a size"},
      {{"--gpu-experts", "101%"}, "--gpu-experts '101%': expects a number of experts per layer, or a share"},
      {{"--gpu-experts", "-3"}, "expects a number of experts"},
      {{"--isa", "sse9"}, "--isa 'sse9': expects auto, reference, avx2, avx512 or amx"},
      {{"--device", "tpu"}, "--device 'tpu': expects auto, cpu or cuda"},
      {{"--act", "f16"}, "--act 'f16': expects auto or f32"},
      {{"--offload", "always"}, "--offload 'always': expects off, auto or required"},
      {{"--hugepages", "on"}, "--hugepages 'on': expects off, auto or required"},
      {{"--prefault", "yes"}, "--prefault 'yes': expects off, auto or required"},
      {{"--miss-lane", "gpu"}, "--miss-lane 'gpu': expects auto, cpu, pcie or split"},
      {{"--logit-bias", "7"}, "--logit-bias '7': expects TOKEN+BIAS"},
      {{"--logit-bias", "7+inf"}, "--logit-bias '7+inf': expects TOKEN+BIAS"},
      {{"--stop", ""}, "--stop '': expects text that is not empty"},
      {{"-m", ""}, "--model '': expects a value that is not empty"},
      {{"-n"}, "--predict needs a value: N"},
      {{"-t4", "-vn"}, "--predict needs a value: N"},
      {{"a.gguf", "b.gguf"}, "unexpected argument 'b.gguf': MODEL is already 'a.gguf'"},
      {{"-m", "a.gguf", "b.gguf"}, "unexpected argument 'b.gguf': MODEL is already 'a.gguf'"},
      {{"b.gguf", "-m", "a.gguf"}, "--model is given 2 times"},
      {{"-n", "1", "--predict", "2"}, "--predict is given 2 times ('1', '2'); give it once"},
      {{"--greedy", "--greedy"}, "--greedy is given 2 times"},
      {{"--temperature", "1"}, "unknown option '--temperature' for run; did you mean --temp?"},
      {{"--thread=3"}, "unknown option '--thread' for run; did you mean --threads?"},
      {{"--ctxsize", "3"}, "did you mean --ctx-size?"},
      {{"--zzzzzzzz"}, "unknown option '--zzzzzzzz' for run; `bellhop help run` lists the options"},
      {{"-Z"}, "unknown option '-Z' for run"},
      {{"-p", "a", "-f", "b"}, "--prompt and --file exclude each other"},
      {{"-v", "-q"}, "--quiet and --verbose exclude each other"},
      {{"-cnv", "--json"}, "--json gives one object"},
      {{"-cnv", "--raw"}, "--conversation needs the chat template"},
      {{"-sys", "x", "--raw"}, "--system-prompt goes into the chat template"},
  };
  for (auto [arguments, expected] : cases) {
    arguments.insert(arguments.begin(), "run");
    EXPECT_MENTIONS(Error(arguments), expected);
  }
}

TEST_F(ParseTest, ErrorsOfOtherCommands) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "no command given"},
      {{"rum"}, "no command 'rum'; did you mean run?"},
      {{"model.gguf"}, "to run a model: bellhop run model.gguf"},
      {{"--greedy", "run"}, "the command comes first"},
      {{"help", "benhc"}, "no command 'benhc'; did you mean bench?"},
      {{"quantize", "a", "b"}, "quantize needs --type TYPE"},
      {{"quantize", "a", "--type", "q4_0"}, "quantize needs OUT"},
      {{"quantize", "--type", "q4_0"}, "quantize needs IN"},
      {{"quantize", "a", "b", "c", "--type", "q4_0"}, "unexpected argument 'c'"},
      {{"quantize", "a", "b", "--type", "q4_0", "--tensor-type", "x"}, "--tensor-type 'x': expects PATTERN=TYPE"},
      {{"profile", "-f", "x"}, "profile needs --output FILE.strp"},
      {{"perplexity"}, "perplexity needs --file FILE"},
      {{"perplexity", "-f", "x", "--window", "1"}, "--window '1': expects a whole number, 2 or more"},
      {{"tokenize", "--decode", "1,x"}, "--decode '1,x': expects token numbers"},
      {{"tokenize", "--decode", "-1"}, "--decode '-1': expects token numbers"},
      {{"tokenize", "--decode", "1", "-p", "x"}, "exclude each other"},
      {{"tokenize", "--temp", "1"}, "unknown option '--temp' for tokenize"},
      {{"bench", "--pp", "1,,2"}, "--pp '1,,2': expects a whole number"},
      {{"bench", "--reps", "0"}, "--reps '0': expects a whole number from 1"},
      {{"bench", "-o", "xml"}, "--output 'xml': expects md, csv or json"},
      {{"bench", "-o", "md", "--json"}, "--output and --json exclude each other"},
      {{"bench", "--residency", "101"}, "--residency '101': expects percentages from 0 to 100"},
      {{"opbench", "--hidden", "0"}, "--hidden '0': expects a whole number from 1"},
      {{"opbench", "--rotate", "0"}, "--rotate '0': expects a size such as 2GiB"},
      {{"opbench", "--rotate", "auto"}, "--rotate 'auto': expects a size such as 2GiB"},
      {{"opbench", "--rows", "0"}, "--rows '0': expects a whole number from 1"},
      {{"opbench", "--format", "q4_0,"}, "expects a name, or several with commas between them"},
      {{"opbench", "--isa", "sse"}, "--isa 'sse': expects all, auto, reference, avx2, avx512 or amx"},
      {{"opbench", "--class", "x"}, "--class 'x': expects auto, decode or prompt"},
      {{"opbench", "--seed", "-1"}, "--seed '-1': expects a whole number from 0"},
      {{"opbench", "--active", "2", "--topk", "3"}, "--topk 3 exceeds --active 2"},
      {{"opbench", "--experts", "7"}, "--experts 7 is less than --active 8"},
      {{"opbench", "-o", "md", "--json"}, "--output and --json exclude each other"},
      {{"opbench", "--layers", "8"}, "--layers is of --device cuda; add that, or leave it out"},
      {{"opbench", "--device", "cpu", "--mode", "off_all"}, "--mode is of --device cuda; add that, or leave it out"},
      {{"opbench", "--hit-rate", "19"}, "--hit-rate is of --device cuda; add that, or leave it out"},
      {{"opbench", "--device", "cuda", "--hit-rate", "101"}, "--hit-rate '101': expects percentages from 0 to 100"},
      {{"opbench", "--device", "cuda", "--mode", "off"},
       "--mode 'off': expects resident, off_all, off_cpu, off_gpu or off_ring"},
      {{"opbench", "--device", "cuda", "--isa", "avx2"}, "--isa is of --device cpu; leave it out"},
      {{"opbench", "--device", "cuda", "--rotate", "1GiB"}, "--rotate is of --device cpu; leave it out"},
      {{"opbench", "--device", "cuda", "-t", "1,2"}, "--threads: one number with --device cuda"},
      {{"opbench", "model.gguf"}, "unexpected argument 'model.gguf'"},
      {{"bench", "--isa", "avx3"}, "--isa 'avx3': expects auto, reference, avx2, avx512 or amx"},
  };
  for (const auto& [arguments, expected] : cases) EXPECT_MENTIONS(Error(arguments), expected);
}

TEST_F(ParseTest, EnvironmentErrorsNameTheVariable) {
  environment_.variables = {{"BELLHOP_THREADS", "many"}};
  EXPECT_MENTIONS(Error({"run"}), "BELLHOP_THREADS 'many': expects a whole number from 0 to 4096");
  EXPECT_EQ(Run({"-t", "2"}).engine.runtime.threads, 2) << "a value that is not used does no harm";
  environment_.variables = {{"BELLHOP_GREEDY", "2"}};
  EXPECT_MENTIONS(Error({"run"}), "BELLHOP_GREEDY '2': expects true or false");
}

TEST_F(ParseTest, EmptyVariablesAreNotSetAndUnknownOnesAreReported) {
  environment_.variables = {{"BELLHOP_THREADS", ""}, {"BELLHOP_CTX_SZIE", "5"}, {"BELLHOP_WINDOW", "8"}};
  EXPECT_EQ(Run({}).engine.runtime.threads, 0);
  ASSERT_EQ(warnings_.size(), 1u) << "BELLHOP_WINDOW belongs to another command";
  EXPECT_EQ(warnings_[0], "the environment variable BELLHOP_CTX_SZIE is no setting; did you mean BELLHOP_CTX_SIZE?");
}

TEST_F(ParseTest, ProcessEnvironmentIsRead) {
  ASSERT_EQ(setenv("BELLHOP_CTX_SIZE", "77", 1), 0);
  const Environment environment = Environment::OfProcess();
  unsetenv("BELLHOP_CTX_SIZE");
  EXPECT_EQ(environment.variables.at("BELLHOP_CTX_SIZE"), "77");
  EXPECT_FALSE(environment.variables.contains("PATH"));
}

TEST_F(ParseTest, AHigherLayerWinsAmongRivals) {
  environment_.variables = {{"BELLHOP_FILE", "env.txt"}, {"BELLHOP_VERBOSE", "1"}};
  const RunOptions run = Run({"-p", "hi", "-q"});
  EXPECT_EQ(run.input.prompt, "hi");
  EXPECT_EQ(run.input.file, "");
  EXPECT_TRUE(run.output.quiet);
  EXPECT_FALSE(run.output.verbose);
  EXPECT_EQ(Run({}).input.file, "env.txt");
}

TEST_F(ParseTest, ConfigFileErrorsNameFileAndKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"bogus": 1})", "unknown key 'bogus'"},
      {R"({"threds": 1})", "unknown key 'threds'; did you mean threads?"},
      {R"({"config": "x"})", "unknown key 'config'"},
      {R"({"threads": "abc"})", "threads 'abc': expects a whole number from 0 to 4096"},
      {R"({"threads": 1.5})", "threads '1.5': expects a whole number"},
      {R"({"threads": null})", "threads 'null': expects a string or a number"},
      {R"({"threads": [1]})", "threads '[1]': expects a string or a number"},
      {R"({"greedy": "yes"})", "greedy '\"yes\"': expects true or false"},
      {R"({"stop": [["a"]]})", "expects strings or numbers in the list"},
      {R"({"stop": {"a": 1}})", "expects a string, a number or a list of them"},
      {R"({"ctx": 1, "ctx-size": 2})", "set under another key too"},
      {R"({"threads": 1, "threads": 2})", "the key 'threads' occurs twice"},
      {R"([1])", "expects an object"},
      {R"({"threads": )", "not JSON, at byte"},
      {"", "not JSON"},
  };
  for (const auto& [text, expected] : cases) {
    WriteConfig(text);
    const std::string error = Error({"run", "--config", config_path_});
    EXPECT_MENTIONS(error, expected);
    EXPECT_MENTIONS(error, config_path_);
  }
  EXPECT_MENTIONS(Error({"run", "--config", "/nonexistent/x.json"}), "--config '/nonexistent/x.json': cannot open");
  WriteConfig(std::string((1 << 20) + 1, ' '));
  EXPECT_MENTIONS(Error({"run", "--config", config_path_}), "larger than 1048576 bytes");
}

TEST_F(ParseTest, OneConfigFileServesSeveralCommands) {
  WriteConfig(R"({"window": 64, "temp": 0.5, "model": "m.gguf"})");
  EXPECT_FLOAT_EQ(Run({"--config", config_path_}).sampling.temperature, 0.5f);
  EXPECT_EQ(Parse<PerplexityOptions>({"perplexity", "-f", "x", "--config", config_path_}).corpus.window, 64);
}

TEST_F(ParseTest, LongOrOddValuesStayOnOneLine) {
  const std::string error = Error({"run", "-t", std::string(1000, 'x') + "\n\x01"});
  EXPECT_LT(error.size(), 200u);
  EXPECT_MENTIONS(Error({"run", "-t", "a\nb\x1b"}), "'a\\nb\\x1b'");
}

TEST_F(ParseTest, HelpOfEachCommandListsEveryOptionOnce) {
  OptionStorage storage;
  for (const CommandSpec& command : BuildCommands(&storage)) {
    const std::string help = Help({command.name, "--help"});
    EXPECT_EQ(help, Help({"help", command.name}));
    EXPECT_EQ(help, Help({command.name, "--bogus", "-h"})) << "help is given whatever else is wrong";
    for (const OptionSpec& option : command.options) {
      const std::string pattern =
          option.named ? "(^|[ \n])--" + option.name + "([ ,\n])" : "\n  " + option.value_name + " ";
      const std::regex regex(pattern);
      const auto found = std::distance(std::sregex_iterator(help.begin(), help.end(), regex), std::sregex_iterator());
      EXPECT_GE(found, 1) << command.name << " --" << option.name;
      EXPECT_FALSE(option.help.empty()) << option.name;
      EXPECT_FALSE(option.group.empty()) << option.name;
    }
    for (size_t begin = 0; begin < help.size();) {
      const size_t end = help.find('\n', begin);
      EXPECT_LE(end - begin, 110u) << help.substr(begin, end - begin);
      begin = end + 1;
    }
    EXPECT_MENTIONS(Help({"--help"}), "\n  " + command.name + " ");
  }
  EXPECT_EQ(Help({"--help"}), Help({"help"}));
  EXPECT_EQ(Help({"--help"}), Help({"-h"}));
  EXPECT_TRUE(std::holds_alternative<VersionRequest>(ParseCommandLine({"--version"}, {})->options));
}

TEST_F(ParseTest, NoSpellingMeansTwoOptions) {
  OptionStorage storage;
  for (const CommandSpec& command : BuildCommands(&storage)) {
    std::map<std::string, std::string> owner;
    for (const OptionSpec& option : command.options) {
      std::vector<std::string> spellings = option.aliases;
      spellings.push_back("--" + option.name);
      for (const std::string& spelling : spellings) {
        EXPECT_TRUE(owner.emplace(spelling, option.name).second) << command.name << " " << spelling;
      }
    }
  }
}

TEST_F(ParseTest, DefaultsInTheHelpAreTheRealOnes) {
  // The text in brackets, given as a value, must leave the struct as it was.
  OptionStorage storage;
  for (const CommandSpec& command : BuildCommands(&storage)) {
    for (const OptionSpec& option : command.options) {
      if (option.default_text.empty() || option.default_text.find(' ') != std::string::npos) continue;
      EXPECT_TRUE(option.set(option.default_text).ok()) << command.name << " --" << option.name;
    }
  }
  const RunOptions defaults;
  EXPECT_EQ(storage.run.sampling.temperature, defaults.sampling.temperature);
  EXPECT_EQ(storage.run.sampling.top_k, defaults.sampling.top_k);
  EXPECT_EQ(storage.run.sampling.repeat_last_n, defaults.sampling.repeat_last_n);
  EXPECT_EQ(storage.run.predict, defaults.predict);
  EXPECT_EQ(storage.run.engine.runtime.threads, defaults.engine.runtime.threads);
  EXPECT_EQ(storage.run.engine.runtime.device, defaults.engine.runtime.device);
  EXPECT_EQ(storage.run.engine.runtime.miss_lane, defaults.engine.runtime.miss_lane);
  EXPECT_EQ(storage.run.engine.runtime.vram_bytes, defaults.engine.runtime.vram_bytes);
  EXPECT_EQ(storage.run.engine.context.batch_rows, defaults.engine.context.batch_rows);
  EXPECT_EQ(storage.run.engine.context.context_tokens, defaults.engine.context.context_tokens);
  EXPECT_EQ(storage.bench.prompt_tokens, BenchOptions().prompt_tokens);
  EXPECT_EQ(storage.bench.decode_tokens, BenchOptions().decode_tokens);
  EXPECT_EQ(storage.bench.repetitions, BenchOptions().repetitions);
  EXPECT_EQ(storage.bench.format, BenchOptions().format);
  EXPECT_EQ(storage.opbench.hidden, OpbenchOptions().hidden);
  EXPECT_EQ(storage.opbench.rows, OpbenchOptions().rows);
  EXPECT_EQ(storage.opbench.formats, OpbenchOptions().formats);
  EXPECT_EQ(storage.opbench.rotate_bytes, OpbenchOptions().rotate_bytes);
  EXPECT_EQ(storage.opbench.repetitions, OpbenchOptions().repetitions);
  EXPECT_EQ(storage.perplexity.corpus.window, CorpusOptions().window);
  EXPECT_EQ(storage.inspect.max_array, InspectOptions().max_array);
  EXPECT_EQ(storage.logits.top, LogitsOptions().top);
}

TEST(NearestTest, FindsTyposAndBeginnings) {
  const std::vector<std::string> names{"threads", "temp", "top-k"};
  EXPECT_EQ(Nearest("treads", names), "threads");
  EXPECT_EQ(Nearest("temperature", names), "temp");
  EXPECT_EQ(Nearest("thre", names), "threads");
  EXPECT_EQ(Nearest("completely-else", names), "");
  EXPECT_EQ(Nearest("", {}), "");
}

}  // namespace
}  // namespace bellhop::config
