// Between the engine's thread and a connection's: what the choices of one request generated, in the order in which it
// came, in a buffer of bounded size. The engine never waits for a client: when the buffer is full, the request is
// cancelled.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "engine/text_service.h"

namespace bellhop::server {

class CallOutput : public std::enable_shared_from_this<CallOutput> {
 public:
  struct Event {
    size_t choice = 0;
    std::variant<engine::SequenceDelta, engine::SequenceResult> what;
  };

  CallOutput(size_t choices, size_t max_bytes) : choices_(choices), max_bytes_(max_bytes) {}

  // One sink per choice; they keep this object alive.
  std::vector<std::shared_ptr<engine::SequenceSink>> MakeSinks();

  // Moves what has come into `events`, waiting until `limit` for the first of it. False: nothing came.
  bool Take(std::vector<Event>* events, std::chrono::milliseconds limit);
  // All choices have ended and everything was taken.
  bool finished();
  // The client did not take its answer in time, and the engine gave up on it.
  bool overflowed();

 private:
  class Sink;
  bool OnDelta(size_t choice, const engine::SequenceDelta& delta);
  void OnEnd(size_t choice, const engine::SequenceResult& result);

  const size_t choices_, max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  size_t bytes_ = 0, ended_ = 0;
  bool overflowed_ = false;
};

}  // namespace bellhop::server
