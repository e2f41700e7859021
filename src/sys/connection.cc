#include "sys/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "sys/clock.h"

namespace bellhop::sys {
namespace {

// The events that came, 0 for none within the time.
short Poll(int fd, short events, int timeout_ms) {
  const int64_t deadline = MonotonicNs() + int64_t{timeout_ms} * 1'000'000;
  for (int left = timeout_ms;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, left);
    if (ready > 0) return entry.revents;
    if (ready == 0 || errno != EINTR) return 0;
    left = static_cast<int>((deadline - MonotonicNs()) / 1'000'000);
    if (left <= 0) return 0;
  }
}

bool TryAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

SocketAddress ToAddress(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return {text, ntohs(address.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    return {text, ntohs(address.sin6_port)};
  }
  return {};
}

}  // namespace

Connection::Connection(int fd) : fd_(fd) {}

Connection::~Connection() {
  ::shutdown(fd_, SHUT_RDWR);
  ::close(fd_);
}

void Connection::Shutdown() { ::shutdown(fd_, SHUT_RDWR); }

int64_t Connection::Read(char* data, size_t size, int timeout_ms) {
  for (;;) {
    const ssize_t got = ::recv(fd_, data, size, MSG_DONTWAIT);
    if (got >= 0) return got;
    if (!TryAgain()) return -1;
    if (errno != EINTR && !WaitReadable(timeout_ms)) return -1;
  }
}

int64_t Connection::Write(const char* data, size_t size, int timeout_ms) {
  for (size_t done = 0; done < size;) {
    const ssize_t sent = ::send(fd_, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && !TryAgain()) return -1;
    if (!WaitWritable(timeout_ms)) return -1;
  }
  return static_cast<int64_t>(size);
}

bool Connection::WaitReadable(int timeout_ms) const { return Poll(fd_, POLLIN, timeout_ms) != 0; }

bool Connection::WaitWritable(int timeout_ms) const {
  const short events = Poll(fd_, POLLOUT, timeout_ms);
  return (events & POLLOUT) != 0 && (events & (POLLERR | POLLHUP)) == 0;
}

bool Connection::peer_gone() const { return (Poll(fd_, POLLRDHUP, 0) & (POLLRDHUP | POLLHUP | POLLERR)) != 0; }

void AllowAddressReuse(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

SocketAddress PeerAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? ToAddress(storage) : SocketAddress();
}

SocketAddress LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? ToAddress(storage) : SocketAddress();
}

}  // namespace bellhop::sys
