// The text engine: one loaded model, its plan and one sequence; everything a text front end needs. The only place that
// constructs files, store, plan, pool and model together.
//
// Not thread-safe: one thread owns an engine. Cancellation is the exception (GenerateRequest::cancel).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/ids.h"
#include "base/log.h"
#include "base/span.h"
#include "base/status.h"
#include "config/config.h"
#include "decode/sampler.h"
#include "engine/traffic.h"
#include "text/chat_output.h"

namespace bellhop::engine {

enum class FinishReason : uint8_t { kStop, kEndOfGeneration, kLength, kCancelled };
std::string_view FinishReasonName(FinishReason reason);  // "stop", "eog", "length", "cancelled"

struct GenerateRequest {
  std::vector<TokenId> prompt;  // not empty
  decode::SamplingParams sampling;
  int32_t max_tokens = -1;  // -1: until end of generation or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool special = false;                           // give the text of control tokens too
  const std::atomic<bool>* cancel = nullptr;      // polled between steps
  std::function<void(std::string_view)> on_text;  // complete UTF-8 pieces, in order
};

struct GenerateResult {
  std::vector<TokenId> ids;  // generated tokens, the one that ended generation excluded
  std::string text;          // cut before a stop string
  FinishReason reason = FinishReason::kLength;
  int32_t prompt_tokens = 0;
  int32_t reused_tokens = 0;  // of the prompt, taken from the sequence's earlier state
  int32_t context_shifts = 0;
  double prompt_ms = 0;
  double decode_ms = 0;
  double prompt_tokens_per_s() const { return prompt_ms > 0 ? (prompt_tokens - reused_tokens) * 1e3 / prompt_ms : 0; }
  // Steps after the first token, which comes from the prompt's last step.
  double decode_tokens_per_s() const;
};

struct LayerRoutes {
  int32_t layer = 0;
  uint64_t hits = 0, misses = 0;
};

// Where an expert's weights lie between steps.
enum class ExpertTier : uint8_t { kGpu, kRam, kDisk };

struct ExpertStats {
  uint64_t hits = 0, misses = 0;
  int32_t resident = 0, total = 0;
  double hit_rate() const {
    return hits + misses > 0 ? static_cast<double>(hits) / static_cast<double>(hits + misses) : 0;
  }
  std::vector<std::vector<uint64_t>> routes;  // [layer][expert]
  std::vector<LayerRoutes> layers;            // of the layers that have experts
};

struct MemoryUse {
  std::string tag, where;  // "KV cache", "host"
  uint64_t bytes = 0;
};

struct ModelInfo {
  std::string path, name, architecture, size_label;
  uint64_t file_bytes = 0, parameters = 0;
  int32_t layers = 0, experts = 0, experts_used = 0, vocab = 0, trained_context = 0, context = 0;
  std::string expert_formats, dense_formats;  // "Q4_0", "Q8_0+F32"
  uint64_t bytes_per_token = 0;               // weight bytes that one decode step reads
  std::string isa, kv_type, act;
  int32_t threads = 0;
};

struct PerplexityResult {
  double nll_sum = 0;
  int64_t scored = 0, windows = 0;
  double perplexity() const;
  double elapsed_ms = 0;
};

// Logits of a prompt's positions: values [positions, vocab], positions ascending.
struct LogitsResult {
  std::vector<int32_t> positions;
  int64_t vocab = 0;
  std::vector<float> values;
  // Chosen experts when asked for: [layer][position][used], with weights and the probability gap to the next expert.
  struct Routes {
    int32_t layer = 0, used = 0;
    std::vector<int32_t> ids;
    std::vector<float> weights, gaps;
  };
  std::vector<Routes> routes;
};

struct BenchCase {
  int32_t tokens = 0;  // prompt rows (pp) or decode steps (tg)
  int32_t depth = 0;   // tokens already in the context
  bool decode = false;
};
struct BenchResult {
  BenchCase test;
  std::vector<double> seconds;  // one per repetition
  TrafficTotals traffic;        // of all of them
  uint64_t hits = 0, misses = 0;
};

// How far a long part of loading has come, in bytes: called now and then on the thread that loads. `what` names the
// part: "reading the model". false: loading ends with kCancelled.
using LoadProgress = std::function<bool(std::string_view what, uint64_t done, uint64_t total)>;

class TextEngine {
 public:
  // Loads the model and carries out the plan. kInvalidArgument, kCorrupt, kUnsupported, kNotFound: bad usage or input.
  static Result<std::unique_ptr<TextEngine>> Create(const config::EngineConfig& config, LogSink* log,
                                                    const LoadProgress& progress = {});
  virtual ~TextEngine() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const GpuSummary* gpu() const = 0;  // null: the CPU alone
  virtual std::vector<std::string> PlanLines() const = 0;
  virtual ExpertStats Experts() const = 0;
  virtual std::vector<std::vector<ExpertTier>> Tiers() const = 0;  // [layer][expert]
  virtual TrafficTotals Traffic() const = 0;
  virtual std::vector<MemoryUse> Memory() const = 0;
  virtual void ResetStats() = 0;

  // Text.
  virtual Result<std::vector<TokenId>> Tokenize(std::string_view text, bool add_special, bool parse_special) const = 0;
  virtual std::string Detokenize(HostSpan<const TokenId> ids, bool special) const = 0;
  virtual std::string TokenText(TokenId id) const = 0;
  virtual bool has_chat_template() const = 0;
  virtual text::ChatFormat chat_format() const = 0;  // of what the model writes; kPlain without a template
  // messages: [{"role": ..., "content": ...}, ...]; extra: further template variables.
  virtual Result<std::string> RenderChat(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                         const nlohmann::ordered_json& extra) const = 0;
  // As Tokenize with special tokens, without a second BOS when the template already wrote one.
  virtual Result<std::vector<TokenId>> TokenizeChat(std::string_view rendered) const = 0;

  virtual Result<GenerateResult> Generate(const GenerateRequest& request) = 0;
  // all: every position, else the last. with_routes: also the experts chosen in every layer.
  virtual Result<LogitsResult> Logits(HostSpan<const TokenId> ids, bool all, bool with_routes) = 0;
  // Windows of `window` tokens, each scored from its second token on; a remainder shorter than a window is dropped
  // unless it is the only one.
  virtual Result<PerplexityResult> Perplexity(HostSpan<const TokenId> ids, int32_t window,
                                              const std::function<void(int64_t, int64_t)>& progress) = 0;
  // Runs tokens through the model for its route counts alone.
  virtual Status CountRoutes(HostSpan<const TokenId> ids, const std::function<void(int64_t, int64_t)>& progress) = 0;
  virtual Result<BenchResult> Bench(const BenchCase& test, int32_t repetitions) = 0;
  // Read bandwidth of host memory with this engine's pool, GB/s. `quick`: within half a second or so, less exact.
  virtual Result<double> MeasureReadBandwidth(bool quick) = 0;
};

// The popularity profile of the routes counted so far, as STRP bytes.
Result<std::vector<std::byte>> MakeStrpProfile(const ExpertStats& stats);

}  // namespace bellhop::engine
