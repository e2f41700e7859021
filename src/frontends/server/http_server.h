// cpp-httplib's server on our own socket layer: every read and write is bounded in time, a request is bounded in bytes,
// a handler learns at once that its client has gone, and idle connections give way when others wait for a thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <httplib.h>

#include "base/status.h"
#include "sys/hangup_watch.h"

namespace bellhop::sys {
class Connection;
}

namespace bellhop::server {

struct HttpLimits {
  size_t connections = 256;  // served at the same time, a thread each; more wait
  size_t body_bytes = size_t{16} << 20;
  std::chrono::milliseconds read_time{30'000};   // for a whole request to arrive
  std::chrono::milliseconds write_time{30'000};  // without progress
  std::chrono::milliseconds idle_time{30'000};   // between requests of a connection
};

// A fixed number of threads, started when they are first needed.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(size_t limit) : limit_(limit) {}
  ~ConnectionThreads() override;
  void enqueue(std::function<void()> job) override;
  void shutdown() override;
  bool crowded() const { return waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  void Work();

  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stop_ = false;
  std::atomic<size_t> waiting_{0};  // jobs without a thread
};

class HttpServer final : public httplib::Server {
 public:
  // The watch must outlive the server.
  HttpServer(const HttpLimits& limits, sys::HangupWatch& watch);

  // From a handler: calls `gone` when the client of its request goes, as long as the entry lives, which must not be
  // longer than the request.
  static Result<sys::HangupWatch::Entry> WhenClientGoes(std::function<void()> gone);
  // From a handler: its request counts as active until the answer is written.
  static void CountAsActive();
  // From a handler: the connection closes after this answer, since what follows may not be a request.
  static void CloseAfterAnswer(httplib::Response& response);

  int active_requests() const { return active_.load(std::memory_order_relaxed); }
  // Ends every connection, whatever it waits for.
  void CloseConnections();

 private:
  struct Serving;  // what a thread serves now
  static thread_local Serving* serving_;

  bool process_and_close_socket(socket_t socket) override;

  HttpLimits limits_;
  sys::HangupWatch& watch_;
  std::atomic<ConnectionThreads*> threads_{nullptr};
  std::atomic<int> active_{0};
  std::mutex connections_mutex_;
  std::set<sys::Connection*> connections_;
};

}  // namespace bellhop::server
