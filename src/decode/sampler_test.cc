#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/counting_new_for_test.h"
#include "decode/cuda/device_sampling.h"
#include "decode/philox.h"

namespace bellhop::decode {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// All stages off: draws from softmax(logits).
SamplingParams Plain() {
  return {.temperature = 1, .top_p = 1, .min_p = 0, .top_k = 0, .repeat_last_n = 0, .seed = 1234};
}

Sampler Make(const SamplingParams& params, size_t vocab) {
  Result<Sampler> sampler = Sampler::Create(params, static_cast<int32_t>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
  return std::move(sampler).value();
}

TokenId SampleAt(Sampler& sampler, std::vector<float> logits, uint64_t position, uint64_t sequence = 0) {
  const std::vector<float> before = logits;
  const Result<TokenId> token = sampler.Sample(logits, sequence, position);
  EXPECT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_EQ(logits, before) << "the row must have its values back";
  return token.ok() ? *token : -1;
}

std::map<TokenId, int> Draw(Sampler& sampler, const std::vector<float>& logits, int draws) {
  std::map<TokenId, int> counts;
  std::vector<float> row = logits;
  for (int i = 0; i < draws; ++i) {
    const Result<TokenId> token = sampler.Sample(row, 3, static_cast<uint64_t>(i));
    EXPECT_TRUE(token.ok());
    ++counts[*token];
  }
  return counts;
}

std::set<TokenId> Support(Sampler& sampler, const std::vector<float>& logits, int draws = 2000) {
  std::set<TokenId> support;
  for (const auto& [id, count] : Draw(sampler, logits, draws)) support.insert(id);
  return support;
}

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<float> RandomLogits(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0, 3);
  std::vector<float> logits(n);
  for (float& l : logits) l = dist(rng);
  return logits;
}

TEST(SamplingParamsTest, RefusesWhatIsOutOfRange) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = params.Validate();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  using P = SamplingParams&;
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(SamplingParams().Validate().ok());
  for (float bad : {-0.1f, kNan, kInf}) {
    EXPECT_TRUE(has(message([&](P p) { p.temperature = bad; }), "--temp"));
    EXPECT_TRUE(has(message([&](P p) { p.top_p = bad; }), "--top-p"));
    EXPECT_TRUE(has(message([&](P p) { p.min_p = bad; }), "--min-p"));
    EXPECT_TRUE(has(message([&](P p) { p.repeat_penalty = bad; }), "--repeat-penalty"));
  }
  EXPECT_TRUE(has(message([](P p) { p.top_p = 1.5f; }), "1.5"));
  EXPECT_TRUE(has(message([](P p) { p.min_p = 1.01f; }), "from 0 to 1"));
  EXPECT_TRUE(has(message([](P p) { p.repeat_penalty = 0; }), "--repeat-penalty"));
  EXPECT_TRUE(has(message([](P p) { p.top_k = -2; }), "--top-k"));
  EXPECT_TRUE(has(message([](P p) { p.repeat_last_n = -2; }), "--repeat-last-n"));
  EXPECT_TRUE(has(message([](P p) { p.repeat_last_n = 1 << 30; }), "--repeat-last-n"));
  for (float bad : {kNan, kInf, -kInf}) {
    EXPECT_TRUE(has(message([&](P p) { p.presence_penalty = bad; }), "presence_penalty"));
    EXPECT_TRUE(has(message([&](P p) { p.frequency_penalty = bad; }), "frequency_penalty"));
  }
  for (float bad : {kNan, kInf}) EXPECT_TRUE(has(message([&](P p) { p.logit_bias = {{3, bad}}; }), "token 3"));
  SamplingParams banned;
  banned.logit_bias = {{3, -kInf}};
  EXPECT_TRUE(banned.Validate().ok());
}

TEST(SamplerTest, RefusesBadVocabulariesAndRows) {
  SamplingParams params = Plain();
  EXPECT_EQ(Sampler::Create(params, 0).status().code(), StatusCode::kInvalidArgument);
  params.logit_bias = {{10, 1.0f}};
  const Result<Sampler> out_of_range = Sampler::Create(params, 10);
  EXPECT_EQ(out_of_range.status().message(), "logit_bias names token 10: the vocabulary has ids 0 to 9");
  params.logit_bias = {{-1, 1.0f}};
  EXPECT_FALSE(Sampler::Create(params, 10).ok());
  Sampler sampler = Make(Plain(), 10);
  std::vector<float> nine(9);
  EXPECT_EQ(sampler.Sample(nine, 0, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(SamplerTest, BadRowsAreNumericFaults) {
  for (bool greedy : {false, true}) {
    SamplingParams params;
    params.greedy = greedy;
    params.repeat_penalty = 1.1f;
    params.logit_bias = {{2, 1.0f}};
    Sampler sampler = Make(params, 200);
    sampler.Accept(5);
    for (float bad : {kNan, kInf}) {
      for (size_t at : {size_t{0}, size_t{5}, size_t{130}, size_t{199}}) {
        std::vector<float> row = RandomLogits(200, 1);
        const std::vector<float> clean = row;
        row[at] = bad;
        const Result<TokenId> token = sampler.Sample(row, 9, 17);
        ASSERT_FALSE(token.ok());
        EXPECT_EQ(token.status().code(), StatusCode::kInternal);
        EXPECT_NE(token.status().message().find("numeric fault at position 17 of sequence 9"), std::string::npos);
        EXPECT_NE(token.status().message().find("token " + std::to_string(at)), std::string::npos);
        row[at] = clean[at];
        EXPECT_EQ(row, clean);
      }
    }
    std::vector<float> nothing(200, -kInf);
    const Result<TokenId> none = sampler.Sample(nothing, 0, 1);
    ASSERT_FALSE(none.ok());
    EXPECT_NE(none.status().message().find("-Inf"), std::string::npos);
    EXPECT_GE(SampleAt(sampler, RandomLogits(200, 1), 0), 0) << "a fault must not poison the sampler";
  }
}

TEST(SamplerTest, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  SamplingParams params;
  params.temperature = 0;
  params.top_k = 1;
  Sampler by_temperature = Make(params, 6);
  params.temperature = 5;
  params.greedy = true;
  Sampler by_flag = Make(params, 6);
  for (Sampler* sampler : {&by_temperature, &by_flag}) {
    for (uint64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(SampleAt(*sampler, {-1, 3, 2, 3, 3, -kInf}, position), 1);
      EXPECT_EQ(SampleAt(*sampler, {-0.0f, 0.0f, -1, -2, -3, -4}, position), 0);
      EXPECT_EQ(SampleAt(*sampler, {-9, -8, -7, -6, -5, -5}, position), 4);
    }
  }
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<double> p = {0.35, 0.25, 0.15, 0.1, 0.08, 0.04, 0.02, 0.01};
  constexpr int kDraws = 200000;
  for (float temperature : {1.0f, 0.5f, 2.0f}) {
    SamplingParams params = Plain();
    params.temperature = temperature;
    std::vector<double> want;
    double sum = 0;
    for (double x : p) sum += want.emplace_back(std::pow(x, 1.0 / temperature));
    Sampler sampler = Make(params, p.size());
    std::map<TokenId, int> counts = Draw(sampler, LogitsOf(p), kDraws);
    double chi_square = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = kDraws * want[i] / sum;
      chi_square += std::pow(counts[static_cast<TokenId>(i)] - expected, 2) / expected;
    }
    EXPECT_LT(chi_square, 24.3) << "temperature " << temperature;  // 7 degrees of freedom, 0.1 %
  }
}

TEST(SamplerTest, DrawsAreRepeatableAndDependOnSeedSequenceAndPosition) {
  const std::vector<float> logits(1000, 0.0f);  // uniform: the draw shows the random number
  Sampler a = Make(Plain(), 1000), b = Make(Plain(), 1000);
  SamplingParams other = Plain();
  other.seed = 1235;
  Sampler c = Make(other, 1000);
  int same_sequence = 0, same_seed = 0, same_position = 0;
  for (uint64_t position = 0; position < 500; ++position) {
    const TokenId token = SampleAt(a, logits, position, 1);
    EXPECT_EQ(token, static_cast<TokenId>(UniformAt(1234, 1, position) * 1000));
    EXPECT_EQ(SampleAt(a, logits, position, 1), token) << "asking again";
    same_sequence += SampleAt(a, logits, position, 2) == token ? 1 : 0;
    same_seed += SampleAt(c, logits, position, 1) == token ? 1 : 0;
    same_position += SampleAt(a, logits, position + 1, 1) == token ? 1 : 0;
  }
  for (uint64_t position = 500; position-- > 0;) {  // in another order, by another object
    EXPECT_EQ(SampleAt(b, logits, position, 1), SampleAt(a, logits, position, 1));
  }
  for (int same : {same_sequence, same_seed, same_position}) EXPECT_LT(same, 6);  // 0.5 expected
}

TEST(SamplerTest, TopKKeepsTheLargest) {
  for (size_t vocab : {size_t{5}, size_t{700}, size_t{5000}}) {
    for (int32_t k : {1, 2, 3, 40, 300, 4999, 100000}) {
      for (int shape = 0; shape < 4; ++shape) {
        std::vector<float> logits = RandomLogits(vocab, static_cast<uint32_t>(k) + static_cast<uint32_t>(shape));
        if (shape == 1) std::sort(logits.begin(), logits.end());  // ascending: every entry displaces one
        if (shape == 2) std::sort(logits.rbegin(), logits.rend());
        if (shape == 3) {
          for (float& l : logits) l = std::round(l);  // many ties: the lower id stays
        }
        std::vector<TokenId> order(vocab);
        for (size_t i = 0; i < vocab; ++i) order[i] = static_cast<TokenId>(i);
        std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        order.resize(std::min(vocab, static_cast<size_t>(k)));
        std::sort(order.begin(), order.end());
        // At a huge temperature every kept token is equally likely, so the draw is an index into the kept set.
        SamplingParams params = Plain();
        params.top_k = k;
        params.temperature = 1e30f;
        Sampler sampler = Make(params, vocab);
        for (uint64_t position = 0; position < 30; ++position) {
          const size_t index = static_cast<size_t>(UniformAt(1234, 0, position) * static_cast<double>(order.size()));
          ASSERT_EQ(SampleAt(sampler, logits, position), order[index]) << vocab << " " << k << " " << shape;
        }
      }
    }
  }
}

TEST(SamplerTest, TopPKeepsTheShortestSufficientPrefix) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  const auto support = [&](float p) {
    SamplingParams params = Plain();
    params.top_p = p;
    Sampler sampler = Make(params, logits.size());
    return Support(sampler, logits);
  };
  EXPECT_EQ(support(0.0f), (std::set<TokenId>{1}));
  EXPECT_EQ(support(0.39f), (std::set<TokenId>{1}));
  EXPECT_EQ(support(0.41f), (std::set<TokenId>{1, 3}));
  EXPECT_EQ(support(0.69f), (std::set<TokenId>{1, 3}));
  EXPECT_EQ(support(0.71f), (std::set<TokenId>{1, 2, 3}));
  EXPECT_EQ(support(0.95f), (std::set<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(support(1.0f), (std::set<TokenId>{0, 1, 2, 3}));
}

TEST(SamplerTest, TopPWithTiesAndWithAllMassOnOneToken) {
  SamplingParams params = Plain();
  params.top_p = 0.5f;
  Sampler sampler = Make(params, 4);
  EXPECT_EQ(Support(sampler, {1, 1, 1, 1}), (std::set<TokenId>{0, 1}));  // exactly half, lowest ids
  EXPECT_EQ(Support(sampler, {-kInf, -kInf, 4, -kInf}), (std::set<TokenId>{2}));
  EXPECT_EQ(Support(sampler, {0, 0, 1000, 0}), (std::set<TokenId>{2}));
  params.top_p = 1.0f;
  params.min_p = 0.05f;
  Sampler by_min_p = Make(params, 4);
  EXPECT_EQ(Support(by_min_p, {0, 0, 1000, 0}), (std::set<TokenId>{2}));
}

// Without top_k the prefix may be longer than what top_p sorts at first.
TEST(SamplerTest, TopPOverAWideVocabulary) {
  const size_t vocab = 3000;
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i) logits[(i * 7) % vocab] = -0.001f * static_cast<float>(i);
  std::vector<size_t> by_rank(vocab);
  for (size_t i = 0; i < vocab; ++i) by_rank[i] = (i * 7) % vocab;
  for (float p : {0.01f, 0.3f, 0.9f}) {
    double total = 0, sum = 0;
    for (float l : logits) total += std::exp(l);
    std::vector<TokenId> kept;
    for (size_t rank = 0; rank < vocab && sum < p * total; ++rank) {
      sum += std::exp(logits[by_rank[rank]]);
      kept.push_back(static_cast<TokenId>(by_rank[rank]));
    }
    std::sort(kept.begin(), kept.end());
    SamplingParams params = Plain();
    params.top_p = p;
    params.temperature = 1e30f;
    Sampler sampler = Make(params, vocab);
    for (uint64_t position = 0; position < 50; ++position) {
      const double at = UniformAt(1234, 0, position) * static_cast<double>(kept.size());
      EXPECT_EQ(SampleAt(sampler, logits, position), kept[static_cast<size_t>(at)]) << p;
    }
  }
}

TEST(SamplerTest, MinPIsRelativeToTheLikeliest) {
  const std::vector<float> logits = LogitsOf({0.5, 0.26, 0.14, 0.1});
  const auto support = [&](float p) {
    SamplingParams params = Plain();
    params.min_p = p;
    Sampler sampler = Make(params, logits.size());
    return Support(sampler, logits);
  };
  EXPECT_EQ(support(0.0f), (std::set<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(support(0.19f), (std::set<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(support(0.25f), (std::set<TokenId>{0, 1, 2}));
  EXPECT_EQ(support(0.5f), (std::set<TokenId>{0, 1}));
  EXPECT_EQ(support(1.0f), (std::set<TokenId>{0}));
  SamplingParams params = Plain();
  params.min_p = 1.0f;
  Sampler sampler = Make(params, 3);
  EXPECT_EQ(Support(sampler, {2, 2, 1}), (std::set<TokenId>{0, 1}));  // ties with the likeliest stay
}

// top_p looks at the distribution before temperature: a high temperature does not widen it.
TEST(SamplerTest, TemperatureComesLast) {
  SamplingParams params = Plain();
  params.top_p = 0.6f;
  params.temperature = 100;
  Sampler sampler = Make(params, 3);
  EXPECT_EQ(Support(sampler, LogitsOf({0.7, 0.2, 0.1})), (std::set<TokenId>{0}));
  params.top_p = 1.0f;
  params.temperature = 1e-30f;  // as good as greedy, without overflow
  Sampler cold = Make(params, 3);
  EXPECT_EQ(Support(cold, {1.0f, 1.001f, -5.0f}), (std::set<TokenId>{1}));
}

TEST(SamplerTest, PenaltiesUseSignCountAndWindow) {
  SamplingParams params;
  params.greedy = true;
  params.repeat_penalty = 2;
  params.repeat_last_n = 3;
  Sampler sampler = Make(params, 4);
  const std::vector<float> positive = {4.0f, 3.0f, 2.5f, 0}, negative = {-1.0f, -1.5f, -3, -3};
  EXPECT_EQ(SampleAt(sampler, positive, 0), 0);
  sampler.Accept(0);
  EXPECT_EQ(SampleAt(sampler, positive, 1), 1);  // 4 / 2 = 2
  EXPECT_EQ(SampleAt(sampler, negative, 1), 1);  // -1 * 2 = -2
  sampler.Accept(0);
  EXPECT_EQ(SampleAt(sampler, {7.0f, 3.0f, 0, 0}, 2), 0);  // once per token: 3.5, not 1.75
  sampler.Accept(3);
  sampler.Accept(3);
  EXPECT_EQ(SampleAt(sampler, positive, 4), 1);  // one 0 is still among the last three
  sampler.Accept(3);
  EXPECT_EQ(SampleAt(sampler, positive, 5), 0);  // it has left

  params.repeat_penalty = 1;
  params.frequency_penalty = 0.75f;
  params.presence_penalty = 0.5f;
  params.repeat_last_n = -1;
  Sampler whole = Make(params, 4);
  whole.Accept(0);
  EXPECT_EQ(SampleAt(whole, {4.0f, 2.7f, 0, 0}, 1), 0);  // 4 - 0.75 - 0.5 = 2.75
  whole.Accept(0);
  EXPECT_EQ(SampleAt(whole, {4.0f, 2.1f, 0, 0}, 2), 1);  // 4 - 1.5 - 0.5 = 2
  for (int i = 0; i < 10000; ++i) whole.Accept(3);
  EXPECT_EQ(SampleAt(whole, {4.0f, 2.1f, 0, 0}, 2), 1);  // nothing is forgotten
  whole.Reset({});
  EXPECT_EQ(SampleAt(whole, {4.0f, 2.1f, 0, 0}, 2), 0);

  params.repeat_last_n = 0;
  Sampler off = Make(params, 4);
  for (int i = 0; i < 10; ++i) off.Accept(0);
  EXPECT_EQ(SampleAt(off, {4.0f, 3.99f, 0, 0}, 1), 0);
}

TEST(SamplerTest, PenalizedTokensAreThoseOfTheWindow) {
  const auto counts = [](Sampler& sampler, int32_t room) {
    std::vector<TokenCount> tokens(8);
    const int32_t used = sampler.CopyPenalized(tokens.data(), room);
    std::map<TokenId, int32_t> found;
    for (int32_t i = 0; i < used; ++i) found[tokens[static_cast<size_t>(i)].id] = tokens[static_cast<size_t>(i)].count;
    EXPECT_EQ(found.size(), static_cast<size_t>(std::max(used, 0)));
    return std::pair(used, found);
  };
  using Counts = std::map<TokenId, int32_t>;
  for (const int32_t last_n :
       {4, -1, 64}) {  // a window, the whole context, and one that holds more than the vocabulary
    SamplingParams params;
    params.presence_penalty = 1;
    params.repeat_last_n = last_n;
    Sampler sampler = Make(params, 6);
    for (const TokenId id : {0, 0, 5, 3, 5, 5}) sampler.Accept(id);
    const Counts expected = last_n == 4 ? Counts{{3, 1}, {5, 3}} : Counts{{0, 2}, {3, 1}, {5, 3}};
    EXPECT_EQ(counts(sampler, 8).second, expected) << last_n;
    EXPECT_EQ(counts(sampler, static_cast<int32_t>(expected.size())).second, expected) << last_n;
    EXPECT_EQ(counts(sampler, static_cast<int32_t>(expected.size()) - 1).first, -1) << last_n;
    EXPECT_EQ(counts(sampler, 8).second, expected) << "asking changes nothing: " << last_n;
  }
  Sampler none = Make(Plain(), 6);
  none.Accept(1);
  EXPECT_EQ(counts(none, 0).first, 0);
}

TEST(SamplerTest, ResetReplaysHistoryAndIgnoresForeignIds) {
  SamplingParams params;
  params.greedy = true;
  params.presence_penalty = 10;
  params.repeat_last_n = 2;
  Sampler sampler = Make(params, 4);
  for (TokenId id : {3, 3, 3}) sampler.Accept(id);
  const std::vector<TokenId> history = {0, 1, -1, 2, 77};
  sampler.Reset(history);
  EXPECT_EQ(SampleAt(sampler, {5, 4, 3, 2}, 0), 0);  // the window holds 1 and 2
  EXPECT_EQ(SampleAt(sampler, {1, 4, 3, 2}, 0), 3);
}

TEST(SamplerTest, BiasComesFirstAndBans) {
  SamplingParams params;
  params.greedy = true;
  params.logit_bias = {{0, -kInf}, {2, 1.5f}, {2, 1.5f}};
  Sampler sampler = Make(params, 4);
  EXPECT_EQ(SampleAt(sampler, {100, 5, 2.5f, 0}, 0), 2);
  EXPECT_EQ(SampleAt(sampler, {100, 5, 1.5f, 0}, 0), 1);
  params = Plain();
  params.logit_bias = {{1, -kInf}};
  Sampler drawing = Make(params, 3);
  EXPECT_EQ(Support(drawing, {0, 50, 0}), (std::set<TokenId>{0, 2}));
}

TEST(SamplerTest, SteadyStateAllocatesNothing) {
  const size_t vocab = 20000;
  std::vector<float> logits = RandomLogits(vocab, 8);
  std::vector<TokenId> history(300);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<TokenId>(i * 31);
  std::vector<TokenLogprob> top(20);
  std::vector<SamplingParams> settings(6);
  settings[1].top_k = 0;
  settings[2] = Plain();
  settings[3].repeat_penalty = 1.2f;
  settings[3].logit_bias = {{5, 1.0f}, {6, -kInf}};
  settings[4].repeat_penalty = 1.2f;
  settings[4].repeat_last_n = -1;
  settings[5].greedy = true;
  for (const SamplingParams& params : settings) {
    Sampler sampler = Make(params, vocab);
    const int64_t before = AllocationCount();
    int64_t sum = 0;
    for (uint64_t position = 0; position < 30; ++position) {
      const Result<TokenId> token = sampler.Sample(logits, 1, position);
      ASSERT_TRUE(token.ok());
      sampler.Accept(*token);
      if (position == 10) sampler.Reset(history);
      const Result<float> logprob = TopLogprobs(logits, *token, top);
      ASSERT_TRUE(logprob.ok());
      sum += *token;
    }
    EXPECT_EQ(AllocationCount() - before, 0) << "setting " << (&params - settings.data());
    EXPECT_GE(sum, 0);
  }
  const int64_t before = AllocationCount();
  std::vector<int>(100).swap(*std::make_unique<std::vector<int>>());
  EXPECT_GT(AllocationCount() - before, 0) << "the counter counts nothing";
}

TEST(TopLogprobsTest, MatchesLogSoftmax) {
  const std::vector<float> logits = {1, 3, -kInf, 3, 2, 0};
  double total = 0;
  for (float l : logits) total += std::exp(l);
  std::vector<TokenLogprob> top(4);
  const Result<float> chosen = TopLogprobs(logits, 4, top);
  ASSERT_TRUE(chosen.ok());
  EXPECT_NEAR(*chosen, 2 - std::log(total), 1e-6);
  const std::vector<TokenId> want = {1, 3, 4, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(top[i].id, want[i]);
    EXPECT_NEAR(top[i].logprob, logits[static_cast<size_t>(want[i])] - std::log(total), 1e-6);
  }
  const Result<float> masked = TopLogprobs(logits, 2, {});
  ASSERT_TRUE(masked.ok());
  EXPECT_EQ(*masked, -kInf);
}

TEST(TopLogprobsTest, AgreesWithASortOnLargeRows) {
  std::vector<float> logits = RandomLogits(5000, 3);
  for (float& l : logits) l = std::round(l * 4) / 4;  // ties
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  std::vector<TokenLogprob> top(20);
  ASSERT_TRUE(TopLogprobs(logits, 0, top).ok());
  double mass = 0;
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(top[i].id, order[i]);
    mass += std::exp(top[i].logprob);
  }
  EXPECT_LT(mass, 1.0);
  std::vector<TokenLogprob> all(7);
  ASSERT_TRUE(TopLogprobs(std::vector<float>{1, 2, 3}, 0, all).ok());
  mass = 0;
  for (size_t i = 0; i < 3; ++i) mass += std::exp(all[i].logprob);
  EXPECT_NEAR(mass, 1.0, 1e-6);
  for (size_t i = 3; i < 7; ++i) EXPECT_EQ(all[i].id, -1);
}

TEST(TopLogprobsTest, RefusesBadInput) {
  EXPECT_EQ(TopLogprobs(std::vector<float>{1, 2}, 2, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TopLogprobs(std::vector<float>{1, 2}, -1, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TopLogprobs(std::vector<float>{1, kNan}, 0, {}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(TopLogprobs(std::vector<float>{-kInf, -kInf}, 0, {}).status().code(), StatusCode::kInternal);
}

std::vector<uint64_t> MaskOf(const std::vector<TokenId>& ids, size_t vocab) {
  std::vector<uint64_t> mask((vocab + 63) / 64, 0);
  for (const TokenId id : ids) mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  return mask;
}

TEST(SamplerMask, EqualsMinusInfinityInTheRow) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  for (const size_t vocab : {1u, 63u, 64u, 65u, 200u, 1000u}) {
    for (const int kept_percent : {2, 50, 100}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits) logit = normal(random);
      std::vector<TokenId> allowed = {static_cast<TokenId>(random() % vocab)};
      for (size_t i = 0; i < vocab; ++i) {
        if (static_cast<int>(random() % 100) < kept_percent) allowed.push_back(static_cast<TokenId>(i));
      }
      const std::vector<uint64_t> mask = MaskOf(allowed, vocab);
      std::vector<float> banned = logits;
      for (size_t i = 0; i < vocab; ++i) {
        if ((mask[i / 64] >> (i % 64) & 1) == 0) banned[i] = -kInf;
      }
      SamplingParams with_stages = {.temperature = 0.7f, .repeat_penalty = 1.3f, .seed = 5};
      with_stages.logit_bias = {{0, 2.5f}, {static_cast<TokenId>(vocab - 1), -1.0f}};
      for (const SamplingParams& params : {Plain(), with_stages, SamplingParams{.greedy = true}}) {
        Sampler masked = Make(params, vocab), reference = Make(params, vocab);
        for (uint64_t position = 0; position < 40; ++position) {
          std::vector<float> row = logits;
          const Result<TokenId> token = masked.Sample(row, 7, position, mask);
          ASSERT_TRUE(token.ok()) << token.status().ToString();
          EXPECT_EQ(row, logits);
          EXPECT_EQ(*token, SampleAt(reference, banned, position, 7));
          masked.Accept(*token);
          reference.Accept(*token);
        }
      }
    }
  }
}

TEST(SamplerMask, IgnoresWhatItHidesAndSaysWhenNothingIsLeft) {
  for (const bool greedy : {false, true}) {
    SamplingParams params = Plain();
    params.greedy = greedy;
    params.logit_bias = {{3, -kInf}};
    Sampler sampler = Make(params, 70);
    std::vector<float> logits(70, 0.0f);
    logits[1] = kNan;
    logits[69] = kInf;
    EXPECT_EQ(*sampler.Sample(logits, 0, 0, MaskOf({66}, 70)), 66);
    Result<TokenId> token = sampler.Sample(logits, 0, 0, MaskOf({1, 2}, 70));
    EXPECT_EQ(token.status().code(), StatusCode::kInternal);
    EXPECT_NE(token.status().message().find("the first at token 1"), std::string::npos);
    token = sampler.Sample(logits, 0, 0, MaskOf({}, 70));
    EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(token.status().message().find("allows none of 70 tokens"), std::string::npos);
    std::vector<uint64_t> beyond = MaskOf({}, 70);
    beyond[1] = uint64_t{1} << 6;  // token 70
    EXPECT_EQ(sampler.Sample(logits, 0, 0, beyond).status().code(), StatusCode::kInvalidArgument);
    token = sampler.Sample(logits, 0, 0, MaskOf({3}, 70));
    EXPECT_EQ(token.status().code(), StatusCode::kInternal);
    EXPECT_NE(token.status().message().find("that the mask allows"), std::string::npos);
    EXPECT_EQ(sampler.Sample(logits, 0, 0, MaskOf({3}, 64)).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(SamplerMask, AllocatesNothing) {
  SamplingParams params = {.seed = 1};
  Sampler sampler = Make(params, 500);
  std::vector<float> logits(500, 1.0f);
  const std::vector<uint64_t> mask = MaskOf({4, 70, 499}, 500);
  const int64_t before = AllocationCount();
  for (uint64_t position = 0; position < 50; ++position) {
    const Result<TokenId> token = sampler.Sample(logits, 0, position, mask);
    ASSERT_TRUE(token.ok());
  }
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace bellhop::decode
