// Everything that one sequence carries from step to step: its block table, and the state of recurrent layers. Rows
// written by a step become part of the sequence by Accept; the rest is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/kv_cache.h"

namespace bellhop::model {

class SequenceState {
 public:
  // `recurrent_floats`: values of recurrent state over all layers, 0 for attention-only models. The pool must outlive
  // the state. max_tokens bounds the sequence.
  SequenceState(KvPages* pool, int32_t max_tokens, int64_t recurrent_floats);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int32_t length() const { return length_; }
  int32_t max_tokens() const { return max_tokens_; }
  const std::vector<int32_t>& pages() const { return pages_; }

  // Makes room for rows at positions length() .. length() + rows - 1. A page shared with another sequence that these
  // rows would write to is copied first. kInvalidArgument at the context limit, kOutOfMemory when the pool is empty.
  Status Reserve(int32_t rows);
  // Commits the first n of the rows written since Reserve and gives back pages beyond them.
  void Accept(int32_t n);

  // The largest length <= wanted to which Truncate can go: any for attention alone, a checkpoint's (or 0) with
  // recurrent state.
  int32_t ResumePoint(int32_t wanted) const;
  // kInvalidArgument when length is not a resume point.
  Status Truncate(int32_t length);
  // Saves the state at the current length for later truncation. Attention-only states need none.
  void Checkpoint();
  void Reset();
  // Makes this state an alias of the first `length` tokens of `other`, sharing its pages (prefix reuse). `length` must
  // be a resume point of `other`, and this state empty.
  Status ShareFrom(const SequenceState& other, int32_t length);

  float* recurrent() { return recurrent_.data(); }

 private:
  struct Saved {
    int32_t length;
    std::vector<float> recurrent;
  };
  void ReleaseFrom(size_t first_page);

  KvPages* pool_;
  int32_t max_tokens_;
  int32_t length_ = 0;
  std::vector<int32_t> pages_;
  std::vector<float> recurrent_;
  std::vector<Saved> checkpoints_;  // ascending length
};

}  // namespace bellhop::model
