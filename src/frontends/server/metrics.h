// What /metrics exposes, in Prometheus' text format. Counters of requests live here; those of the engine are read from
// a snapshot at every scrape.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/text_service.h"

namespace bellhop::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // An HTTP answer left: `route` is one of the server's own, never text of the client.
  void CountRequest(std::string_view route, int status);
  void CountRefused();
  // A sequence ended by itself or by an error.
  void CountSequence(const engine::SequenceResult& result);
  void ObserveFirstToken(double seconds);  // from the request to its first token
  void ObserveTokenGap(double seconds);    // between the tokens of a stream

  // The whole page. `predicted_ms`: what the plan expects of a decode step at one row, 0: unknown.
  std::string Render(const engine::ServiceSnapshot& snapshot, double predicted_ms) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bellhop::server
