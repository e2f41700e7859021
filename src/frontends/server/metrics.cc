#include "frontends/server/metrics.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "engine/process.h"

namespace bellhop::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
const Buckets kFirstTokenSeconds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const Buckets kTokenSeconds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};
const Buckets kQueueSeconds{0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60};

using Labels = std::vector<prometheus::ClientMetric::Label>;

struct Sample {
  Labels labels;
  double value = 0;
};

prometheus::MetricFamily Family(std::string name, std::string help, prometheus::MetricType type,
                                const std::vector<Sample>& samples) {
  prometheus::MetricFamily family{std::move(name), std::move(help), type, {}};
  for (const Sample& sample : samples) {
    prometheus::ClientMetric metric;
    metric.label = sample.labels;
    metric.counter.value = sample.value;
    metric.gauge.value = sample.value;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

prometheus::MetricFamily Counter(std::string name, std::string help, std::vector<Sample> samples) {
  return Family(std::move(name), std::move(help), prometheus::MetricType::Counter, samples);
}
prometheus::MetricFamily Counter(std::string name, std::string help, double value) {
  return Counter(std::move(name), std::move(help), std::vector<Sample>{{{}, value}});
}
prometheus::MetricFamily Gauge(std::string name, std::string help, std::vector<Sample> samples) {
  return Family(std::move(name), std::move(help), prometheus::MetricType::Gauge, samples);
}
prometheus::MetricFamily Gauge(std::string name, std::string help, double value) {
  return Gauge(std::move(name), std::move(help), std::vector<Sample>{{{}, value}});
}

void AddExperts(const engine::ServiceSnapshot& snapshot, std::vector<prometheus::MetricFamily>* families) {
  const engine::ExpertStats& experts = snapshot.experts;
  families->push_back(Counter("bellhop_expert_routes_total", "Routes to experts in GPU slots and elsewhere",
                              {{{{"outcome", "hit"}}, static_cast<double>(experts.hits)},
                               {{{"outcome", "miss"}}, static_cast<double>(experts.misses)}}));
  std::vector<Sample> rates;
  for (const engine::LayerRoutes& layer : experts.layers) {
    if (layer.hits + layer.misses == 0) continue;
    rates.push_back({{{"layer", std::to_string(layer.layer)}},
                     static_cast<double>(layer.hits) / static_cast<double>(layer.hits + layer.misses)});
  }
  families->push_back(Gauge("bellhop_expert_hit_ratio", "Share of a layer's routes that found a GPU slot", rates));
  families->push_back(Gauge("bellhop_experts_resident", "Experts in GPU slots", experts.resident));
  families->push_back(Gauge("bellhop_experts", "Experts of the model", experts.total));
  const engine::TrafficTotals& traffic = snapshot.traffic;
  families->push_back(Counter("bellhop_weight_bytes_total", "Weight bytes read, by path",
                              {{{{"path", "hbm"}}, static_cast<double>(traffic.hbm_bytes)},
                               {{{"path", "pcie"}}, static_cast<double>(traffic.pcie_bytes)},
                               {{{"path", "dram"}}, static_cast<double>(traffic.dram_bytes)},
                               {{{"path", "disk"}}, static_cast<double>(traffic.disk_bytes)}}));
  families->push_back(Counter("bellhop_doorbell_rings_total", "Layers whose misses the GPU handed to the host",
                              static_cast<double>(traffic.rings)));
  families->push_back(Counter("bellhop_zero_cold_layers_total", "Layers on the GPU that had no miss",
                              static_cast<double>(traffic.zero_cold_layers)));
  families->push_back(
      Counter("bellhop_promotions_total", "Experts moved into a GPU slot", static_cast<double>(traffic.promotions)));
}

void AddEngine(const engine::ServiceSnapshot& snapshot, double predicted_ms,
               std::vector<prometheus::MetricFamily>* families) {
  int32_t active = 0;
  for (const engine::SlotInfo& slot : snapshot.slots) active += slot.busy ? 1 : 0;
  families->push_back(Gauge("bellhop_sequences_active", "Sequences with a slot", active));
  families->push_back(Gauge("bellhop_sequences_queued", "Sequences waiting for a slot", snapshot.queued));
  families->push_back(
      Gauge("bellhop_sequence_slots", "Sequences that can run at a time", static_cast<double>(snapshot.slots.size())));
  families->push_back(Counter("bellhop_prompt_tokens_total", "Prompt tokens computed or reused",
                              {{{{"source", "computed"}}, static_cast<double>(snapshot.prompt_tokens)},
                               {{{"source", "reused"}}, static_cast<double>(snapshot.reused_tokens)}}));
  families->push_back(
      Counter("bellhop_generated_tokens_total", "Tokens generated", static_cast<double>(snapshot.decode_tokens)));
  families->push_back(Counter("bellhop_decode_steps_total", "Decode steps", static_cast<double>(snapshot.steps)));
  families->push_back(
      Counter("bellhop_model_seconds_total", "Time inside the model",
              {{{{"phase", "prompt"}}, snapshot.prompt_ms / 1e3}, {{{"phase", "decode"}}, snapshot.decode_ms / 1e3}}));
  families->push_back(
      Gauge("bellhop_tokens_per_second", "Tokens generated in the last seconds, per second", snapshot.tokens_per_s));
  const double measured = snapshot.steps > 0 ? snapshot.decode_ms / static_cast<double>(snapshot.steps) : 0;
  families->push_back(Gauge("bellhop_step_ms",
                            "Milliseconds of a decode step: what the plan expects, and what was measured",
                            {{{{"kind", "predicted"}}, predicted_ms}, {{{"kind", "measured"}}, measured}}));
  std::vector<Sample> memory;
  for (const engine::MemoryUse& use : snapshot.memory) {
    memory.push_back({{{"tag", use.tag}, {"where", use.where}}, static_cast<double>(use.bytes)});
  }
  families->push_back(Gauge("bellhop_memory_bytes", "Memory that the plan gave to each purpose", memory));
  families->push_back(Gauge("process_resident_memory_max_bytes", "Most memory that the process had resident",
                            static_cast<double>(engine::PeakResidentBytes())));
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter().Name("bellhop_http_requests_total").Help("HTTP answers").Register(registry);
  prometheus::Family<prometheus::Counter>& sequences = prometheus::BuildCounter()
                                                           .Name("bellhop_sequences_total")
                                                           .Help("Sequences that ended, by reason")
                                                           .Register(registry);
  prometheus::Counter& refused = prometheus::BuildCounter()
                                     .Name("bellhop_requests_refused_total")
                                     .Help("Requests that found the queue full")
                                     .Register(registry)
                                     .Add({});
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                           .Name("bellhop_time_to_first_token_seconds")
                                           .Help("From a request's arrival to its first token")
                                           .Register(registry)
                                           .Add({}, kFirstTokenSeconds);
  prometheus::Histogram& token_gap = prometheus::BuildHistogram()
                                         .Name("bellhop_time_per_token_seconds")
                                         .Help("Between two tokens of a sequence")
                                         .Register(registry)
                                         .Add({}, kTokenSeconds);
  prometheus::Histogram& queue = prometheus::BuildHistogram()
                                     .Name("bellhop_queue_seconds")
                                     .Help("Time that a sequence waited for a slot")
                                     .Register(registry)
                                     .Add({}, kQueueSeconds);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CountRequest(std::string_view route, int status) {
  impl_->requests.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::CountRefused() { impl_->refused.Increment(); }

void Metrics::CountSequence(const engine::SequenceResult& result) {
  const std::string reason =
      result.status.ok() ? std::string(engine::FinishReasonName(result.reason)) : std::string("error");
  impl_->sequences.Add({{"reason", reason}}).Increment();
  impl_->queue.Observe(result.queue_ms / 1e3);
}

void Metrics::ObserveFirstToken(double seconds) { impl_->first_token.Observe(seconds); }
void Metrics::ObserveTokenGap(double seconds) { impl_->token_gap.Observe(seconds); }

std::string Metrics::Render(const engine::ServiceSnapshot& snapshot, double predicted_ms) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  AddEngine(snapshot, predicted_ms, &families);
  AddExperts(snapshot, &families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace bellhop::server
