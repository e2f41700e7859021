// Measurements on a loaded model: logits, perplexity, route counts, speed.
#include <algorithm>
#include <cmath>

#include "engine/text_engine_impl.h"
#include "sys/bandwidth.h"
#include "sys/clock.h"

namespace bellhop::engine {
namespace {

// -ln p of `target` under a row of logits, in double.
double NegativeLogLikelihood(const float* logits, int64_t vocab, TokenId target) {
  const float top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[v]) - top);
  return std::log(sum) + top - logits[target];
}

class RouteRecorder final : public moe::RouteObserver {
 public:
  explicit RouteRecorder(LogitsResult* result) : result_(result) {}
  void OnRoutes(LayerId layer, int32_t rows, int32_t used, const int32_t* ids, const float* weights,
                const float* probabilities, int32_t experts) override {
    LogitsResult::Routes* routes = nullptr;
    for (LogitsResult::Routes& known : result_->routes) {
      if (known.layer == layer.value) routes = &known;
    }
    if (routes == nullptr) {
      result_->routes.push_back({.layer = layer.value, .used = used, .ids = {}, .weights = {}, .gaps = {}});
      routes = &result_->routes.back();
    }
    routes->ids.insert(routes->ids.end(), ids, ids + rows * used);
    routes->weights.insert(routes->weights.end(), weights, weights + rows * used);
    for (int64_t m = 0; m < rows; ++m) {
      const float* p = probabilities + m * experts;
      std::vector<float> sorted(p, p + experts);
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      routes->gaps.push_back(used < experts ? sorted[static_cast<size_t>(used - 1)] - sorted[static_cast<size_t>(used)]
                                            : sorted.back());
    }
  }

 private:
  LogitsResult* result_;
};

}  // namespace

double PerplexityResult::perplexity() const { return scored > 0 ? std::exp(nll_sum / static_cast<double>(scored)) : 0; }

Result<LogitsResult> TextEngineImpl::Logits(HostSpan<const TokenId> ids, bool all, bool with_routes) {
  if (ids.empty()) return InvalidArgument("no tokens: there is nothing to compute");
  if (ids.size() > static_cast<size_t>(options_.context_tokens)) {
    return InvalidArgument("{} tokens exceed the context of {}; raise --ctx-size", ids.size(), options_.context_tokens);
  }
  LogitsResult result;
  result.vocab = info_.vocab;
  RouteRecorder recorder(&result);
  if (with_routes) BELLHOP_TRY(model_->SetObserver(&recorder));
  sequence_->Reset();
  sequence_tokens_.clear();
  prompt_class_tokens_ = 0;
  const int32_t first = all ? 0 : static_cast<int32_t>(ids.size()) - 1;
  const Status status = Prefill(ids, 0, first, nullptr, [&](int32_t position, MatView<const float> logits) {
    for (int64_t m = 0; m < logits.rows; ++m) {
      result.positions.push_back(position + static_cast<int32_t>(m));
      result.values.insert(result.values.end(), logits.Row(m), logits.Row(m) + logits.cols);
    }
    return Status();
  });
  (void)model_->SetObserver(nullptr);
  BELLHOP_TRY(status);
  return result;
}

Result<PerplexityResult> TextEngineImpl::Perplexity(HostSpan<const TokenId> ids, int32_t window,
                                                    const std::function<void(int64_t, int64_t)>& progress) {
  if (window < 2 || window > options_.context_tokens) {
    return InvalidArgument("--window {}: must be 2 to the context of {} tokens", window, options_.context_tokens);
  }
  const auto total = static_cast<int64_t>(ids.size());
  if (total < 2) return InvalidArgument("the text has {} tokens; perplexity needs at least 2", total);
  const int64_t windows = std::max<int64_t>(total / window, 1);
  PerplexityResult result;
  const int64_t start = sys::MonotonicNs();
  for (int64_t w = 0; w < windows; ++w) {
    const auto begin = static_cast<size_t>(w * window);
    const auto count = static_cast<size_t>(std::min<int64_t>(window, total - w * window));
    const HostSpan<const TokenId> part = ids.subspan(begin, count);
    sequence_->Reset();
    sequence_tokens_.clear();
    prompt_class_tokens_ = 0;
    BELLHOP_TRY(Prefill(part, 0, 0, nullptr, [&](int32_t position, MatView<const float> logits) {
      for (int64_t m = 0; m < logits.rows; ++m) {
        const auto next = static_cast<size_t>(position + m + 1);
        if (next >= part.size()) continue;
        result.nll_sum += NegativeLogLikelihood(logits.Row(m), logits.cols, part[next]);
        ++result.scored;
      }
      return Status();
    }));
    ++result.windows;
    if (progress) progress(w + 1, windows);
  }
  result.elapsed_ms = static_cast<double>(sys::MonotonicNs() - start) / 1e6;
  return result;
}

Status TextEngineImpl::CountRoutes(HostSpan<const TokenId> ids, const std::function<void(int64_t, int64_t)>& progress) {
  const auto window = static_cast<size_t>(options_.context_tokens);
  for (size_t at = 0; at < ids.size(); at += window) {
    const HostSpan<const TokenId> part = ids.subspan(at, std::min(window, ids.size() - at));
    sequence_->Reset();
    sequence_tokens_.clear();
    prompt_class_tokens_ = 0;
    BELLHOP_TRY(Prefill(part, 0, static_cast<int32_t>(part.size()), nullptr,
                        [](int32_t, MatView<const float>) { return Status(); }));
    if (progress) progress(static_cast<int64_t>(at + part.size()), static_cast<int64_t>(ids.size()));
  }
  return Status();
}

Result<BenchResult> TextEngineImpl::Bench(const BenchCase& test, int32_t repetitions) {
  if (test.tokens < 1 || test.depth < 0 || int64_t{test.tokens} + test.depth > options_.context_tokens) {
    return InvalidArgument("a benchmark of {} tokens at depth {} exceeds the context of {}; raise --ctx-size",
                           test.tokens, test.depth, options_.context_tokens);
  }
  BenchResult result;
  result.test = test;
  // Ordinary token ids in a fixed mixed order, so that routes spread over the experts as text makes them.
  std::vector<TokenId> ids(static_cast<size_t>(test.tokens + test.depth));
  uint64_t state = 0x9E3779B97F4A7C15;
  for (TokenId& id : ids) {
    state = state * 6364136223846793005 + 1442695040888963407;
    id = static_cast<TokenId>((state >> 33) % static_cast<uint64_t>(info_.vocab));
  }
  const auto ignore = [](int32_t, MatView<const float>) { return Status(); };
  for (int32_t r = 0; r < repetitions + 1; ++r) {  // the first warms up and is not counted
    sequence_->Reset();
    sequence_tokens_.clear();
    prompt_class_tokens_ = 0;
    if (test.depth > 0) {
      const auto depth = static_cast<size_t>(test.depth);
      BELLHOP_TRY(Prefill({ids.data(), depth}, 0, test.depth, nullptr, ignore));
    }
    const TrafficTotals traffic = Traffic();
    const moe::RouteCounts* counts = model_->counts();
    const uint64_t hits = counts == nullptr ? 0 : counts->hits(), misses = counts == nullptr ? 0 : counts->misses();
    const int64_t start = sys::MonotonicNs();
    if (test.decode) {
      for (int32_t t = 0; t < test.tokens; ++t)
        BELLHOP_TRY(DecodeStep(ids[static_cast<size_t>(test.depth + t)], nullptr).status());
    } else {
      BELLHOP_TRY(Prefill(ids, test.depth, test.depth + test.tokens - 1, nullptr, ignore));
    }
    const int64_t end = sys::MonotonicNs();
    if (r == 0) continue;
    result.seconds.push_back(static_cast<double>(end - start) / 1e9);
    result.traffic += Traffic() - traffic;
    if (model_->counts() == nullptr) continue;
    result.hits += counts->hits() - hits;
    result.misses += counts->misses() - misses;
  }
  return result;
}

Result<double> TextEngineImpl::MeasureReadBandwidth(bool quick) {
  const uint64_t bytes = sys::BandwidthBufferBytes(topology_, uint64_t{1} << (quick ? 29 : 32));
  const int passes = quick ? 2 : 5;
  BELLHOP_TRY_ASSIGN(const sys::ReadBandwidth measured, sys::MeasureReadBandwidth(*pool_, bytes, passes));
  return measured.gb_per_s;
}

}  // namespace bellhop::engine
