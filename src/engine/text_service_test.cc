// The service against the engine alone: what a request gets does not depend on what runs beside it.
#include "engine/text_service.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

namespace bellhop::engine {
namespace {

constexpr std::chrono::seconds kLimit(120);

config::EngineConfig Config(uint32_t sequences, uint32_t context = 512) {
  config::EngineConfig config;
  config.model_path = BELLHOP_SOURCE_DIR "/models/tiny-moe-q4_0.gguf";
  config.runtime.threads = 2;
  config.runtime.pin_threads = false;
  config.context.context_tokens = context;
  config.context.batch_rows = 32;
  config.context.sequences = sequences;
  return config;
}

class Collector final : public SequenceSink {
 public:
  explicit Collector(int32_t tokens_until_full = INT32_MAX) : room_(tokens_until_full) {}

  bool OnDelta(const SequenceDelta& delta) override {
    const std::lock_guard lock(mutex_);
    text_ += delta.text;
    for (const SampledToken& token : delta.tokens) tokens_.push_back(token);
    changed_.notify_all();
    return static_cast<int32_t>(tokens_.size()) < room_;
  }
  void OnEnd(const SequenceResult& result) override {
    const std::lock_guard lock(mutex_);
    ++ends_;
    result_ = result;
    changed_.notify_all();
  }

  SequenceResult Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return ends_ > 0; })) << "the request does not end";
    EXPECT_EQ(ends_, 1);
    return result_;
  }
  void WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return tokens_.size() >= count || ends_ > 0; }));
  }
  std::vector<TokenId> ids() {
    const std::lock_guard lock(mutex_);
    std::vector<TokenId> ids;
    for (const SampledToken& token : tokens_) ids.push_back(token.id);
    return ids;
  }
  std::vector<SampledToken> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<SampledToken> tokens_;
  SequenceResult result_;
  int ends_ = 0;
  int32_t room_;
};

std::unique_ptr<TextService> Start(uint32_t sequences, uint32_t context = 512, int32_t queue_limit = 64) {
  auto service =
      TextService::Start(Config(sequences, context), {.queue_limit = queue_limit, .before_start = {}}, &NullLogSink());
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(service).value();
}

const char* const kPrompts[] = {
    "The captain looked at the sea",
    "Once upon a time there was a king who",
    "It was the best of times, and yet",
    "She opened the letter and",
    "In the beginning of the year the little garden behind the house was full of roses, and",
    "He said",
};

SequenceRequest Request(const TextEngine& engine, std::string_view text, int32_t max_tokens) {
  SequenceRequest request;
  request.prompt = engine.Tokenize(text, true, true).value();
  request.sampling.greedy = true;
  request.max_tokens = max_tokens;
  return request;
}

std::shared_ptr<Collector> Submit(TextService& service, SequenceRequest request, uint64_t* ticket = nullptr,
                                  int32_t room = INT32_MAX) {
  auto sink = std::make_shared<Collector>(room);
  std::vector<SequenceRequest> requests;
  requests.push_back(std::move(request));
  auto submitted = service.Submit(std::move(requests), {sink});
  EXPECT_TRUE(submitted.ok()) << submitted.status().message();
  EXPECT_TRUE(submitted.ok() && submitted->has_value()) << "the queue is full";
  if (ticket != nullptr) *ticket = **submitted;
  return sink;
}

// A snapshot of the service at rest. One that its thread was too busy to take is the last known state, so this asks
// until all that was computed is in it.
ServiceSnapshot AtRest(TextService& service, uint64_t tokens) {
  EXPECT_TRUE(service.WaitUntilIdle(kLimit));
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  ServiceSnapshot snapshot = service.Snapshot();
  const auto settled = [&] {
    return snapshot.decode_tokens >= tokens && snapshot.queued == 0 &&
           std::none_of(snapshot.slots.begin(), snapshot.slots.end(), [](const SlotInfo& slot) { return slot.busy; });
  };
  while (!settled() && std::chrono::steady_clock::now() < deadline) snapshot = service.Snapshot();
  return snapshot;
}

// What the engine alone generates.
GenerateResult Alone(std::string_view text, int32_t max_tokens, bool greedy = true, uint64_t seed = 0) {
  static const std::unique_ptr<TextEngine> engine = TextEngine::Create(Config(1), &NullLogSink()).value();
  GenerateRequest request;
  request.prompt = engine->Tokenize(text, true, true).value();
  request.sampling.greedy = greedy;
  request.sampling.seed = seed;
  request.max_tokens = max_tokens;
  return engine->Generate(request).value();
}

TEST(TextServiceTest, SequencesTogetherGetWhatEachGetsAlone) {
  const auto service = Start(4);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int round = 0; round < 2; ++round) {  // the second one with prefixes to reuse
    for (const char* prompt : kPrompts) sinks.push_back(Submit(*service, Request(service->engine(), prompt, 24)));
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    const SequenceResult result = sinks[i]->Wait();
    const GenerateResult alone = Alone(kPrompts[i % std::size(kPrompts)], 24);
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(sinks[i]->ids(), alone.ids) << i;
    EXPECT_EQ(sinks[i]->text(), alone.text) << i;
    EXPECT_EQ(result.reason, alone.reason);
    EXPECT_EQ(result.generated_tokens, static_cast<int32_t>(alone.ids.size()));
    EXPECT_EQ(result.prompt_tokens, alone.prompt_tokens);
    EXPECT_GT(result.misses, 0u);
  }
  // The prompt that came last is still held; of the others the order of ends decides.
  constexpr size_t kLast = std::size(kPrompts) - 1;
  sinks.push_back(Submit(*service, Request(service->engine(), kPrompts[kLast], 24)));
  const SequenceResult again = sinks.back()->Wait();
  EXPECT_EQ(again.reused_tokens, again.prompt_tokens - 1);
  EXPECT_EQ(sinks.back()->ids(), Alone(kPrompts[kLast], 24).ids);
  uint64_t tokens = 0;
  for (const auto& sink : sinks) tokens += sink->ids().size();
  const ServiceSnapshot snapshot = AtRest(*service, tokens);
  EXPECT_GT(snapshot.reused_tokens, 0u);
  EXPECT_EQ(snapshot.queued, 0);
  EXPECT_LT(snapshot.steps, snapshot.decode_tokens) << "sequences were not batched";
}

TEST(TextServiceTest, SampledTokensDependOnSeedAndSequenceAlone) {
  const auto service = Start(4);
  const auto request = [&](uint64_t seed, uint64_t sequence) {
    SequenceRequest made = Request(service->engine(), kPrompts[0], 16);
    made.sampling.greedy = false;
    made.sampling.seed = seed;
    made.sequence = sequence;
    return made;
  };
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 2; ++i) {
    sinks.push_back(Submit(*service, request(7, 0)));
    sinks.push_back(Submit(*service, request(7, 1)));
    sinks.push_back(Submit(*service, request(8, 0)));
  }
  for (const auto& sink : sinks) sink->Wait();
  EXPECT_EQ(sinks[0]->ids(), Alone(kPrompts[0], 16, false, 7).ids);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sinks[i]->ids(), sinks[i + 3]->ids());
  EXPECT_NE(sinks[0]->ids(), sinks[1]->ids());
  EXPECT_NE(sinks[0]->ids(), sinks[2]->ids());
}

TEST(TextServiceTest, ChoicesOfOneRequestShareThePrompt) {
  const auto service = Start(3);
  std::string text;
  for (const char* prompt : kPrompts) text += std::string(prompt) + ". ";
  std::vector<SequenceRequest> requests;
  std::vector<std::shared_ptr<Collector>> collectors;
  std::vector<std::shared_ptr<SequenceSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(Request(service->engine(), text, 8));
    collectors.push_back(std::make_shared<Collector>());
    sinks.push_back(collectors.back());
  }
  const auto prompt_tokens = static_cast<int32_t>(requests[0].prompt.size());
  ASSERT_GT(prompt_tokens, 33) << "needs more than one chunk";
  ASSERT_TRUE(service->Submit(std::move(requests), std::move(sinks)).value().has_value());
  const GenerateResult alone = Alone(text, 8);
  int32_t reused = 0;
  for (const auto& collector : collectors) {
    reused += collector->Wait().reused_tokens;
    EXPECT_EQ(collector->ids(), alone.ids);
  }
  EXPECT_EQ(reused, 2 * (prompt_tokens - 1));
}

TEST(TextServiceTest, ACancelledRequestFreesItsSlot) {
  const auto service = Start(1);
  SequenceRequest endless = Request(service->engine(), kPrompts[0], -1);
  endless.ignore_eos = true;
  uint64_t first_ticket = 0, second_ticket = 0;
  const auto first = Submit(*service, endless, &first_ticket);
  const auto second = Submit(*service, endless, &second_ticket);
  const auto third = Submit(*service, Request(service->engine(), kPrompts[1], 4));
  first->WaitForTokens(3);
  service->Cancel(second_ticket);  // still waiting
  EXPECT_EQ(second->Wait().reason, FinishReason::kCancelled);
  EXPECT_TRUE(second->ids().empty());
  service->Cancel(first_ticket);
  EXPECT_EQ(first->Wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(third->Wait().generated_tokens, 4);
  EXPECT_TRUE(service->WaitUntilIdle(std::chrono::seconds(10)));
  for (const SlotInfo& slot : AtRest(*service, 4).slots) EXPECT_FALSE(slot.busy);
}

TEST(TextServiceTest, ASinkThatTakesNoMoreEndsItsOwnRequestOnly) {
  const auto service = Start(2);
  SequenceRequest endless = Request(service->engine(), kPrompts[0], -1);
  endless.ignore_eos = true;
  const auto full = Submit(*service, endless, nullptr, 5);
  const auto other = Submit(*service, Request(service->engine(), kPrompts[1], 24));
  EXPECT_EQ(full->Wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(full->ids().size(), 5u);
  other->Wait();
  EXPECT_EQ(other->ids(), Alone(kPrompts[1], 24).ids);
}

TEST(TextServiceTest, TheQueueIsBounded) {
  const auto service = Start(1, 512, 1);
  SequenceRequest endless = Request(service->engine(), kPrompts[0], -1);
  endless.ignore_eos = true;
  uint64_t ticket = 0;
  const auto running = Submit(*service, endless, &ticket);
  const auto waiting = Submit(*service, Request(service->engine(), kPrompts[1], 2));
  std::vector<SequenceRequest> refused;
  refused.push_back(Request(service->engine(), kPrompts[2], 2));
  EXPECT_FALSE(service->Submit(std::move(refused), {std::make_shared<Collector>()}).value().has_value());
  service->Cancel(ticket);
  EXPECT_EQ(waiting->Wait().generated_tokens, 2);
}

TEST(TextServiceTest, StopsAndLimits) {
  const auto service = Start(2, 64);
  const GenerateResult alone = Alone(kPrompts[0], 24);
  ASSERT_GT(alone.text.size(), 12u);
  SequenceRequest stopped = Request(service->engine(), kPrompts[0], 24);
  stopped.stop = {"no such text", alone.text.substr(6, 4)};
  const auto stop_sink = Submit(*service, stopped);
  const SequenceResult stop_result = stop_sink->Wait();
  EXPECT_EQ(stop_result.reason, FinishReason::kStop);
  EXPECT_EQ(stop_result.stop, alone.text.substr(6, 4));
  EXPECT_EQ(stop_sink->text(), alone.text.substr(0, alone.text.find(stop_result.stop)));

  SequenceRequest nothing = Request(service->engine(), kPrompts[0], 0);
  const auto nothing_sink = Submit(*service, nothing);
  EXPECT_EQ(nothing_sink->Wait().reason, FinishReason::kLength);
  EXPECT_TRUE(nothing_sink->ids().empty());

  SequenceRequest endless = Request(service->engine(), kPrompts[0], -1);
  endless.ignore_eos = true;
  const auto prompt_tokens = static_cast<int32_t>(endless.prompt.size());
  const auto endless_sink = Submit(*service, endless);
  EXPECT_EQ(endless_sink->Wait().reason, FinishReason::kLength);
  EXPECT_EQ(static_cast<int32_t>(endless_sink->ids().size()), 64 - prompt_tokens + 1);
}

TEST(TextServiceTest, LogprobsOfRawLogits) {
  const auto service = Start(1);
  SequenceRequest request = Request(service->engine(), kPrompts[0], 6);
  request.top_logprobs = 3;
  const auto sink = Submit(*service, request);
  sink->Wait();
  for (const SampledToken& token : sink->tokens()) {
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.id, token.top[0].id);  // greedy
    EXPECT_EQ(token.logprob, token.top[0].logprob);
    EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
    EXPECT_LE(token.top[0].logprob, 0.0f);
  }
}

TEST(TextServiceTest, BadRequestsAreRefusedWithTheirField) {
  const auto service = Start(1, 64);
  const auto refusal = [&](SequenceRequest request) {
    std::vector<SequenceRequest> requests;
    requests.push_back(std::move(request));
    const auto submitted = service->Submit(std::move(requests), {std::make_shared<Collector>()});
    EXPECT_FALSE(submitted.ok());
    return std::string(submitted.status().message());
  };
  const SequenceRequest good = Request(service->engine(), kPrompts[0], 4);
  SequenceRequest request = good;
  request.prompt.assign(65, good.prompt[0]);
  EXPECT_NE(refusal(request).find("the prompt has 65 tokens, the context 64"), std::string::npos);
  request.prompt.clear();
  EXPECT_NE(refusal(request).find("empty"), std::string::npos);
  request.prompt = {service->engine().info().vocab};
  EXPECT_NE(refusal(request).find("prompt token 0"), std::string::npos);
  request = good;
  request.sampling.top_p = 2;
  EXPECT_NE(refusal(request).find("top_p"), std::string::npos);
  request = good;
  request.stop = {""};
  EXPECT_NE(refusal(request).find("stop"), std::string::npos);
}

TEST(TextServiceTest, ShutdownEndsWhatRuns) {
  auto service = Start(1);
  SequenceRequest endless = Request(service->engine(), kPrompts[0], -1);
  endless.ignore_eos = true;
  const auto running = Submit(*service, endless);
  const auto waiting = Submit(*service, endless);
  running->WaitForTokens(1);
  EXPECT_FALSE(service->WaitUntilIdle(std::chrono::milliseconds(1)));
  service.reset();
  EXPECT_EQ(running->Wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(waiting->Wait().reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace bellhop::engine
