#include "decode/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "decode/cuda/device_sampling.h"
#include "decode/philox.h"
#include "decode/sampling_math.h"

namespace bellhop::decode {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int32_t kMaxRepeatLastN = 1 << 20;   // longer than any supported context: ask for -1 instead
constexpr size_t kMinCandidateRoom = 512;      // room above k makes pruning rare
constexpr size_t kFirstSortedCandidates = 64;  // top_p sorts this many first, then four times as many, ...
constexpr size_t kScanBlock = 64;              // logits that a search looks at together

Status CheckRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument("{} is {}: give a number from {} to {}", field, value, low, high);
}

Status CheckFinite(std::string_view field, float value) {
  if (std::isfinite(value)) return Status();
  return InvalidArgument("{} is {}: give a finite number", field, value);
}

// Loops of this many steps become vector code; shorter ones are unrolled into scalar code instead.
constexpr size_t kScanLanes = 32;

struct RowScan {
  float max = kMinusInf;  // NaN ignored
  bool has_nan = false;
};

RowScan Scan(HostSpan<const float> logits) {
  float max[kScanLanes];
  uint32_t nan[kScanLanes] = {};
  std::fill(std::begin(max), std::end(max), kMinusInf);
  const size_t whole = logits.size() / kScanLanes * kScanLanes;
  for (size_t at = 0; at < whole; at += kScanLanes) {
    const float* const x = logits.data() + at;
    for (size_t i = 0; i < kScanLanes; ++i) {
      max[i] = x[i] > max[i] ? x[i] : max[i];
      nan[i] |= x[i] != x[i] ? 1u : 0u;
    }
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    max[0] = std::max(max[0], logits[i]);
    nan[0] |= std::isnan(logits[i]) ? 1u : 0u;
  }
  RowScan scan;
  for (size_t i = 0; i < kScanLanes; ++i) {
    scan.max = std::max(scan.max, max[i]);
    scan.has_nan = scan.has_nan || nan[i] != 0;
  }
  return scan;
}

// The first multiple of kScanBlock from `at` on whose block of logits holds one that is not below `limit`, or the
// start of a last partial block.
size_t FindBlock(HostSpan<const float> logits, size_t at, float limit) {
  for (; at + kScanBlock <= logits.size(); at += kScanBlock) {
    uint32_t found = 0;
    for (size_t i = 0; i < kScanBlock; ++i) found |= logits[at + i] >= limit ? 1u : 0u;
    if (found != 0) break;
  }
  return at;
}

// Why a row cannot be sampled; a mask, unless empty, hides logits.
Status NumericFault(HostSpan<const float> logits, HostSpan<const uint64_t> allow, std::string_view where) {
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allow.empty() && (allow[i / kScanBlock] >> (i % kScanBlock) & 1) == 0) continue;
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      if (bad++ == 0) first = i;
    }
  }
  if (bad == 0) {
    return Internal("numeric fault{}: all {} logits{} are -Inf; check logit_bias and grammar masks", where,
                    logits.size(), allow.empty() ? "" : " or those that the mask allows");
  }
  return Internal("numeric fault{}: {} of {} logits are NaN or +Inf, the first at token {}", where, bad, logits.size(),
                  first);
}

// What a mask leaves of the 64 logits from `block` on, which is a multiple of kScanBlock.
uint64_t AllowedBits(HostSpan<const uint64_t> allow, size_t block, size_t vocab) {
  const uint64_t bits = allow[block / kScanBlock];
  const size_t left = vocab - block;
  return left >= kScanBlock ? bits : bits & ((uint64_t{1} << left) - 1);
}

// The same as Scan over a row whose masked logits are -Inf.
RowScan ScanAllowed(HostSpan<const float> logits, HostSpan<const uint64_t> allow) {
  static_assert(kScanBlock == 64, "a block is one word of the mask");
  RowScan total;
  for (size_t block = 0; block < logits.size(); block += kScanBlock) {
    uint64_t bits = AllowedBits(allow, block, logits.size());
    if (bits == ~uint64_t{0}) {
      const RowScan scan = Scan(logits.subspan(block, kScanBlock));
      total.max = std::max(total.max, scan.max);
      total.has_nan = total.has_nan || scan.has_nan;
      continue;
    }
    for (; bits != 0; bits &= bits - 1) {
      const float logit = logits[block + static_cast<size_t>(std::countr_zero(bits))];
      total.max = std::max(total.max, logit);
      total.has_nan = total.has_nan || std::isnan(logit);
    }
  }
  return total;
}

// The first allowed token whose logit is `value`; there is one.
TokenId FindAllowed(HostSpan<const float> logits, HostSpan<const uint64_t> allow, float value) {
  for (size_t block = 0; block < logits.size(); block += kScanBlock) {
    for (uint64_t bits = AllowedBits(allow, block, logits.size()); bits != 0; bits &= bits - 1) {
      const size_t at = block + static_cast<size_t>(std::countr_zero(bits));
      if (logits[at] == value) return static_cast<TokenId>(at);
    }
  }
  return -1;
}

bool AllowsAny(HostSpan<const uint64_t> allow, size_t vocab) {
  for (size_t block = 0; block < vocab; block += kScanBlock) {
    if (AllowedBits(allow, block, vocab) != 0) return true;
  }
  return false;
}

bool IsFault(const RowScan& scan) { return scan.has_nan || !std::isfinite(scan.max); }

}  // namespace

Status SamplingParams::Validate() const {
  constexpr float kMax = std::numeric_limits<float>::max();
  BELLHOP_TRY(CheckRange("temperature (--temp)", temperature, 0, kMax));
  BELLHOP_TRY(CheckRange("top_p (--top-p)", top_p, 0, 1));
  BELLHOP_TRY(CheckRange("min_p (--min-p)", min_p, 0, 1));
  if (top_k < -1) return InvalidArgument("top_k (--top-k) is {}: give 1 or more, or 0 for all tokens", top_k);
  if (!(repeat_penalty > 0) || !std::isfinite(repeat_penalty)) {
    return InvalidArgument("repeat_penalty (--repeat-penalty) is {}: give a number above 0, 1 for none",
                           repeat_penalty);
  }
  BELLHOP_TRY(CheckFinite("presence_penalty (--presence-penalty)", presence_penalty));
  BELLHOP_TRY(CheckFinite("frequency_penalty (--frequency-penalty)", frequency_penalty));
  if (repeat_last_n < -1 || repeat_last_n > kMaxRepeatLastN) {
    return InvalidArgument("repeat_last_n (--repeat-last-n) is {}: give 0 to {}, or -1 for the whole context",
                           repeat_last_n, kMaxRepeatLastN);
  }
  for (const auto& [id, bias] : logit_bias) {
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return InvalidArgument("logit_bias of token {} is {}: give a finite number, or -inf to ban the token", id, bias);
    }
  }
  return Status();
}

Result<Sampler> Sampler::Create(SamplingParams params, int32_t vocab_size) {
  BELLHOP_TRY(params.Validate());
  if (vocab_size < 1 || vocab_size > kMaxSampledVocab) {
    return InvalidArgument("sampler: vocabulary of {} tokens: 1 to {} can be sampled", vocab_size, kMaxSampledVocab);
  }
  for (const auto& entry : params.logit_bias) {
    if (entry.first < 0 || entry.first >= vocab_size) {
      return InvalidArgument("logit_bias names token {}: the vocabulary has ids 0 to {}", entry.first, vocab_size - 1);
    }
  }
  return Sampler(std::move(params), vocab_size);
}

Sampler::Sampler(SamplingParams params, int32_t vocab_size) : params_(std::move(params)), vocab_size_(vocab_size) {
  std::stable_sort(params_.logit_bias.begin(), params_.logit_bias.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t vocab = static_cast<size_t>(vocab_size);
  size_t penalized = 0;  // distinct tokens that penalties can change in one call
  if (params_.HasPenalties()) {
    counts_.resize(vocab);
    penalized = vocab;
    if (params_.repeat_last_n > 0) {
      window_.resize(static_cast<size_t>(params_.repeat_last_n));
      penalized = std::min(vocab, window_.size());
    }
  }
  changes_.reserve(params_.logit_bias.size() + penalized);
  if (params_.IsGreedy()) return;
  candidate_room_ = vocab;
  if (params_.top_k > 0) {
    candidate_room_ = std::min(vocab, std::max(2 * static_cast<size_t>(params_.top_k), kMinCandidateRoom));
  }
  candidates_.reserve(candidate_room_);
  weights_.reserve(candidate_room_);
}

void Sampler::Accept(TokenId token) {
  if (counts_.empty() || token < 0 || token >= vocab_size_) return;
  if (!window_.empty()) {
    if (window_used_ == window_.size()) {
      --counts_[static_cast<size_t>(window_[window_next_])];
    } else {
      ++window_used_;
    }
    window_[window_next_] = token;
    window_next_ = (window_next_ + 1) % window_.size();
  }
  ++counts_[static_cast<size_t>(token)];
}

void Sampler::Reset(HostSpan<const TokenId> history) {
  std::fill(counts_.begin(), counts_.end(), 0);
  window_used_ = 0;
  window_next_ = 0;
  for (TokenId token : history) Accept(token);
}

void Sampler::SetLogit(HostSpan<float> logits, TokenId id, float value) {
  float& logit = logits[static_cast<size_t>(id)];
  changes_.push_back({id, logit});
  logit = value;
}

void Sampler::Penalize(HostSpan<float> logits, TokenId id) {
  const float count = static_cast<float>(counts_[static_cast<size_t>(id)]);
  float logit = logits[static_cast<size_t>(id)];
  logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
  logit -= count * params_.frequency_penalty + params_.presence_penalty;
  SetLogit(logits, id, logit);
}

template <typename Fn>
void Sampler::ForEachPenalized(const Fn& fn) {
  if (counts_.empty()) return;
  if (window_.empty() || window_used_ >= counts_.size()) {
    for (TokenId id = 0; id < vocab_size_; ++id) {
      if (counts_[static_cast<size_t>(id)] > 0) fn(id, counts_[static_cast<size_t>(id)]);
    }
    return;
  }
  // A handled token's count is negative until the window has been walked, so that it is handled once.
  for (size_t i = 0; i < window_used_; ++i) {
    int32_t& count = counts_[static_cast<size_t>(window_[i])];
    if (count <= 0) continue;
    fn(window_[i], count);
    count = -count;
  }
  for (size_t i = 0; i < window_used_; ++i) {
    int32_t& count = counts_[static_cast<size_t>(window_[i])];
    count = std::abs(count);
  }
}

void Sampler::ApplyBiasAndPenalties(HostSpan<float> logits) {
  for (const auto& [id, bias] : params_.logit_bias) SetLogit(logits, id, logits[static_cast<size_t>(id)] + bias);
  ForEachPenalized([&](TokenId id, int32_t) { Penalize(logits, id); });
}

int32_t Sampler::CopyPenalized(TokenCount* to, int32_t room) {
  int32_t used = 0;
  ForEachPenalized([&](TokenId id, int32_t count) {
    if (used < room) to[used] = {id, count};
    ++used;
  });
  return used <= room ? used : -1;
}

Result<TokenId> Sampler::Sample(HostSpan<float> logits, uint64_t sequence, uint64_t position,
                                HostSpan<const uint64_t> allow) {
  if (logits.size() != static_cast<size_t>(vocab_size_)) {
    return InvalidArgument("sampler: {} logits for a vocabulary of {}", logits.size(), vocab_size_);
  }
  if (!allow.empty() && allow.size() < (logits.size() + kScanBlock - 1) / kScanBlock) {
    return InvalidArgument("sampler: a mask of {} words for a vocabulary of {}", allow.size(), vocab_size_);
  }
  changes_.clear();
  ApplyBiasAndPenalties(logits);
  Result<TokenId> token = Choose(logits, sequence, position, allow);
  for (size_t i = changes_.size(); i-- > 0;) logits[static_cast<size_t>(changes_[i].id)] = changes_[i].original;
  return token;
}

Result<TokenId> Sampler::Choose(HostSpan<float> logits, uint64_t sequence, uint64_t position,
                                HostSpan<const uint64_t> allow) {
  const RowScan scan = allow.empty() ? Scan(logits) : ScanAllowed(logits, allow);
  if (IsFault(scan)) {
    const std::string where = fmt::format(" at position {} of sequence {}", position, sequence);
    if (!allow.empty() && !AllowsAny(allow, logits.size())) {
      return InvalidArgument(
          "sampler{}: the mask allows none of {} tokens: the grammar has no continuation that this vocabulary can "
          "spell; check the grammar",
          where, vocab_size_);
    }
    return NumericFault(logits, allow, where);
  }
  if (params_.IsGreedy()) {
    if (!allow.empty()) return FindAllowed(logits, allow, scan.max);
    const size_t block = FindBlock(logits, 0, scan.max);
    return static_cast<TokenId>(std::find(logits.begin() + block, logits.end(), scan.max) - logits.begin());
  }
  CollectTopK(logits, allow);
  // top_p and min_p each keep a prefix of the descending order, so min_p may go first and leave less to sort; the mass
  // that top_p refers to is that of all candidates.
  const uint64_t mass = params_.top_p < 1.0f ? NeededWeight(params_.top_p, Mass(scan.max)) : 0;
  if (params_.min_p > 0.0f) KeepMinP(scan.max);
  if (params_.top_p < 1.0f) KeepMass(scan.max, mass);
  return Draw(scan.max, UniformAt(params_.seed, sequence, position));
}

// Rows are scanned in id order, so an entry equal to the worst kept one has a higher id and loses.
void Sampler::CollectTopK(HostSpan<const float> logits, HostSpan<const uint64_t> allow) {
  candidates_.clear();
  const size_t k = params_.top_k > 0 ? std::min(static_cast<size_t>(params_.top_k), logits.size()) : logits.size();
  float threshold = kMinusInf;
  const auto prune = [&] {
    const auto kth = candidates_.begin() + static_cast<ptrdiff_t>(k) - 1;
    std::nth_element(candidates_.begin(), kth, candidates_.end(), Better);
    threshold = kth->logit;
    candidates_.resize(k);
  };
  for (size_t block = FindBlock(logits, 0, threshold); block < logits.size();
       block = FindBlock(logits, block + kScanBlock, threshold)) {
    const size_t end = std::min(block + kScanBlock, logits.size());
    for (size_t i = block; i < end; ++i) {
      if (!(logits[i] > threshold)) continue;
      if (!allow.empty() && (allow[i / kScanBlock] >> (i % kScanBlock) & 1) == 0) continue;
      if (candidates_.size() == candidate_room_) prune();  // with less room than the vocabulary, at least 2k
      if (logits[i] > threshold) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    }
  }
  if (candidates_.size() > k) prune();
}

uint64_t Sampler::Mass(float max) const {
  uint64_t mass = 0;
  for (const Candidate& c : candidates_) mass += SampleWeight(static_cast<double>(c.logit) - max);
  return mass;
}

void Sampler::KeepMass(float max, uint64_t mass) {
  uint64_t sum = 0;
  size_t sorted = 0;
  for (size_t chunk = kFirstSortedCandidates; sorted < candidates_.size(); chunk *= 4) {
    const size_t end = std::min(candidates_.size(), sorted + chunk);
    const auto first = candidates_.begin() + static_cast<ptrdiff_t>(sorted);
    const auto last = candidates_.begin() + static_cast<ptrdiff_t>(end);
    if (last != candidates_.end()) std::nth_element(first, last, candidates_.end(), Better);
    std::sort(first, last, Better);
    for (; sorted < end; ++sorted) {
      sum += SampleWeight(static_cast<double>(candidates_[sorted].logit) - max);
      if (sum >= mass) {
        candidates_.resize(sorted + 1);
        return;
      }
    }
  }
}

void Sampler::KeepMinP(float max) {
  const double lowest = max + std::log(static_cast<double>(params_.min_p));
  const auto unlikely = [lowest](const Candidate& c) { return c.logit < lowest; };
  candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), unlikely), candidates_.end());
}

TokenId Sampler::Draw(float max, double uniform) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (!std::is_sorted(candidates_.begin(), candidates_.end(), by_id)) {
    std::sort(candidates_.begin(), candidates_.end(), by_id);
  }
  weights_.clear();
  uint64_t total = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(SampleWeight((static_cast<double>(c.logit) - max) / params_.temperature));
    total += weights_.back();
  }
  const uint64_t target = DrawTarget(uniform, total);
  uint64_t sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += weights_[i];
    if (sum > target) return candidates_[i].id;
  }
  // Not reached: the last sum is `total` itself, which is not 0, and uniform < 1.
  return candidates_.back().id;
}

Result<float> TopLogprobs(HostSpan<const float> logits, TokenId chosen, HostSpan<TokenLogprob> top) {
  if (chosen < 0 || static_cast<size_t>(chosen) >= logits.size()) {
    return InvalidArgument("log probabilities: token {} is outside the vocabulary of {}", chosen, logits.size());
  }
  const RowScan scan = Scan(logits);
  if (IsFault(scan)) return NumericFault(logits, {}, "");
  for (TokenLogprob& entry : top) entry = {-1, kMinusInf};
  double total = 0;
  size_t used = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    total += std::exp(static_cast<double>(logits[i]) - scan.max);
    if (used == top.size() && (used == 0 || !(logits[i] > top[used - 1].logprob))) continue;
    // Insertion from below; an equal entry has a lower id and stays in front.
    size_t at = used < top.size() ? used++ : used - 1;
    for (; at > 0 && logits[i] > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {static_cast<TokenId>(i), logits[i]};
  }
  const double log_total = std::log(total);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - scan.max - log_total);
  };
  for (size_t i = 0; i < used; ++i) top[i].logprob = logprob(top[i].logprob);
  return logprob(logits[static_cast<size_t>(chosen)]);
}

}  // namespace bellhop::decode
