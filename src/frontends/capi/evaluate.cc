// Logits, perplexity and expert statistics.
#include <algorithm>
#include <functional>

#include "base/units.h"
#include "bellhop/bellhop.h"
#include "frontends/capi/calls.h"

namespace bellhop::capi {
namespace {

constexpr size_t kPerplexityV1 = BELLHOP_SIZE_THROUGH(bellhop_perplexity_result, windows);
constexpr size_t kExpertStatsV1 = BELLHOP_SIZE_THROUGH(bellhop_expert_stats, experts);

std::function<void(int64_t, int64_t)> ToProgress(bellhop_progress_fn fn, void* user) {
  if (fn == nullptr) return nullptr;
  return [fn, user](int64_t done, int64_t total) { fn(user, done, total); };
}

size_t LargestLayer(const engine::ExpertStats& stats) {
  size_t experts = 0;
  for (const std::vector<uint64_t>& layer : stats.routes) experts = std::max(experts, layer.size());
  return experts;
}

}  // namespace
}  // namespace bellhop::capi

using namespace bellhop;        // NOLINT: this file defines C functions alone
using namespace bellhop::capi;  // NOLINT

extern "C" {

bellhop_status bellhop_logits(bellhop_engine* engine, const int32_t* ids, size_t id_count, int32_t all, float* logits,
                              size_t capacity, size_t* count) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    BELLHOP_TRY(CheckArray(ids, id_count, "ids"));
    BELLHOP_TRY(CheckFlag(all, "all"));
    uint64_t needed = 0;
    if (!CheckedMul(all == 1 ? id_count : 1, static_cast<uint64_t>(handle.engine->info().vocab), &needed)) {
      return InvalidArgument("{} tokens are too many", id_count);
    }
    Outcome room = CheckRoom(needed, logits, capacity, count);
    if (room.code != BELLHOP_OK || logits == nullptr) return room;
    BELLHOP_TRY_ASSIGN(const engine::LogitsResult result, handle.engine->Logits({ids, id_count}, all == 1, false));
    return CopyItems(result.values.data(), result.values.size(), logits, capacity, count);
  });
}

bellhop_status bellhop_perplexity(bellhop_engine* engine, const int32_t* ids, size_t id_count, int32_t window,
                                  bellhop_progress_fn progress, void* progress_user,
                                  bellhop_perplexity_result* result) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    BELLHOP_TRY(CheckArray(ids, id_count, "ids"));
    BELLHOP_TRY(CheckNotNull(result, "result"));
    BELLHOP_TRY(CheckStructSize(result->struct_size, kPerplexityV1, "result"));
    BELLHOP_TRY_ASSIGN(const engine::PerplexityResult measured,
                       handle.engine->Perplexity({ids, id_count}, window, ToProgress(progress, progress_user)));
    bellhop_perplexity_result out = {};
    out.nll_sum = measured.nll_sum;
    out.perplexity = measured.perplexity();
    out.elapsed_ms = measured.elapsed_ms;
    out.scored = measured.scored;
    out.windows = measured.windows;
    return WriteResult(out, kPerplexityV1, "result", result);
  });
}

bellhop_status bellhop_get_expert_stats(bellhop_engine* engine, bellhop_expert_stats* stats) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    const engine::ExpertStats now = handle.engine->Experts();
    bellhop_expert_stats out = {};
    out.hits = now.hits;
    out.misses = now.misses;
    out.resident = now.resident;
    out.total = now.total;
    out.layers = static_cast<int32_t>(now.routes.size());
    out.experts = static_cast<int32_t>(LargestLayer(now));
    return WriteResult(out, kExpertStatsV1, "stats", stats);
  });
}

bellhop_status bellhop_route_counts(bellhop_engine* engine, uint64_t* counts, size_t capacity, size_t* count) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    const engine::ExpertStats now = handle.engine->Experts();
    const size_t experts = LargestLayer(now);
    std::vector<uint64_t> table(now.routes.size() * experts);
    for (size_t layer = 0; layer < now.routes.size(); ++layer) {
      std::copy(now.routes[layer].begin(), now.routes[layer].end(),
                table.begin() + static_cast<std::ptrdiff_t>(layer * experts));
    }
    return CopyItems(table.data(), table.size(), counts, capacity, count);
  });
}

bellhop_status bellhop_reset_stats(bellhop_engine* engine) noexcept {
  return EngineCall(engine, [](bellhop_engine& handle) -> Outcome {
    handle.engine->ResetStats();
    return Status();
  });
}

bellhop_status bellhop_count_routes(bellhop_engine* engine, const int32_t* ids, size_t id_count,
                                    bellhop_progress_fn progress, void* progress_user) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    BELLHOP_TRY(CheckArray(ids, id_count, "ids"));
    return handle.engine->CountRoutes({ids, id_count}, ToProgress(progress, progress_user));
  });
}

bellhop_status bellhop_make_profile(bellhop_engine* engine, void* buffer, size_t capacity, size_t* bytes) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    BELLHOP_TRY_ASSIGN(const std::vector<std::byte> profile, engine::MakeStrpProfile(handle.engine->Experts()));
    return CopyItems(profile.data(), profile.size(), static_cast<std::byte*>(buffer), capacity, bytes);
  });
}

}  // extern "C"
