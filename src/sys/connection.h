// One accepted stream socket: reads and writes that never block longer than they are told, and whether the peer is
// still there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bellhop::sys {

class Connection {
 public:
  // Takes the socket over and closes it in the end.
  explicit Connection(int fd);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // At least one byte, or 0 when the peer has closed, or -1 for an error or nothing within `timeout_ms`.
  int64_t Read(char* data, size_t size, int timeout_ms);
  // All bytes, or -1 for an error or no progress within `timeout_ms`.
  int64_t Write(const char* data, size_t size, int timeout_ms);
  // True once there is something to read, the peer's end included.
  bool WaitReadable(int timeout_ms) const;
  bool WaitWritable(int timeout_ms) const;
  // The peer closed its side or the connection broke. Unread bytes do not hide it.
  bool peer_gone() const;
  // Ends both directions, so that reads and writes that wait on other threads return.
  void Shutdown();

  int fd() const { return fd_; }

 private:
  int fd_;
};

// Lets a listening socket take an address that a server before it has just left.
void AllowAddressReuse(int fd);

struct SocketAddress {
  std::string ip;
  int port = 0;
};
SocketAddress PeerAddress(int fd);  // empty when the system does not say
SocketAddress LocalAddress(int fd);

}  // namespace bellhop::sys
