// Loading: files → manifest → spec → pool → plan → model, and the description of what was loaded.
#include <algorithm>
#include <set>

#include "base/units.h"
#include "engine/text_engine_impl.h"
#include "engine/worker_threads.h"
#include "formats/gguf/manifest_builder.h"
#include "model/arch/registry.h"
#include "model/transformer.h"
#include "sys/clock.h"
#include "sys/file_io.h"
#include "sys/huge_pages.h"

namespace bellhop::engine {
namespace {

kernels::KvType ToKvType(const config::ContextConfig& context) {
  switch (context.kv_type) {
    case config::KvCacheType::kF32: return kernels::KvType::kF32;
    case config::KvCacheType::kF16: return kernels::KvType::kF16;
    case config::KvCacheType::kBF16: return kernels::KvType::kBF16;
    case config::KvCacheType::kAuto: break;
  }
  return context.act == config::ActMode::kF32 ? kernels::KvType::kF32 : kernels::KvType::kF16;
}

std::string_view KvTypeName(kernels::KvType type) {
  return type == kernels::KvType::kF32 ? "f32" : type == kernels::KvType::kF16 ? "f16" : "bf16";
}

// Buffers for the logits of several prompt rows at once, within this many bytes; at least one row.
constexpr uint64_t kLogitsBufferBytes = 64 << 20;
constexpr uint64_t kMaxProfileBytes = 1 << 30;

std::string JoinFormats(const std::set<std::string_view>& names) {
  std::string joined;
  for (const std::string_view name : names) joined += (joined.empty() ? "" : "+") + std::string(name);
  return joined;
}

std::set<int32_t> ExpertTensors(const manifest::Manifest& manifest) {
  std::set<int32_t> tensors;
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    for (const int32_t t : {layer.gate, layer.up, layer.down, layer.gate_up}) tensors.insert(t);
    for (const auto* each : {&layer.gate_each, &layer.up_each, &layer.down_each}) {
      tensors.insert(each->begin(), each->end());
    }
  }
  return tensors;
}

uint64_t DenseBytesOfAStep(const manifest::Manifest& manifest, const model::ModelSpec& spec) {
  const std::set<int32_t> expert_tensors = ExpertTensors(manifest);
  uint64_t bytes = 0;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const manifest::Tensor& tensor = manifest.tensors[t];
    if (expert_tensors.contains(static_cast<int32_t>(t))) continue;
    // The embedding is a gather of one row unless it is the head too.
    const bool gathered = static_cast<int32_t>(t) == spec.embedding && spec.head.weight != spec.embedding;
    bytes += gathered ? tensor.bytes / std::max<uint64_t>(tensor.rows(), 1) : tensor.bytes;
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<TextEngine>> TextEngine::Create(const config::EngineConfig& config, LogSink* log,
                                                       const LoadProgress& progress) {
  BELLHOP_TRY_ASSIGN(std::unique_ptr<TextEngineImpl> engine, TextEngineImpl::Load(config, log, progress));
  return std::unique_ptr<TextEngine>(std::move(engine));
}

Result<std::unique_ptr<TextEngineImpl>> TextEngineImpl::Load(const config::EngineConfig& config, LogSink* log,
                                                             const LoadProgress& progress) {
  auto engine = std::unique_ptr<TextEngineImpl>(new TextEngineImpl(config));
  BELLHOP_TRY(engine->OpenModel(log));
  BELLHOP_TRY(engine->LoadText(log));
  BELLHOP_TRY(engine->ResolveContext());
  BELLHOP_TRY(engine->MakePool(0));
  BELLHOP_TRY(engine->GatherPlanInputs());
  BELLHOP_TRY(engine->MakePlan());
  BELLHOP_TRY(engine->PlaceWeights(progress));
  BELLHOP_TRY(engine->BindModel(progress));
  engine->FillInfo();
  return engine;
}

Status TextEngineImpl::OpenModel(LogSink*) {
  BELLHOP_TRY_ASSIGN(formats::GgufModel files, formats::GgufModel::Open(config_.model_path));
  files_.emplace(std::move(files));
  BELLHOP_TRY_ASSIGN(manifest_, formats::BuildManifest(*files_));
  auto spec = model::BuildSpec(manifest_);
  if (!spec.ok()) return spec.status().WithContext(config_.model_path);
  spec_ = std::move(spec).value();
  for (std::string& note : model::UnusedTensorNotes(manifest_, spec_)) plan_notes_.push_back(std::move(note));
  auto store = store::ExpertStore::Create(manifest_);
  if (!store.ok()) return store.status().WithContext(config_.model_path);
  store_ = std::move(store).value();
  dense_bytes_ = DenseBytesOfAStep(manifest_, spec_);
  return Status();
}

Status TextEngineImpl::LoadText(LogSink* log) {
  auto tokenizer = text::Tokenizer::Create(manifest_.vocabulary);
  if (tokenizer.ok()) {
    tokenizer_ = std::move(tokenizer).value();
  } else {
    tokenizer_status_ = tokenizer.status().WithContext(config_.model_path);
    log->Warn("no tokenizer: {}", tokenizer_status_.message());
  }
  if (manifest_.vocabulary.chat_template) {
    auto chat = text::ChatTemplate::Parse("chat_template", *manifest_.vocabulary.chat_template);
    if (chat.ok()) {
      chat_template_.emplace(std::move(chat).value());
      chat_format_ = text::DetectChatFormat(*manifest_.vocabulary.chat_template);
    } else {
      chat_template_status_ = chat.status().WithContext(config_.model_path);
      log->Warn("the chat template cannot be used: {}", chat_template_status_.message());
    }
  } else {
    chat_template_status_ =
        NotFound("{}: the file has no chat template; pass the prompt with --raw", config_.model_path);
  }
  return Status();
}

Status TextEngineImpl::ResolveContext() {
  const uint32_t trained = manifest_.hparams.context_length;
  uint32_t context = config_.context.context_tokens;
  if (context == 0) {
    context = trained > 0 ? std::min(trained, config::kDefaultContextTokens) : config::kDefaultContextTokens;
  }
  if (trained > 0 && context > trained) {
    return InvalidArgument("--ctx-size {}: the model was trained for {} tokens", context, trained);
  }
  if (context > static_cast<uint32_t>(INT32_MAX)) {
    return InvalidArgument("--ctx-size {}: at most {} are possible", context, INT32_MAX);
  }
  if (config_.context.batch_rows < 1 || config_.context.batch_rows > static_cast<uint32_t>(model::kMaxStepRows)) {
    return InvalidArgument("--batch-size {}: must be 1 to {}", config_.context.batch_rows, model::kMaxStepRows);
  }
  if (config_.context.sequences < 1 || config_.context.sequences > config::kMaxSequences) {
    return InvalidArgument("--parallel {}: must be 1 to {}", config_.context.sequences, config::kMaxSequences);
  }
  options_.context_tokens = static_cast<int32_t>(context);
  options_.sequences = static_cast<int32_t>(config_.context.sequences);
  // A decode step has a row of every sequence.
  options_.max_rows = static_cast<int32_t>(
      std::max(std::min(config_.context.batch_rows, context), std::min(config_.context.sequences, kMaxDecodeRows)));
  options_.kv_type = ToKvType(config_.context);
  return Status();
}

Status TextEngineImpl::MakePool(size_t spare_cores) {
  BELLHOP_TRY_ASSIGN(caps_, sys::LimitIsa(sys::DetectCpu(), config_.runtime.isa));
  topology_ = sys::ReadTopology();
  BELLHOP_TRY_ASSIGN(sys::WorkerPool::Options workers,
                     ChooseWorkers(topology_, config_.runtime.threads, config_.runtime.pin_threads, &plan_notes_));
  if (config_.runtime.threads == 0 && workers.cpus.size() > spare_cores + 1) {
    workers.cpus.resize(workers.cpus.size() - spare_cores);
  }
  workers.spin_us = spare_cores > 0 ? kDoorbellSpinUs : kWorkerSpinUs;
  caller_cpu_ = -1;
  BELLHOP_TRY_ASSIGN(pool_, sys::WorkerPool::Create(workers));
  if (workers.pin) {
    partition_ = sys::NodePartition(sys::NodesOfCpus(topology_, workers.cpus));
    caller_cpu_ = workers.cpus.front();
  } else {
    partition_ = sys::NodePartition(std::vector<int>(workers.cpus.size(), 0));
    if (topology_.numa_nodes > 1) {
      plan_notes_.push_back(fmt::format("workers are not bound to CPUs, so weights are not placed on the {} NUMA nodes",
                                        topology_.numa_nodes));
    }
  }
  return Status();
}

Status TextEngineImpl::GatherPlanInputs() {
  plan::MachineInfo& machine = plan_inputs_.machine;
  machine.memory_available_bytes = topology_.memory_available_bytes;
  machine.memory_limit_bytes = topology_.memory_limit_bytes;
  if (!config_.runtime.profile_path.empty()) {
    BELLHOP_TRY_ASSIGN(const std::string bytes, sys::ReadFile(config_.runtime.profile_path, kMaxProfileBytes));
    const HostSpan<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    BELLHOP_TRY_ASSIGN(plan_inputs_.profile, plan::ParseStrp(span, config_.runtime.profile_path));
  }
  if (config_.runtime.huge_pages != config::HugePagesMode::kOff) {
    const sys::HugePageState huge_pages = sys::ReadHugePageState();
    const uint64_t copy_bytes = store::CopyBytes(*store_);
    machine.no_huge_pages_reason = huge_pages.WhyNot(copy_bytes);
    machine.reserved_huge_pages = huge_pages.FindPool(copy_bytes) != nullptr;
  }
  plan_inputs_.needs = {
      .kv_bytes = model::Transformer::KvBytes(spec_, options_),
      .workspace_bytes = model::Transformer::WorkspaceBytes(spec_, options_, pool_->size()),
      .expert_copy_bytes = config_.runtime.huge_pages == config::HugePagesMode::kOff ? 0 : store::CopyBytes(*store_),
      .gpu = {},
  };
  const Status gpu = FindGpu();
  if (!gpu.ok()) machine.no_gpu_reason = std::string(gpu.message());
  return Status();
}

Status TextEngineImpl::MakePlan() {
  const auto& [machine, needs, profile] = plan_inputs_;
  BELLHOP_TRY_ASSIGN(plan_, plan::MakePlan(manifest_, machine, config_.runtime, needs, profile ? &*profile : nullptr));
  return Status();
}

Status TextEngineImpl::BindModel(const LoadProgress& progress) {
  if (plan_.gpu.used) BELLHOP_TRY(BindGpuModel(progress));
  if (model_ == nullptr) {
    auto model = model::Transformer::Create(manifest_, spec_, *store_, plan_.placement, pool_.get(), caps_, options_,
                                            &plan_.notes);
    if (!model.ok()) return model.status().WithContext(config_.model_path);
    model_ = std::move(model).value();
  }
  for (const auto* notes : {&plan_notes_, &topology_.notes}) {
    plan_.notes.insert(plan_.notes.end(), notes->begin(), notes->end());
  }
  for (const std::string& note : pool_->notes()) plan_.notes.push_back(note);
  BELLHOP_TRY_ASSIGN(sampler_, DeviceSampler::Create(*model_, kMaxDecodeRows));
  sequence_ = model_->NewSequence();
  sequence_tokens_.reserve(static_cast<size_t>(options_.context_tokens));
  rows_.reserve(static_cast<size_t>(options_.max_rows));
  const auto vocab = static_cast<uint64_t>(spec_.vocab);
  const uint64_t rows =
      std::clamp<uint64_t>(kLogitsBufferBytes / (vocab * sizeof(float)), 1, static_cast<uint64_t>(options_.max_rows));
  logits_.resize(vocab * rows);
  return Status();
}

void TextEngineImpl::FillInfo() {
  info_.path = config_.model_path;
  info_.name = manifest_.name;
  info_.architecture = manifest_.architecture;
  for (const manifest::FilePart& file : manifest_.files) info_.file_bytes += file.bytes;
  const std::set<int32_t> expert_tensors = ExpertTensors(manifest_);
  std::set<std::string_view> expert_formats, dense_formats;
  for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
    const manifest::Tensor& tensor = manifest_.tensors[t];
    info_.parameters += tensor.elements();
    if (expert_tensors.contains(static_cast<int32_t>(t))) {
      expert_formats.insert(quant::Traits(tensor.format).name);
      continue;
    }
    if (tensor.rows() > 1) dense_formats.insert(quant::Traits(tensor.format).name);
  }
  info_.expert_formats = JoinFormats(expert_formats);
  info_.dense_formats = JoinFormats(dense_formats);
  info_.layers = static_cast<int32_t>(spec_.layers.size());
  info_.experts = static_cast<int32_t>(manifest_.hparams.experts.count);
  info_.experts_used = static_cast<int32_t>(manifest_.hparams.experts.used);
  info_.vocab = static_cast<int32_t>(spec_.vocab);
  info_.trained_context = spec_.context;
  info_.context = options_.context_tokens;
  info_.bytes_per_token = dense_bytes_;
  if (info_.experts > 0) {
    info_.bytes_per_token +=
        store_->TotalBytes() / static_cast<uint64_t>(info_.experts) * static_cast<uint64_t>(info_.experts_used);
  }
  info_.isa = std::string(sys::IsaName(caps_.isa));
  info_.kv_type = std::string(KvTypeName(options_.kv_type));
  info_.act = config_.context.act == config::ActMode::kF32 ? "f32" : "auto";
  info_.threads = pool_->size();
}

std::vector<std::string> TextEngineImpl::PlanLines() const {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("model: {} ({}, {} layers, {} parameters, {})",
                              info_.name.empty() ? info_.path : info_.name, info_.architecture, info_.layers,
                              info_.parameters, FormatBytes(info_.file_bytes)));
  lines.push_back(fmt::format("cpu: {} threads, {} kernels, {} KV cache, context {} tokens", info_.threads, info_.isa,
                              info_.kv_type, info_.context));
  if (plan_.gpu.used) {
    lines.push_back(fmt::format("gpu: {} (sm_{}{}), {} of {} free, {} for this model", gpu_.name, gpu_.compute_major,
                                gpu_.compute_minor, FormatBytes(gpu_.free_bytes), FormatBytes(gpu_.total_bytes),
                                FormatBytes(plan_.gpu.vram_bytes)));
  }
  for (const std::string& line : memory_lines_) lines.push_back(line);
  for (std::string& line : plan::DescribePlan(plan_)) lines.push_back(std::move(line));
  return lines;
}

ExpertStats TextEngineImpl::Experts() const {
  ExpertStats stats;
  stats.resident = plan_.placement.resident();
  stats.total = plan_.placement.total();
  const moe::RouteCounts* counts = model_->counts();
  if (counts == nullptr) return stats;
  stats.hits = counts->hits();
  stats.misses = counts->misses();
  stats.routes = counts->per_expert();
  for (size_t l = 0; l < counts->per_layer().size(); ++l) {
    if (stats.routes[l].empty()) continue;
    const moe::RouteCounts::Layer& layer = counts->per_layer()[l];
    stats.layers.push_back({static_cast<int32_t>(l), layer.hits, layer.misses});
  }
  return stats;
}

std::vector<std::vector<ExpertTier>> TextEngineImpl::Tiers() const {
  std::vector<std::vector<ExpertTier>> tiers(static_cast<size_t>(plan_.placement.layers()));
  for (size_t l = 0; l < tiers.size(); ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    for (int32_t e = 0; e < plan_.placement.experts(layer); ++e) {
      const bool slot = plan_.placement.IsHit(layer, ExpertId(e));
      // A mapped file that was not read into memory may be paged in from disk at any step.
      const bool in_memory = plan_.copy_experts || plan_.prefault;
      tiers[l].push_back(slot ? ExpertTier::kGpu : in_memory ? ExpertTier::kRam : ExpertTier::kDisk);
    }
  }
  return tiers;
}

TrafficTotals TextEngineImpl::Traffic() const {
  TrafficTotals traffic;
  traffic.steps = steps_;
  (plan_.gpu.used ? traffic.hbm_bytes : traffic.dram_bytes) = steps_ * dense_bytes_;
  const model::StepModelTraffic moved = model_->Traffic();
  traffic.pcie_bytes = moved.pcie_bytes;
  traffic.rings = moved.rings;
  traffic.zero_cold_layers = moved.zero_cold_layers;
  traffic.wait_ns = moved.wait_ns;
  const moe::RouteCounts* counts = model_->counts();
  if (counts == nullptr) return traffic;
  const std::vector<moe::RouteCounts::Layer>& layers = counts->per_layer();
  uint64_t cold_bytes = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    if (store_->experts(layer) == 0) continue;
    const uint64_t expert_bytes = store_->LayerBytes(layer) / static_cast<uint64_t>(store_->experts(layer));
    cold_bytes += layers[l].cold_experts * expert_bytes;
    traffic.cold_experts += layers[l].cold_experts;
    traffic.hot_experts += layers[l].hot_experts;
    traffic.hbm_bytes += layers[l].hot_experts * expert_bytes;
  }
  // What the GPU itself reads of them is among the bytes over PCIe.
  traffic.dram_bytes += cold_bytes - std::min(cold_bytes, traffic.pcie_bytes);
  return traffic;
}

std::vector<MemoryUse> TextEngineImpl::Memory() const {
  std::vector<MemoryUse> memory;
  for (const plan::MemoryLine& line : plan_.memory) {
    memory.push_back({std::string(MemoryTagName(line.tag)), line.where, line.bytes});
  }
  return memory;
}

void TextEngineImpl::ResetStats() {
  steps_ = 0;
  model_->ResetCounts();
}

Result<std::vector<std::byte>> MakeStrpProfile(const ExpertStats& stats) {
  int32_t experts = 0;
  for (const auto& layer : stats.routes) experts = std::max(experts, static_cast<int32_t>(layer.size()));
  if (experts == 0) return InvalidArgument("a dense model has no experts to profile");
  BELLHOP_TRY_ASSIGN(const plan::ExpertProfile profile, plan::RankExperts(stats.routes, experts));
  return plan::SerializeStrp(profile);
}

}  // namespace bellhop::engine
