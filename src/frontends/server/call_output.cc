#include "frontends/server/call_output.h"

#include <utility>

namespace bellhop::server {
namespace {

size_t BytesOf(const engine::SequenceDelta& delta) {
  size_t bytes = sizeof(CallOutput::Event) + delta.text.size();
  for (const engine::SampledToken& token : delta.tokens) {
    bytes += sizeof(token) + token.top.size() * sizeof(token.top[0]);
  }
  return bytes;
}

}  // namespace

class CallOutput::Sink final : public engine::SequenceSink {
 public:
  Sink(std::shared_ptr<CallOutput> output, size_t choice) : output_(std::move(output)), choice_(choice) {}
  bool OnDelta(const engine::SequenceDelta& delta) override { return output_->OnDelta(choice_, delta); }
  void OnEnd(const engine::SequenceResult& result) override { output_->OnEnd(choice_, result); }

 private:
  std::shared_ptr<CallOutput> output_;
  size_t choice_;
};

std::vector<std::shared_ptr<engine::SequenceSink>> CallOutput::MakeSinks() {
  std::vector<std::shared_ptr<engine::SequenceSink>> sinks;
  for (size_t i = 0; i < choices_; ++i) sinks.push_back(std::make_shared<Sink>(shared_from_this(), i));
  return sinks;
}

bool CallOutput::OnDelta(size_t choice, const engine::SequenceDelta& delta) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    bytes_ += BytesOf(delta);
    if (bytes_ > max_bytes_) {
      overflowed_ = true;
      return false;
    }
    first = events_.empty();
    events_.push_back({choice, delta});
  }
  if (first) changed_.notify_one();
  return true;
}

void CallOutput::OnEnd(size_t choice, const engine::SequenceResult& result) {
  {
    const std::lock_guard lock(mutex_);
    ++ended_;
    events_.push_back({choice, result});
  }
  changed_.notify_one();
}

bool CallOutput::Take(std::vector<Event>* events, std::chrono::milliseconds limit) {
  events->clear();
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit, [this] { return !events_.empty(); })) return false;
  events->swap(events_);
  bytes_ = 0;
  return true;
}

bool CallOutput::finished() {
  const std::lock_guard lock(mutex_);
  return ended_ == choices_ && events_.empty();
}

bool CallOutput::overflowed() {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

}  // namespace bellhop::server
