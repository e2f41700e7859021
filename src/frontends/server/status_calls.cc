#include "frontends/server/status_calls.h"

#include <filesystem>

#include "engine/build_info.h"
#include "frontends/server/call_handler.h"

namespace bellhop::server {
namespace {

Json Build() {
  const engine::BuildInfo& build = engine::GetBuildInfo();
  return {{"version", build.version}, {"commit", build.commit}, {"type", build.build_type}, {"cuda", build.cuda}};
}

Json DefaultSampling() {
  const decode::SamplingParams params;
  return {{"temperature", params.temperature},
          {"top_k", params.top_k},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"repeat_penalty", params.repeat_penalty},
          {"repeat_last_n", params.repeat_last_n},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty}};
}

int32_t ActiveSlots(const engine::ServiceSnapshot& snapshot) {
  int32_t active = 0;
  for (const engine::SlotInfo& slot : snapshot.slots) active += slot.busy ? 1 : 0;
  return active;
}

Json OrNull(bool known, double value) { return known ? Json(value) : Json(nullptr); }

}  // namespace

Health HealthOf(const ServerState& state) {
  if (state.phase() == ServerState::Phase::kReady) return {200, {{"status", "ok"}}};
  const ApiError error = NotReady(state);
  Health health;
  health.body["status"] = error.code;
  if (state.phase() == ServerState::Phase::kLoading) {
    const ServerState::Loading loading = state.loading();
    health.body["progress"] = loading.share;
    health.body["step"] = loading.what;
  }
  health.body["error"] = {{"code", error.http_status}, {"message", error.message}, {"type", error.type}};
  return health;
}

Json Models(const ServerState& state) {
  const engine::ModelInfo& info = state.api().engine->info();
  Json model = {{"id", state.api().model_id},
                {"object", "model"},
                {"created", state.api().created},
                {"owned_by", "bellhop"},
                {"meta",
                 {{"architecture", info.architecture},
                  {"n_vocab", info.vocab},
                  {"n_ctx", info.context},
                  {"n_ctx_train", info.trained_context},
                  {"n_params", info.parameters},
                  {"size", info.file_bytes},
                  {"experts", info.experts},
                  {"experts_used", info.experts_used}}}};
  return {{"object", "list"}, {"data", Json::array({std::move(model)})}};
}

Json Props(const ServerState& state) {
  const engine::TextEngine& engine = *state.api().engine;
  const engine::ModelInfo& info = engine.info();
  return {{"model", state.api().model_id},
          {"model_path", std::filesystem::path(info.path).filename().string()},
          {"architecture", info.architecture},
          {"context", info.context},
          {"parallel", state.api().parallel},
          {"total_slots", state.api().parallel},
          {"chat_template", engine.has_chat_template()},
          {"layers", info.layers},
          {"experts", info.experts},
          {"experts_used", info.experts_used},
          {"formats", {{"experts", info.expert_formats}, {"dense", info.dense_formats}}},
          {"backend", {{"isa", info.isa}, {"threads", info.threads}, {"kv_type", info.kv_type}, {"act", info.act}}},
          {"build", Build()},
          {"default_generation_settings", {{"n_ctx", info.context}, {"params", DefaultSampling()}}}};
}

Json Slots(const engine::ServiceSnapshot& snapshot) {
  Json slots = Json::array();
  for (size_t i = 0; i < snapshot.slots.size(); ++i) {
    const engine::SlotInfo& slot = snapshot.slots[i];
    slots.push_back({{"id", i},
                     {"is_processing", slot.busy},
                     {"n_prompt_tokens", slot.prompt_tokens},
                     {"n_prompt_tokens_processed", slot.prompt_done},
                     {"n_decoded", slot.generated_tokens},
                     {"n_cached", slot.cached_tokens}});
  }
  return slots;
}

Json Experts(const ServerState& state, const engine::ServiceSnapshot& snapshot) {
  const engine::ModelInfo& info = state.api().engine->info();
  const engine::ExpertStats& experts = snapshot.experts;
  Json ids = Json::array(), tier = Json::array(), routes = Json::array();
  for (const engine::LayerRoutes& layer : experts.layers) {
    const auto index = static_cast<size_t>(layer.layer);
    ids.push_back(layer.layer);
    Json tiers = Json::array();
    for (const engine::ExpertTier value : snapshot.tiers[index]) tiers.push_back(static_cast<int>(value));
    tier.push_back(std::move(tiers));
    routes.push_back(experts.routes[index]);
  }
  Json memory = Json::array();
  for (const engine::MemoryUse& use : snapshot.memory) {
    memory.push_back({{"tag", use.tag}, {"where", use.where}, {"bytes", use.bytes}});
  }
  const engine::TrafficTotals& traffic = snapshot.traffic;
  const bool measured = snapshot.steps > 0;
  return {{"layers", experts.layers.size()},
          {"experts", info.experts},
          {"experts_used", info.experts_used},
          {"moe_layers", std::move(ids)},
          {"tiers", {"gpu", "ram", "disk"}},
          {"tier", std::move(tier)},
          {"routes", std::move(routes)},
          {"hits", experts.hits},
          {"misses", experts.misses},
          {"hit_rate", OrNull(experts.hits + experts.misses > 0, experts.hit_rate())},
          {"rings", traffic.rings},
          {"zero_cold_layers", traffic.zero_cold_layers},
          {"promotions", traffic.promotions},
          {"steps", snapshot.steps},
          {"decode_tokens", snapshot.decode_tokens},
          {"prompt_tokens", snapshot.prompt_tokens},
          {"time_ms", {{"gpu", 0.0}, {"cpu", snapshot.prompt_ms + snapshot.decode_ms}, {"pcie", 0.0}}},
          {"tokens_per_second", snapshot.tokens_per_s},
          {"predicted_ms_per_token", OrNull(state.predicted_ms() > 0, state.predicted_ms())},
          {"measured_ms_per_token",
           OrNull(measured, measured ? snapshot.decode_ms / static_cast<double>(snapshot.steps) : 0)},
          {"bytes",
           {{"hbm", traffic.hbm_bytes},
            {"pcie", traffic.pcie_bytes},
            {"dram", traffic.dram_bytes},
            {"disk", traffic.disk_bytes}}},
          {"memory", std::move(memory)},
          {"active", ActiveSlots(snapshot)},
          {"queued", snapshot.queued},
          {"slots", snapshot.slots.size()}};
}

}  // namespace bellhop::server
