// The parts of a loaded engine, in construction order. text_engine.h is what others see.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device_info.h"
#include "engine/device_sampler.h"
#include "engine/text_engine.h"
#include "formats/gguf/gguf_model.h"
#include "manifest/manifest.h"
#include "model/gpu_model.h"
#include "model/step_model.h"
#include "plan/plan.h"
#include "store/expert_store.h"
#include "store/host_memory.h"
#include "sys/cpu_features.h"
#include "sys/numa_partition.h"
#include "sys/topology.h"
#include "sys/worker_pool.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace bellhop::engine {

class RunningSequence;

// Rows of one decode step.
inline constexpr uint32_t kMaxDecodeRows = 32;

class TextEngineImpl final : public TextEngine {
 public:
  static Result<std::unique_ptr<TextEngineImpl>> Load(const config::EngineConfig& config, LogSink* log,
                                                      const LoadProgress& progress = {});

  const ModelInfo& info() const override { return info_; }
  const GpuSummary* gpu() const override { return gpu_summary_ ? &*gpu_summary_ : nullptr; }
  std::vector<std::string> PlanLines() const override;
  ExpertStats Experts() const override;
  std::vector<std::vector<ExpertTier>> Tiers() const override;
  TrafficTotals Traffic() const override;
  std::vector<MemoryUse> Memory() const override;
  void ResetStats() override;

  Result<std::vector<TokenId>> Tokenize(std::string_view text, bool add_special, bool parse_special) const override;
  std::string Detokenize(HostSpan<const TokenId> ids, bool special) const override;
  std::string TokenText(TokenId id) const override;
  bool has_chat_template() const override { return chat_template_.has_value(); }
  text::ChatFormat chat_format() const override { return chat_format_; }
  Result<std::string> RenderChat(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                 const nlohmann::ordered_json& extra) const override;
  Result<std::vector<TokenId>> TokenizeChat(std::string_view rendered) const override;

  Result<GenerateResult> Generate(const GenerateRequest& request) override;
  Result<LogitsResult> Logits(HostSpan<const TokenId> ids, bool all, bool with_routes) override;
  Result<PerplexityResult> Perplexity(HostSpan<const TokenId> ids, int32_t window,
                                      const std::function<void(int64_t, int64_t)>& progress) override;
  Status CountRoutes(HostSpan<const TokenId> ids, const std::function<void(int64_t, int64_t)>& progress) override;
  Result<BenchResult> Bench(const BenchCase& test, int32_t repetitions) override;
  Result<double> MeasureReadBandwidth(bool quick) override;

  // For the service, which runs many sequences on the same parts.
  model::StepModel& model() { return *model_; }
  void CountStep() { ++steps_; }                       // one Forward: every dense weight was read
  DeviceSampler* sampler() { return sampler_.get(); }  // null: logits come to the host
  const model::TransformerOptions& model_options() const { return options_; }
  sys::WorkerPool& pool() { return *pool_; }
  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null: the file has none
  moe::NumericClass prompt_class() const;

 private:
  class GenerationSink;  // generate.cc

  explicit TextEngineImpl(const config::EngineConfig& config) : config_(config) {}
  Status OpenModel(LogSink* log);
  Status ResolveContext();
  // Automatic threads leave this many cores free.
  Status MakePool(size_t spare_cores);
  Status GatherPlanInputs();
  Status MakePlan();
  // load_memory.cc
  Status PlaceWeights(const LoadProgress& progress);
  Status CopyExperts(const LoadProgress& progress);
  store::TouchOptions Touch(const LoadProgress& progress, std::string_view what);
  // load_gpu.cc
  Status FindGpu();
  Status CheckPcieLane() const;
  model::GpuModelOptions GpuOptions() const;
  Status BindGpuModel(const LoadProgress& progress);
  GpuSummary SummarizeGpu() const;
  Status BindModel(const LoadProgress& progress);
  Status LoadText(LogSink* log);
  void FillInfo();

  // Called with the logits [rows of this chunk that wanted them, vocab] and the position of the first of those rows.
  using OnLogits = std::function<Status(int32_t first_position, MatView<const float> logits)>;
  // Prompt rows ids[from..] at positions from.. of the sequence, in chunks. first_logits: the first position that wants
  // logits.
  Status Prefill(HostSpan<const TokenId> ids, int32_t from, int32_t first_logits, const std::atomic<bool>* cancel,
                 const OnLogits& on_logits);
  // One decode row, of `running` or of none. The token that a device has sampled; none: the row's logits are in
  // logits_.
  Result<std::optional<TokenId>> DecodeStep(TokenId token, RunningSequence* running);
  Status DecodeLoop(const GenerateRequest& request, int32_t keep, RunningSequence* running, GenerateResult* result);
  // Makes room in a full context; `keep` leading tokens stay.
  Status ShiftContext(int32_t keep, const std::atomic<bool>* cancel);
  // Makes the sequence hold a reusable prefix of `prompt` and returns its length.
  Result<int32_t> ReusePrefix(HostSpan<const TokenId> prompt);
  // Rows whose logits fit the logits buffer.
  int32_t logits_rows() const { return static_cast<int32_t>(logits_.size() / static_cast<size_t>(info_.vocab)); }

  config::EngineConfig config_;
  std::optional<formats::GgufModel> files_;
  manifest::Manifest manifest_;
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: the file has none
  Status tokenizer_status_;                     // why not
  std::optional<text::ChatTemplate> chat_template_;
  text::ChatFormat chat_format_ = text::ChatFormat::kPlain;
  Status chat_template_status_;
  sys::Topology topology_;
  sys::CpuCaps caps_;
  std::unique_ptr<sys::WorkerPool> pool_;
  sys::NodePartition partition_;  // of the pool's workers over NUMA nodes
  int caller_cpu_ = -1;           // where worker 0 belongs; -1: anywhere
  model::ModelSpec spec_;
  model::TransformerOptions options_;
  std::unique_ptr<store::ExpertStore> store_;
  cuda::DeviceInfo gpu_;         // with plan_inputs_.machine.gpu
  bool rates_measured_ = false;  // alike: its rates are no estimates
  std::optional<GpuSummary> gpu_summary_;
  struct {
    plan::MachineInfo machine;
    plan::MemoryNeeds needs;
    std::optional<plan::ExpertProfile> profile;
  } plan_inputs_;
  plan::Plan plan_;
  std::vector<std::string> plan_notes_;  // of the steps around the plan
  std::vector<std::string> memory_lines_;
  std::unique_ptr<model::StepModel> model_;
  std::unique_ptr<DeviceSampler> sampler_;  // null: the model's logits are in host memory
  std::unique_ptr<model::SequenceState> sequence_;
  std::vector<TokenId> sequence_tokens_;  // what the sequence holds
  size_t prompt_class_tokens_ = 0;        // of these, the leading ones that were computed as a prompt
  std::vector<float> logits_;
  std::vector<model::StepRow> rows_;
  ModelInfo info_;
  uint64_t dense_bytes_ = 0;  // that every step reads
  uint64_t steps_ = 0;
};

}  // namespace bellhop::engine
