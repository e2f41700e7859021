#include "model/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace bellhop::model {
namespace {

size_t PagesFor(int32_t tokens) { return static_cast<size_t>(CeilDiv(tokens, kernels::kKvPageTokens)); }

}  // namespace

SequenceState::SequenceState(KvPages* pool, int32_t max_tokens, int64_t recurrent_floats)
    : pool_(pool), max_tokens_(max_tokens), recurrent_(static_cast<size_t>(recurrent_floats), 0.0f) {
  pages_.reserve(PagesFor(max_tokens));
}

SequenceState::~SequenceState() { ReleaseFrom(0); }

void SequenceState::ReleaseFrom(size_t first_page) {
  while (pages_.size() > first_page) {
    pool_->Release(pages_.back());
    pages_.pop_back();
  }
}

Status SequenceState::Reserve(int32_t rows) {
  if (rows > max_tokens_ - length_) {
    return InvalidArgument(
        "the context is full: {} tokens + {} more exceed {}; raise --ctx-size or pass --context-shift", length_, rows,
        max_tokens_);
  }
  const auto partial = static_cast<size_t>(length_ / kernels::kKvPageTokens);
  if (rows > 0 && length_ % kernels::kKvPageTokens != 0 && pool_->references(pages_[partial]) > 1) {
    const int32_t own = pool_->Allocate();
    if (own < 0) return OutOfMemory("no free KV page for a private copy; raise --ctx-size or run fewer sequences");
    pool_->CopyPage(pages_[partial], own);
    pool_->Release(pages_[partial]);
    pages_[partial] = own;
  }
  while (pages_.size() < PagesFor(length_ + rows)) {
    const int32_t page = pool_->Allocate();
    if (page < 0) {
      return OutOfMemory("no free KV page ({} in all); raise --ctx-size or run fewer sequences", pool_->pages());
    }
    pages_.push_back(page);
  }
  return Status();
}

void SequenceState::Accept(int32_t n) {
  length_ += n;
  ReleaseFrom(PagesFor(length_));
}

int32_t SequenceState::ResumePoint(int32_t wanted) const {
  wanted = std::min(wanted, length_);
  if (recurrent_.empty() || wanted == length_) return wanted;
  int32_t best = 0;
  for (const Saved& saved : checkpoints_) {
    if (saved.length <= wanted) best = std::max(best, saved.length);
  }
  return best;
}

Status SequenceState::Truncate(int32_t length) {
  if (length < 0 || ResumePoint(length) != length) {
    return InvalidArgument("a sequence of {} tokens cannot be cut to {}; the nearest resume point is {}", length_,
                           length, ResumePoint(length));
  }
  if (!recurrent_.empty() && length != length_) {
    std::fill(recurrent_.begin(), recurrent_.end(), 0.0f);
    for (const Saved& saved : checkpoints_) {
      if (saved.length == length) recurrent_ = saved.recurrent;
    }
  }
  std::erase_if(checkpoints_, [&](const Saved& saved) { return saved.length > length; });
  length_ = length;
  ReleaseFrom(PagesFor(length_));
  return Status();
}

void SequenceState::Checkpoint() {
  if (recurrent_.empty()) return;
  std::erase_if(checkpoints_, [&](const Saved& saved) { return saved.length >= length_; });
  checkpoints_.push_back({length_, recurrent_});
}

void SequenceState::Reset() {
  ReleaseFrom(0);
  length_ = 0;
  checkpoints_.clear();
  std::fill(recurrent_.begin(), recurrent_.end(), 0.0f);
}

Status SequenceState::ShareFrom(const SequenceState& other, int32_t length) {
  if (length_ != 0 || other.pool_ != pool_ || length < 0 || other.ResumePoint(length) != length ||
      length > max_tokens_) {
    return InvalidArgument("a prefix of {} tokens cannot be shared from a sequence of {} into one of {}", length,
                           other.length_, length_);
  }
  Reset();
  for (size_t i = 0; i < PagesFor(length); ++i) {
    pages_.push_back(other.pages_[i]);
    pool_->AddRef(pages_.back());
  }
  if (!recurrent_.empty()) {
    if (length == other.length_) recurrent_ = other.recurrent_;
    for (const Saved& saved : other.checkpoints_) {
      if (saved.length == length && length != other.length_) recurrent_ = saved.recurrent;
    }
  }
  length_ = length;
  return Status();
}

}  // namespace bellhop::model
