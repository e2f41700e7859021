// What each command of the program was asked to do, as plain structs with defaults. parse.h fills them; a front end
// acts on them. Sampling is held in plain fields, because decode/ lies above this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"

namespace bellhop::config {

struct OutputOptions {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  std::string log_file;  // empty: stderr
};

struct SamplingOptions {
  float temperature = 0.8f;
  float top_p = 0.95f;
  float min_p = 0.05f;
  int32_t top_k = 40;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t repeat_last_n = 64;
  std::optional<uint64_t> seed;  // none: drawn at start and reported
  bool greedy = false;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token, what is added to its logit
};

// Where text comes from: at most one of the two. Neither: standard input.
struct TextInput {
  std::optional<std::string> prompt;
  std::string file;     // "-": standard input
  bool escape = false;  // backslash sequences in the prompt were replaced
};

struct RunOptions {
  OutputOptions output;
  EngineConfig engine;  // model_path empty: the shipped model, in every struct here
  TextInput input;
  SamplingOptions sampling;
  std::optional<std::string> system_prompt;
  std::vector<std::string> stop;
  int32_t predict = -1;
  bool ignore_eos = false;
  bool raw = false;
  bool special = false;
  bool conversation = false;
  bool stats = false;
};

struct InspectOptions {
  OutputOptions output;
  std::string model_path;
  bool tensors = false;
  uint32_t max_array = 8;
};

struct TokenizeOptions {
  OutputOptions output;
  std::string model_path;
  TextInput input;
  std::optional<std::vector<int32_t>> decode;  // tokens to turn into text instead
  bool no_bos = false;
  bool no_special = false;
};

struct LogitsOptions {
  OutputOptions output;
  EngineConfig engine;
  TextInput input;
  std::optional<std::vector<int32_t>> ids;
  std::string out;  // .npy file; empty: none
  int32_t top = 10;
  bool all = false;
  bool experts = false;
  bool no_bos = false;
};

// Text or .jsonl documents cut into windows: for perplexity and for profiles.
struct CorpusOptions {
  std::string file;  // "-": standard input
  int32_t window = 512;
  std::string separator;  // token after each document; empty: the model's end-of-text token
};

struct PerplexityOptions {
  OutputOptions output;
  EngineConfig engine;
  CorpusOptions corpus;
};

struct ProfileOptions {
  OutputOptions output;
  EngineConfig engine;
  CorpusOptions corpus;
  std::string out;  // .strp file
};

enum class BenchFormat : uint8_t { kMarkdown, kCsv, kJson };

struct BenchOptions {
  OutputOptions output;
  EngineConfig engine;
  std::vector<int32_t> prompt_tokens = {512};  // one "pp" case each; 0: none
  std::vector<int32_t> decode_tokens = {128};  // one "tg" case each; 0: none
  std::vector<int32_t> depths = {0};           // every case runs at every depth
  std::vector<int32_t> threads = {0};
  std::vector<std::string> isas = {"auto"};
  std::vector<double> residency = {0};  // percent of the experts in GPU slots
  int32_t repetitions = 5;
  BenchFormat format = BenchFormat::kMarkdown;
  std::string out;                     // result file, always JSON; empty: none
  std::vector<std::string> arguments;  // the command line as given, for result files
};

enum class BenchClass : uint8_t { kAuto, kDecode, kPrompt };

// Synthetic layers of experts. Formats and modes are names for the engine: this folder knows no weight format.
struct OpbenchOptions {
  OutputOptions output;
  Device device = Device::kAuto;
  bool pin_threads = true;
  int32_t hidden = 2560;
  int32_t inter = 640;
  int32_t experts = 0;  // CPU: 0: as many as fill rotate_bytes; GPU: of a layer, 0: the engine's choice
  int32_t topk = 0;     // of a row; CPU: 0: all active ones; GPU: 0: the engine's choice
  std::vector<std::string> formats = {"all"};
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 64, 256};
  std::vector<int32_t> threads = {0};  // GPU: one number
  int32_t repetitions = 15;
  uint64_t seed = 1;
  // Of the CPU alone.
  int32_t active = 8;  // experts of one call
  std::vector<std::string> isas = {"all"};
  BenchClass bench_class = BenchClass::kAuto;
  uint64_t rotate_bytes = uint64_t{2} << 30;
  // Of the GPU alone.
  std::vector<std::string> modes = {"resident"};
  std::vector<double> hit_rates = {60};  // percent
  int32_t layers = 4;
  BenchFormat format = BenchFormat::kMarkdown;
  std::string out;                     // result file, always JSON; empty: none
  std::vector<std::string> arguments;  // the command line as given, for result files
};

struct QuantizeCommandOptions {
  OutputOptions output;
  std::string in, out;
  std::string type, dense_type, output_type;
  std::vector<std::pair<std::string, std::string>> tensor_types;  // pattern, type
  int32_t threads = 0;
  bool allow_requantize = false;
  bool overwrite = false;
};

struct DoctorCommandOptions {
  OutputOptions output;
  std::string model_path;  // empty: none
  int32_t threads = 0;
  bool measure = true;
  bool calibrate = false;
  CalibrationConfig calibration;
};

// Text that the user asked for, ready to be printed.
struct HelpRequest {
  std::string text;
};
struct ServeOptions {
  OutputOptions output;
  EngineConfig engine;
  std::string host = "127.0.0.1";
  int32_t port = 8080;  // 0: any free one
  std::string alias;    // the model's name in the API; empty: the file's
  std::vector<std::string> api_keys;
  std::string api_key_file;  // one key per line
  std::vector<std::string> cors_origins;
  int32_t queue = 64;
  int32_t connections = 256;
  uint64_t max_body_bytes = uint64_t{16} << 20;
  int32_t request_seconds = 600;  // 0: no limit
  int32_t drain_seconds = 30;
};

struct VersionRequest {};

using CommandOptions = std::variant<HelpRequest, VersionRequest, RunOptions, InspectOptions, TokenizeOptions,
                                    LogitsOptions, PerplexityOptions, ProfileOptions, BenchOptions, OpbenchOptions,
                                    QuantizeCommandOptions, DoctorCommandOptions, ServeOptions>;

}  // namespace bellhop::config
