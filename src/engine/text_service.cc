#include "engine/text_service.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/sequence_slots.h"
#include "engine/text_engine_impl.h"
#include "sys/clock.h"

namespace bellhop::engine {
namespace {

// While others generate, a prompt's chunk may take this many times as long as a decode step.
constexpr double kChunkSteps = 4;
constexpr int32_t kMinChunkRows = 16;
constexpr int64_t kRateWindowNs = 2'000'000'000;
constexpr std::chrono::milliseconds kSnapshotWait(200);

double Milliseconds(int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) / 1e6; }

// Tokens per second over a window that slides by halves.
class RateMeter {
 public:
  void Add(int64_t now_ns, int32_t tokens) {
    Advance(now_ns);
    tokens_ += tokens;
  }
  double Rate(int64_t now_ns) {
    Advance(now_ns);
    const int64_t span = (now_ns - start_ns_) + (has_previous_ ? kRateWindowNs : 0);
    return span > 0 ? static_cast<double>(tokens_ + previous_) * 1e9 / static_cast<double>(span) : 0;
  }

 private:
  void Advance(int64_t now_ns) {
    if (now_ns - start_ns_ < kRateWindowNs) return;
    has_previous_ = now_ns - start_ns_ < 2 * kRateWindowNs;
    previous_ = has_previous_ ? tokens_ : 0;
    start_ns_ = has_previous_ ? start_ns_ + kRateWindowNs : now_ns;
    tokens_ = 0;
  }
  int64_t start_ns_ = 0, tokens_ = 0, previous_ = 0;
  bool has_previous_ = false;
};

constexpr uint64_t kEveryTicket = 0;  // tickets start at 1

struct RouteTotals {
  uint64_t hits = 0, misses = 0;
};

struct Waiting {
  std::unique_ptr<RunningSequence> sequence;
  uint64_t ticket = 0;
  int64_t submitted_ns = 0;
};

class TextServiceImpl final : public TextService {
 public:
  TextServiceImpl(std::unique_ptr<TextEngineImpl> engine, const ServiceOptions& options);
  ~TextServiceImpl() override;

  const TextEngine& engine() const override { return *engine_; }
  Result<std::optional<uint64_t>> Submit(std::vector<SequenceRequest> requests,
                                         std::vector<std::shared_ptr<SequenceSink>> sinks) override;
  void Cancel(uint64_t ticket) override;
  void CancelAll() override { Cancel(kEveryTicket); }
  ServiceSnapshot Snapshot() override;
  bool WaitUntilIdle(std::chrono::milliseconds limit) override;

 private:
  // On the service's thread, without the lock.
  void Loop();
  void ReapCancelled();
  void Admit();
  void PromptStep();
  bool WaitsForSibling(const SequenceSlot& slot) const;
  void BeginPrompt(SequenceSlot& slot);
  void FinishPrompt(SequenceSlot& slot);
  int32_t ChunkRows() const;
  void DecodeSteps();
  void DecodeStep(HostSpan<SequenceSlot* const> slots);
  void ForwardDecode(HostSpan<SequenceSlot* const> slots);
  Status ForwardSlots(HostSpan<SequenceSlot* const> slots, size_t first);
  void SampleRows(HostSpan<SequenceSlot* const> slots);
  void Advance(SequenceSlot& slot, const Result<TokenId>& token, HostSpan<const float> logits);
  void Release(SequenceSlot& slot);
  void CloseTimes(SequenceSlot& slot);
  RouteTotals Routes();
  void Attribute(HostSpan<SequenceSlot* const> slots, const RouteTotals& before);
  void Publish();

  // With the lock.
  bool HasWork() const { return stop_ || !arrived_.empty() || !cancelled_.empty() || active_ > 0 || snapshot_wanted_; }

  // Of the step's row i; empty when a device has sampled it.
  HostSpan<float> LogitsOf(size_t i) {
    return logits_row_[i] < 0 ? HostSpan<float>() : Logits(static_cast<size_t>(logits_row_[i]));
  }
  HostSpan<float> Logits(size_t row) {
    const auto vocab = static_cast<size_t>(model_.vocab);
    return {logits_.data() + row * vocab, vocab};
  }

  std::unique_ptr<TextEngineImpl> engine_;
  ServiceOptions options_;
  RunningSequence::Model model_;
  std::unique_ptr<SequenceSlots> slots_;
  std::vector<float> logits_;
  std::vector<model::StepRow> rows_;
  std::vector<SequenceSlot*> decoding_;
  std::vector<Result<TokenId>> sampled_;
  std::vector<Status> failures_;
  std::vector<int32_t> logits_row_;         // where the logits of a step's row are; -1: sampled on the device
  std::deque<Waiting> waiting_;             // in the order of arrival
  std::vector<uint64_t> reaped_;            // tickets cancelled since the last turn
  size_t next_prompt_ = 0;                  // slot whose prompt goes next
  double step_ms_ = 0, prompt_row_ms_ = 0;  // recent
  RateMeter rate_;
  ServiceSnapshot totals_;

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  bool stop_ = false, snapshot_wanted_ = false;
  uint64_t next_ticket_ = 1, snapshots_ = 0;
  std::vector<Waiting> arrived_;
  std::vector<uint64_t> cancelled_;
  int32_t queued_ = 0, active_ = 0;  // sequences without and with a slot
  ServiceSnapshot published_;

  std::thread thread_;
};

TextServiceImpl::TextServiceImpl(std::unique_ptr<TextEngineImpl> engine, const ServiceOptions& options)
    : engine_(std::move(engine)), options_(options) {
  const model::TransformerOptions& limits = engine_->model_options();
  model_.tokenizer = engine_->tokenizer();
  if (model_.tokenizer != nullptr) model_.index = decode::TokenIndex::Build(*model_.tokenizer);
  model_.vocab = engine_->info().vocab;
  model_.context = limits.context_tokens;
  std::vector<std::unique_ptr<model::SequenceState>> states;
  for (int32_t i = 0; i < limits.sequences; ++i) states.push_back(engine_->model().NewSequence());
  slots_ = std::make_unique<SequenceSlots>(std::move(states));
  const auto rows = static_cast<size_t>(std::min(limits.sequences, static_cast<int32_t>(kMaxDecodeRows)));
  logits_.resize(rows * static_cast<size_t>(model_.vocab));
  rows_.reserve(static_cast<size_t>(limits.max_rows));
  decoding_.reserve(static_cast<size_t>(limits.sequences));
  sampled_.reserve(rows);
  failures_.reserve(rows);
  logits_row_.reserve(rows);
  Publish();
  thread_ = std::thread([this] { Loop(); });
}

TextServiceImpl::~TextServiceImpl() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<std::optional<uint64_t>> TextServiceImpl::Submit(std::vector<SequenceRequest> requests,
                                                        std::vector<std::shared_ptr<SequenceSink>> sinks) {
  if (requests.empty() || requests.size() != sinks.size()) {
    return Internal("{} sequences with {} sinks", requests.size(), sinks.size());
  }
  std::vector<Waiting> made(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    BELLHOP_TRY_ASSIGN(made[i].sequence, RunningSequence::Create(model_, std::move(requests[i]), std::move(sinks[i])));
    made[i].submitted_ns = sys::MonotonicNs();
  }
  uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return Cancelled("the service is shutting down");
    // Free slots take requests at once; only the rest waits.
    const auto slots = static_cast<int32_t>(slots_->all().size());
    if (queued_ + active_ + static_cast<int32_t>(made.size()) > std::max(slots + options_.queue_limit, 1)) {
      return std::optional<uint64_t>();
    }
    ticket = next_ticket_++;
    queued_ += static_cast<int32_t>(made.size());
    for (Waiting& waiting : made) {
      waiting.ticket = ticket;
      arrived_.push_back(std::move(waiting));
    }
  }
  wake_.notify_one();
  return std::optional<uint64_t>(ticket);
}

void TextServiceImpl::Cancel(uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wake_.notify_one();
}

ServiceSnapshot TextServiceImpl::Snapshot() {
  std::unique_lock lock(mutex_);
  const uint64_t before = snapshots_;
  snapshot_wanted_ = true;
  wake_.notify_one();
  changed_.wait_for(lock, kSnapshotWait, [&] { return snapshots_ != before; });
  return published_;
}

bool TextServiceImpl::WaitUntilIdle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return queued_ + active_ == 0; });
}

void TextServiceImpl::Loop() {
  for (;;) {
    bool stop = false, snapshot = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return HasWork(); });
      stop = stop_;
      snapshot = std::exchange(snapshot_wanted_, false);
      for (Waiting& waiting : arrived_) waiting_.push_back(std::move(waiting));
      arrived_.clear();
      reaped_.swap(cancelled_);
    }
    if (snapshot) Publish();
    if (stop) break;
    ReapCancelled();
    Admit();
    PromptStep();
    DecodeSteps();
  }
  for (Waiting& waiting : waiting_) waiting.sequence->Finish(FinishReason::kCancelled);
  for (SequenceSlot& slot : slots_->all()) {
    if (slot.busy()) slot.running->Finish(FinishReason::kCancelled);
  }
}

void TextServiceImpl::ReapCancelled() {
  if (reaped_.empty()) return;
  const auto gone = [&](uint64_t ticket) {
    return std::any_of(reaped_.begin(), reaped_.end(), [&](uint64_t t) { return t == ticket || t == kEveryTicket; });
  };
  int32_t removed = 0;
  std::erase_if(waiting_, [&](Waiting& waiting) {
    if (!gone(waiting.ticket)) return false;
    waiting.sequence->result().queue_ms = Milliseconds(waiting.submitted_ns, sys::MonotonicNs());
    waiting.sequence->Finish(FinishReason::kCancelled);
    ++removed;
    return true;
  });
  if (removed > 0) {
    const std::lock_guard lock(mutex_);
    queued_ -= removed;
    changed_.notify_all();
  }
  for (SequenceSlot& slot : slots_->all()) {
    if (!slot.busy() || !gone(slot.ticket)) continue;
    CloseTimes(slot);
    slot.running->Finish(FinishReason::kCancelled);
    Release(slot);
  }
  reaped_.clear();
}

void TextServiceImpl::Admit() {
  int32_t admitted = 0;
  while (!waiting_.empty()) {
    SequenceSlot* slot = slots_->Choose(waiting_.front().sequence->request());
    if (slot == nullptr) break;
    Waiting& first = waiting_.front();
    slot->running = std::move(first.sequence);
    slot->ticket = first.ticket;
    slot->submitted_ns = first.submitted_ns;
    slot->next = -1;
    slot->started = false;
    waiting_.pop_front();
    ++admitted;
  }
  if (admitted == 0) return;
  const std::lock_guard lock(mutex_);
  queued_ -= admitted;
  active_ += admitted;
}

int32_t TextServiceImpl::ChunkRows() const {
  const int32_t most = engine_->model_options().max_rows;
  const bool alone = std::none_of(slots_->all().begin(), slots_->all().end(),
                                  [](const SequenceSlot& slot) { return slot.decoding(); });
  if (alone || prompt_row_ms_ <= 0) return most;
  const double rows = kChunkSteps * step_ms_ / prompt_row_ms_;
  const auto whole = static_cast<int32_t>(std::min(rows, static_cast<double>(most)) / kMinChunkRows) * kMinChunkRows;
  return std::clamp(whole, std::min(kMinChunkRows, most), most);
}

void TextServiceImpl::BeginPrompt(SequenceSlot& slot) {
  slot.started = true;
  slot.prompt_ns = sys::MonotonicNs();
  slot.running->result().queue_ms = Milliseconds(slot.submitted_ns, slot.prompt_ns);
  const Result<int32_t> reused = slots_->TakePrefix(slot);
  if (!reused.ok()) {
    slot.running->Fail(reused.status());
    Release(slot);
    return;
  }
  slot.running->result().reused_tokens = *reused;
  totals_.reused_tokens += static_cast<uint64_t>(*reused);
}

// Choices of one request have one prompt: the first computes it, the others share its pages.
bool TextServiceImpl::WaitsForSibling(const SequenceSlot& slot) const {
  return !slot.started && std::any_of(slots_->all().begin(), slots_->all().end(), [&](const SequenceSlot& other) {
    return other.in_prompt() && other.started && other.ticket == slot.ticket;
  });
}

// One chunk of one prompt; prompts take turns, so that a long one does not hold up a short one.
void TextServiceImpl::PromptStep() {
  std::vector<SequenceSlot>& slots = slots_->all();
  SequenceSlot* slot = nullptr;
  for (size_t i = 0; i < slots.size() && slot == nullptr; ++i) {
    SequenceSlot& candidate = slots[(next_prompt_ + i) % slots.size()];
    if (candidate.in_prompt() && !WaitsForSibling(candidate)) slot = &candidate;
  }
  if (slot == nullptr) return;
  next_prompt_ = static_cast<size_t>(slot - slots.data()) + 1;
  if (!slot->started) BeginPrompt(*slot);
  if (!slot->busy()) return;

  const std::vector<TokenId>& prompt = slot->running->request().prompt;
  const int32_t from = slot->state->length();
  const int32_t rows = std::min(ChunkRows(), static_cast<int32_t>(prompt.size()) - from);
  const bool last = from + rows == static_cast<int32_t>(prompt.size());
  const int64_t start = sys::MonotonicNs();
  Status status = slot->state->Reserve(rows);
  rows_.clear();
  for (int32_t i = from; i < from + rows; ++i) {
    rows_.push_back({slot->state.get(), i, prompt[static_cast<size_t>(i)], last && i == from + rows - 1});
  }
  const RouteTotals before = Routes();
  const int64_t vocab = model_.vocab;
  if (status.ok()) status = engine_->model().Forward(engine_->prompt_class(), rows_, {logits_.data(), 1, vocab, vocab});
  if (!status.ok()) {
    slot->running->Fail(std::move(status));
    slot->Forget();
    Release(*slot);
    return;
  }
  slot->state->Accept(rows);
  slot->tokens.insert(slot->tokens.end(), prompt.begin() + from, prompt.begin() + from + rows);
  slot->prompt_class = slot->tokens.size();
  engine_->CountStep();
  const double ms = Milliseconds(start, sys::MonotonicNs());
  prompt_row_ms_ = ms / rows;
  totals_.prompt_tokens += static_cast<uint64_t>(rows);
  totals_.prompt_ms += ms;
  Attribute({&slot, 1}, before);
  if (last) FinishPrompt(*slot);
}

void TextServiceImpl::FinishPrompt(SequenceSlot& slot) {
  slot.decode_ns = sys::MonotonicNs();
  slot.running->result().prompt_ms = Milliseconds(slot.prompt_ns, slot.decode_ns);
  if (!slot.running->wants_tokens()) {
    slot.running->Finish(FinishReason::kLength);
    Release(slot);
    return;
  }
  Advance(slot, slot.running->Sample(Logits(0), static_cast<uint64_t>(slot.state->length())), Logits(0));
}

void TextServiceImpl::DecodeSteps() {
  decoding_.clear();
  for (SequenceSlot& slot : slots_->all()) {
    if (slot.decoding()) decoding_.push_back(&slot);
  }
  const HostSpan<SequenceSlot* const> all(decoding_.data(), decoding_.size());
  for (size_t i = 0; i < decoding_.size(); i += kMaxDecodeRows) {
    DecodeStep(all.subspan(i, std::min<size_t>(kMaxDecodeRows, decoding_.size() - i)));
  }
}

// The rows of all slots in one step. When it fails, each row alone, so that a fault ends the sequence that it is in:
// nothing was accepted, so a row may run again.
void TextServiceImpl::ForwardDecode(HostSpan<SequenceSlot* const> slots) {
  rows_.clear();
  for (SequenceSlot* slot : slots) rows_.push_back({slot->state.get(), slot->state->length(), slot->next, true});
  failures_.assign(slots.size(), Status());
  logits_row_.assign(slots.size(), -1);
  sampled_.assign(slots.size(), Result<TokenId>(TokenId(-1)));
  if (ForwardSlots(slots, 0).ok()) return;
  for (size_t i = 0; i < slots.size(); ++i) failures_[i] = ForwardSlots(slots.subspan(i, 1), i);
}

// Rows first, ... of the step: into sampled_ where a device samples, else logits from Logits(first) on.
Status TextServiceImpl::ForwardSlots(HostSpan<SequenceSlot* const> slots, size_t first) {
  DeviceSampler* const sampler = engine_->sampler();
  auto next = static_cast<int32_t>(first);
  for (size_t i = 0; i < slots.size(); ++i) {
    model::StepRow& row = rows_[first + i];
    row.want_logits = sampler == nullptr || !slots[i]->running->SampleOnDevice(sampler->rows(), static_cast<int32_t>(i),
                                                                               static_cast<uint64_t>(row.position) + 1);
    logits_row_[first + i] = row.want_logits ? next++ : -1;
  }
  const HostSpan<const model::StepRow> rows(&rows_[first], slots.size());
  const MatView<float> logits{Logits(first).data(), static_cast<int64_t>(slots.size()), model_.vocab, model_.vocab};
  model::StepModel& model = engine_->model();
  if (sampler == nullptr) return model.Forward(moe::NumericClass::kDecode, rows, logits);
  BELLHOP_TRY(model.ForwardAndSample(rows, logits, sampler));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!rows[i].want_logits) sampled_[first + i] = sampler->Token(static_cast<int32_t>(i));
  }
  return Status();
}

// What no device has sampled.
void TextServiceImpl::SampleRows(HostSpan<SequenceSlot* const> slots) {
  const auto sample = [&](size_t i) {
    if (!failures_[i].ok()) {
      sampled_[i] = failures_[i];
      return;
    }
    if (logits_row_[i] < 0) return;
    sampled_[i] = slots[i]->running->Sample(LogitsOf(i), static_cast<uint64_t>(slots[i]->state->length()) + 1);
  };
  const bool any = std::any_of(logits_row_.begin(), logits_row_.end(), [](int32_t row) { return row >= 0; });
  if (slots.size() == 1 || !any) {
    for (size_t i = 0; i < slots.size(); ++i) sample(i);
    return;
  }
  engine_->pool().ParallelFor(static_cast<int64_t>(slots.size()), 1, [&](RowRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) sample(static_cast<size_t>(i));
  });
}

void TextServiceImpl::DecodeStep(HostSpan<SequenceSlot* const> slots) {
  const int64_t start = sys::MonotonicNs();
  for (size_t i = 0; i < slots.size(); ++i) {
    Status room = slots[i]->state->Reserve(1);
    if (room.ok()) continue;
    // Pages cannot run out: the pool holds every sequence's whole context.
    slots[i]->running->Fail(std::move(room));
    Release(*slots[i]);
    return;
  }
  const RouteTotals before = Routes();
  ForwardDecode(slots);
  SampleRows(slots);
  Attribute(slots, before);
  const int64_t now = sys::MonotonicNs();
  step_ms_ = Milliseconds(start, now);
  totals_.decode_ms += step_ms_;
  ++totals_.steps;
  engine_->CountStep();
  for (size_t i = 0; i < slots.size(); ++i) {
    SequenceSlot& slot = *slots[i];
    if (failures_[i].ok()) {
      slot.state->Accept(1);
      slot.tokens.push_back(slot.next);
    } else {
      slot.state->Accept(0);
    }
    Advance(slot, sampled_[i], LogitsOf(i));
  }
}

// Hands a sampled token over, and ends the sequence when it was the last.
void TextServiceImpl::Advance(SequenceSlot& slot, const Result<TokenId>& token, HostSpan<const float> logits) {
  CloseTimes(slot);
  Result<bool> goes_on = token.ok() ? slot.running->Take(*token, logits) : Result<bool>(token.status());
  if (token.ok()) {
    ++totals_.decode_tokens;
    rate_.Add(sys::MonotonicNs(), 1);
  }
  if (!goes_on.ok()) {
    slot.running->Fail(goes_on.status());
    Release(slot);
    return;
  }
  if (!*goes_on) {
    Release(slot);
    return;
  }
  if (slot.state->length() == model_.context) {
    slot.running->Finish(FinishReason::kLength);
    Release(slot);
    return;
  }
  slot.next = *token;
}

void TextServiceImpl::CloseTimes(SequenceSlot& slot) {
  if (!slot.started) {
    slot.running->result().queue_ms = Milliseconds(slot.submitted_ns, sys::MonotonicNs());
  } else if (slot.decode_ns != 0) {
    slot.running->result().decode_ms = Milliseconds(slot.decode_ns, sys::MonotonicNs());
  } else {
    slot.running->result().prompt_ms = Milliseconds(slot.prompt_ns, sys::MonotonicNs());
  }
}

// Every row of a step has the same number of routes, so each sequence has an equal share of a step's.
void TextServiceImpl::Attribute(HostSpan<SequenceSlot* const> slots, const RouteTotals& before) {
  const RouteTotals now = Routes();
  for (SequenceSlot* slot : slots) {
    slot->running->result().hits += (now.hits - before.hits) / slots.size();
    slot->running->result().misses += (now.misses - before.misses) / slots.size();
  }
}

RouteTotals TextServiceImpl::Routes() {
  const moe::RouteCounts* counts = engine_->model().counts();
  return counts == nullptr ? RouteTotals() : RouteTotals{counts->hits(), counts->misses()};
}

void TextServiceImpl::Release(SequenceSlot& slot) {
  slot.running.reset();
  slot.next = -1;
  slot.decode_ns = 0;
  slots_->Touch(slot);
  const std::lock_guard lock(mutex_);
  --active_;
  changed_.notify_all();
}

void TextServiceImpl::Publish() {
  ServiceSnapshot snapshot = totals_;
  snapshot.experts = engine_->Experts();
  snapshot.tiers = engine_->Tiers();
  snapshot.traffic = engine_->Traffic();
  snapshot.memory = engine_->Memory();
  snapshot.tokens_per_s = rate_.Rate(sys::MonotonicNs());
  for (const SequenceSlot& slot : slots_->all()) {
    SlotInfo& info = snapshot.slots.emplace_back();
    info.busy = slot.busy();
    info.cached_tokens = static_cast<int32_t>(slot.tokens.size());
    if (!slot.busy()) continue;
    info.ticket = slot.ticket;
    info.prompt_tokens = slot.running->result().prompt_tokens;
    info.prompt_done = slot.started ? std::min(info.cached_tokens, info.prompt_tokens) : 0;
    info.generated_tokens = slot.running->result().generated_tokens;
  }
  const std::lock_guard lock(mutex_);
  snapshot.queued = queued_;
  published_ = std::move(snapshot);
  ++snapshots_;
  changed_.notify_all();
}

}  // namespace

Result<std::unique_ptr<TextService>> TextService::Start(const config::EngineConfig& config,
                                                        const ServiceOptions& options, LogSink* log,
                                                        const LoadProgress& progress) {
  BELLHOP_TRY_ASSIGN(std::unique_ptr<TextEngineImpl> engine, TextEngineImpl::Load(config, log, progress));
  if (options.before_start) options.before_start(*engine);
  return std::unique_ptr<TextService>(std::make_unique<TextServiceImpl>(std::move(engine), options));
}

}  // namespace bellhop::engine
