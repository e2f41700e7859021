// Tells at once when the peers of sockets have gone, on one thread that sleeps until the kernel says so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/status.h"

namespace bellhop::sys {

class HangupWatch {
 public:
  static Result<std::unique_ptr<HangupWatch>> Start();
  // After every Entry.
  ~HangupWatch();
  HangupWatch(const HangupWatch&) = delete;
  HangupWatch& operator=(const HangupWatch&) = delete;

  // Watches until it is destroyed; once that has returned, the call does not run and will not.
  class Entry {
   public:
    Entry() = default;
    ~Entry() { Release(); }
    Entry(Entry&& other) noexcept : watch_(std::exchange(other.watch_, nullptr)), id_(other.id_) {}
    Entry& operator=(Entry&& other) noexcept {
      if (this != &other) {
        Release();
        watch_ = std::exchange(other.watch_, nullptr);
        id_ = other.id_;
      }
      return *this;
    }

   private:
    friend class HangupWatch;
    Entry(HangupWatch* watch, uint64_t id) : watch_(watch), id_(id) {}
    void Release() {
      if (watch_ != nullptr) std::exchange(watch_, nullptr)->Remove(id_);
    }

    HangupWatch* watch_ = nullptr;
    uint64_t id_ = 0;
  };

  // Calls `gone` once, on the watch's thread, when the peer of `socket` has closed its side or the connection has
  // broken, also when it had before. `gone` must be quick and neither add nor remove entries. A socket has one entry at
  // a time, which ends before the socket is closed.
  Result<Entry> Add(int socket, std::function<void()> gone);

 private:
  struct Watched {
    int socket;
    std::function<void()> gone;
  };

  HangupWatch(int epoll, int stop) : epoll_(epoll), stop_(stop) {}
  void Loop();
  void Remove(uint64_t id);

  const int epoll_, stop_;  // stop_: an eventfd that ends the loop
  std::mutex mutex_;        // held while a call runs
  std::unordered_map<uint64_t, Watched> watched_;
  uint64_t next_id_ = 1;  // 0 is stop_
  std::thread thread_;
};

}  // namespace bellhop::sys
