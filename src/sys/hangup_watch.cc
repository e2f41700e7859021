#include "sys/hangup_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "sys/os_error.h"

namespace bellhop::sys {
namespace {

constexpr uint64_t kStopId = 0;

Status CannotWatch(int error) { return OsError(error, "client connections", "watch"); }

}  // namespace

Result<std::unique_ptr<HangupWatch>> HangupWatch::Start() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return CannotWatch(errno);
  const int stop = ::eventfd(0, EFD_CLOEXEC);
  auto watch = std::unique_ptr<HangupWatch>(new HangupWatch(epoll, stop));  // closes both
  if (stop < 0) return CannotWatch(errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kStopId}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, stop, &event) != 0) return CannotWatch(errno);
  watch->thread_ = std::thread([loop = watch.get()] { loop->Loop(); });
  return watch;
}

HangupWatch::~HangupWatch() {
  if (thread_.joinable()) {
    (void)::eventfd_write(stop_, 1);
    thread_.join();
  }
  if (stop_ >= 0) ::close(stop_);
  ::close(epoll_);
}

Result<HangupWatch::Entry> HangupWatch::Add(int socket, std::function<void()> gone) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  epoll_event event{.events = EPOLLRDHUP | EPOLLONESHOT, .data = {.u64 = id}};  // EPOLLHUP and EPOLLERR always come
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0) return CannotWatch(errno);
  watched_.emplace(id, Watched{socket, std::move(gone)});
  return Entry(this, id);
}

void HangupWatch::Remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(id);
  (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.socket, nullptr);
  watched_.erase(found);
}

void HangupWatch::Loop() {
  for (;;) {
    epoll_event events[16];
    const int count = ::epoll_wait(epoll_, events, 16, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopId) return;
      const std::lock_guard lock(mutex_);
      const auto found = watched_.find(events[i].data.u64);
      if (found != watched_.end()) found->second.gone();
    }
  }
}

}  // namespace bellhop::sys
