#include "frontends/server/http_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sys/connection.h"

namespace bellhop::server {
namespace {

using Clock = std::chrono::steady_clock;

// What a request may have beside its body.
constexpr size_t kHeaderBytes = 64 << 10;
// How often a connection that waits looks at whether it should give way.
constexpr std::chrono::milliseconds kIdleSlice{100};

int Left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

class ConnectionStream final : public httplib::Stream {
 public:
  ConnectionStream(sys::Connection& connection, const HttpLimits& limits) : connection_(connection), limits_(limits) {}

  void BeginRequest() {
    deadline_ = Clock::now() + limits_.read_time;
    room_ = limits_.body_bytes + kHeaderBytes;
  }
  bool buffered() const { return begin_ < end_; }

  bool is_readable() const override { return buffered() || connection_.WaitReadable(Left(deadline_)); }
  bool is_writable() const override {
    return !connection_.peer_gone() && connection_.WaitWritable(static_cast<int>(limits_.write_time.count()));
  }

  ssize_t read(char* data, size_t size) override {
    if (!buffered()) {
      const int left = Left(deadline_);
      if (left == 0) return -1;
      const int64_t got = connection_.Read(buffer_, sizeof(buffer_), left);
      if (got <= 0) return static_cast<ssize_t>(got);
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t taken = std::min({size, end_ - begin_, room_});
    if (taken == 0) return -1;
    std::memcpy(data, buffer_ + begin_, taken);
    begin_ += taken;
    room_ -= taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* data, size_t size) override {
    return static_cast<ssize_t>(connection_.Write(data, size, static_cast<int>(limits_.write_time.count())));
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    Fill(sys::PeerAddress(connection_.fd()), ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    Fill(sys::LocalAddress(connection_.fd()), ip, port);
  }
  socket_t socket() const override { return connection_.fd(); }

 private:
  static void Fill(sys::SocketAddress address, std::string& ip, int& port) {
    ip = std::move(address.ip);
    port = address.port;
  }

  sys::Connection& connection_;
  const HttpLimits& limits_;
  Clock::time_point deadline_;
  size_t room_ = 0;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
};

}  // namespace

ConnectionThreads::~ConnectionThreads() { shutdown(); }

void ConnectionThreads::enqueue(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (jobs_.size() > idle_ && threads_.size() < limit_) {
      threads_.emplace_back([this] { Work(); });
      ++idle_;
    }
    waiting_.store(jobs_.size() > idle_ ? jobs_.size() - idle_ : 0, std::memory_order_relaxed);
  }
  wake_.notify_one();
}

void ConnectionThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ConnectionThreads::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    waiting_.store(jobs_.size() > idle_ ? jobs_.size() - idle_ : 0, std::memory_order_relaxed);
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++idle_;
  }
}

HttpServer::HttpServer(const HttpLimits& limits, sys::HangupWatch& watch) : limits_(limits), watch_(watch) {
  set_payload_max_length(limits.body_bytes);
  set_tcp_nodelay(true);
  // Not SO_REUSEPORT, which would let a second server share the port unnoticed.
  set_socket_options([](socket_t socket) { sys::AllowAddressReuse(socket); });
  new_task_queue = [this] {
    auto* threads = new ConnectionThreads(limits_.connections);  // httplib deletes it
    threads_ = threads;
    return threads;
  };
}

struct HttpServer::Serving {
  HttpServer& server;
  sys::Connection& connection;
  bool active = false, close = false;
};
thread_local HttpServer::Serving* HttpServer::serving_ = nullptr;

Result<sys::HangupWatch::Entry> HttpServer::WhenClientGoes(std::function<void()> gone) {
  return serving_->server.watch_.Add(serving_->connection.fd(), std::move(gone));
}

void HttpServer::CountAsActive() {
  if (serving_ == nullptr || serving_->active) return;
  serving_->active = true;
  ++serving_->server.active_;
}

void HttpServer::CloseAfterAnswer(httplib::Response& response) {
  response.set_header("Connection", "close");
  if (serving_ != nullptr) serving_->close = true;
}

void HttpServer::CloseConnections() {
  const std::lock_guard lock(connections_mutex_);
  for (sys::Connection* connection : connections_) connection->Shutdown();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  sys::Connection connection(socket);
  ConnectionStream stream(connection, limits_);
  Serving serving{*this, connection};
  serving_ = &serving;
  {
    const std::lock_guard lock(connections_mutex_);
    connections_.insert(&connection);
  }
  bool ok = true;
  for (bool closed = false; ok && !closed && !serving.close;) {
    const Clock::time_point give_up = Clock::now() + limits_.idle_time;
    bool ready = stream.buffered();
    while (!ready && svr_sock_ != INVALID_SOCKET && Clock::now() < give_up) {
      ready = connection.WaitReadable(static_cast<int>(kIdleSlice.count()));
      if (!ready && threads_.load()->crowded()) break;
    }
    if (!ready) break;
    stream.BeginRequest();
    ok = process_request(stream, false, closed, nullptr);
    if (serving.active) --active_;
    serving.active = false;
  }
  const std::lock_guard lock(connections_mutex_);
  connections_.erase(&connection);
  serving_ = nullptr;
  return ok;
}

}  // namespace bellhop::server
