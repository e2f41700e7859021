#include "frontends/server/call_handler.h"

#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "frontends/server/call_output.h"
#include "frontends/server/http_server.h"
#include "frontends/server/json_text.h"

namespace bellhop::server {
namespace {

using Clock = std::chrono::steady_clock;

// How often a connection that waits for tokens looks at the clock: for its heartbeat and the request's time limit.
constexpr std::chrono::milliseconds kClockCheck{250};
constexpr std::chrono::seconds kHeartbeat{10};
// What a client may be behind before its stream is cancelled.
constexpr size_t kStreamBufferBytes = size_t{4} << 20;
constexpr const char* kRetrySeconds = "1";

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

ApiError FromStatus(const Status& status) {
  const bool bad_request = status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported;
  ApiError error;
  error.http_status = bad_request ? 400 : 500;
  error.message = std::string(status.message());
  error.type = bad_request ? "invalid_request_error" : "server_error";
  return error;
}

ApiError QueueFull() {
  return {.http_status = 429,
          .message = "too many requests are waiting; try again in a moment",
          .type = "rate_limit_error",
          .param = {},
          .code = "queue_full"};
}

ApiError TimedOut(int32_t seconds) {
  return {.http_status = 504,
          .message = fmt::format("the request took longer than {} s (--request-timeout)", seconds),
          .type = "timeout_error",
          .param = {},
          .code = "request_timeout"};
}

ApiError TooSlow() {
  return {.http_status = 500,
          .message = "the client did not read its stream in time",
          .type = "server_error",
          .param = {},
          .code = "client_too_slow"};
}

// One queued call and what became of it.
class RunningCall {
 public:
  RunningCall(ServerState& state, std::unique_ptr<ApiCall> call) : state_(state), call_(std::move(call)) {}
  ~RunningCall() {
    if (ticket_ != 0 && !output_->finished()) state_.service()->Cancel(ticket_);
  }

  ApiCall& call() { return *call_; }

  // None: it is queued.
  std::optional<ApiError> Submit() {
    std::vector<engine::SequenceRequest> sequences = call_->TakeSequences();
    last_token_.resize(sequences.size());
    output_ = std::make_shared<CallOutput>(sequences.size(), kStreamBufferBytes);
    const auto submitted = state_.service()->Submit(std::move(sequences), output_->MakeSinks());
    if (!submitted.ok()) return FromStatus(submitted.status());
    if (!submitted->has_value()) {
      state_.metrics().CountRefused();
      return QueueFull();
    }
    ticket_ = **submitted;
    auto entry =
        HttpServer::WhenClientGoes([service = state_.service(), ticket = ticket_] { service->Cancel(ticket); });
    if (!entry.ok()) return FromStatus(entry.status());
    client_ = *std::move(entry);
    return std::nullopt;
  }

  // Takes what has come and passes it to the call. False: nothing came within `limit`.
  bool Pump(std::string* out, std::chrono::milliseconds limit) {
    if (!output_->Take(&events_, limit)) return false;
    for (const CallOutput::Event& event : events_) {
      if (const auto* delta = std::get_if<engine::SequenceDelta>(&event.what)) {
        Observe(event.choice, *delta);
        call_->Delta(event.choice, *delta, out);
      } else {
        const auto& result = std::get<engine::SequenceResult>(event.what);
        state_.metrics().CountSequence(result);
        if (!result.status.ok() && failure_.ok()) failure_ = result.status;
        call_->End(event.choice, result, out);
      }
    }
    return true;
  }

  bool finished() { return output_->finished(); }
  const Status& failure() const { return failure_; }

  // Why the call should end before its time; a message for the client.
  std::optional<ApiError> Overdue() {
    const int32_t limit = state_.options().request_seconds;
    if (limit > 0 && Clock::now() - begin_ > std::chrono::seconds(limit)) return TimedOut(limit);
    if (output_->overflowed()) return TooSlow();
    return std::nullopt;
  }

 private:
  void Observe(size_t choice, const engine::SequenceDelta& delta) {
    if (delta.tokens.empty()) return;
    const Clock::time_point now = Clock::now();
    Clock::time_point& last = last_token_[choice];
    if (last == Clock::time_point()) {
      state_.metrics().ObserveFirstToken(Seconds(now - begin_));
    } else {
      state_.metrics().ObserveTokenGap(Seconds(now - last));
    }
    last = now;
  }

  ServerState& state_;
  std::unique_ptr<ApiCall> call_;
  const Clock::time_point begin_ = Clock::now();
  std::shared_ptr<CallOutput> output_;
  uint64_t ticket_ = 0;
  sys::HangupWatch::Entry client_;
  std::vector<CallOutput::Event> events_;
  std::vector<Clock::time_point> last_token_;
  Status failure_;
};

void AnswerAtOnce(RunningCall& running, httplib::Response& response, ErrorBody error_body) {
  running.call().Begin(nullptr);
  while (!running.finished()) {
    running.Pump(nullptr, kClockCheck);
    if (running.finished()) break;
    if (const auto error = running.Overdue()) return SendError(response, *error, error_body);
  }
  if (!running.failure().ok()) return SendError(response, FromStatus(running.failure()), error_body);
  running.call().Finish(nullptr);
  SendJson(response, running.call().Response());
}

// What a stream's provider keeps between calls.
struct Stream {
  explicit Stream(std::unique_ptr<RunningCall> call) : running(std::move(call)) {}
  std::unique_ptr<RunningCall> running;
  bool begun = false;
  std::string out;
  Clock::time_point last_write = Clock::now();
};

// Writes the next events, waiting for them. False: the stream is over, or broken.
bool Provide(Stream& stream, httplib::DataSink& sink) {
  RunningCall& running = *stream.running;
  stream.out.clear();
  bool last = false;
  if (!stream.begun) {
    stream.begun = true;
    running.call().Begin(&stream.out);
  }
  while (stream.out.empty() && !last) {
    if (!running.Pump(&stream.out, kClockCheck) && Clock::now() - stream.last_write > kHeartbeat) {
      stream.out += running.call().Heartbeat();
    }
    if (const auto error = running.Overdue()) {
      stream.out += running.call().ErrorEvent(*error);
      last = true;
    } else if (running.finished()) {
      running.call().Finish(&stream.out);
      last = true;
    }
  }
  if (!stream.out.empty() && !sink.write(stream.out.data(), stream.out.size())) return false;
  stream.last_write = Clock::now();
  if (last) sink.done();
  return true;
}

}  // namespace

void SendJson(httplib::Response& response, const Json& body) {
  response.set_content(JsonText(body), "application/json; charset=utf-8");
}

void SendError(httplib::Response& response, const ApiError& error, ErrorBody error_body) {
  response.status = error.http_status;
  if (error.http_status == 429 || error.http_status == 503) response.set_header("Retry-After", kRetrySeconds);
  SendJson(response, error_body(error));
}

ApiError NotReady(const ServerState& state) {
  ApiError error{.http_status = 503, .message = {}, .type = "unavailable_error", .param = {}, .code = {}};
  switch (state.phase()) {
    case ServerState::Phase::kLoading: {
      const ServerState::Loading loading = state.loading();
      error.message = fmt::format("the model is loading{}{}", loading.what.empty() ? "" : ": " + loading.what,
                                  loading.share > 0 ? fmt::format(" {:.0f} %", loading.share * 100) : "");
      error.code = "loading";
      break;
    }
    case ServerState::Phase::kStopping:
      error.message = "the server is shutting down";
      error.code = "stopping";
      break;
    default: error.message = "the model could not be loaded; the server's log says why"; error.code = "failed";
  }
  return error;
}

void HandleCall(ServerState& state, const httplib::Request& request, httplib::Response& response, ParseCall parse,
                ErrorBody error_body) {
  HttpServer::CountAsActive();
  if (state.phase() != ServerState::Phase::kReady) return SendError(response, NotReady(state), error_body);
  const auto body = ParseJsonObject(request.body);
  if (!body.ok()) return SendError(response, FromStatus(body.status()), error_body);
  ParsedCall parsed = parse(state.api(), *body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return SendError(response, *error, error_body);
  auto running = std::make_unique<RunningCall>(state, std::move(std::get<std::unique_ptr<ApiCall>>(parsed)));
  if (const auto error = running->Submit()) return SendError(response, *error, error_body);
  if (!running->call().stream()) return AnswerAtOnce(*running, response, error_body);
  response.set_header("Cache-Control", "no-cache");
  response.set_header("X-Accel-Buffering", "no");
  auto stream = std::make_shared<Stream>(std::move(running));
  response.set_chunked_content_provider(
      "text/event-stream", [stream](size_t, httplib::DataSink& sink) { return Provide(*stream, sink); },
      [stream](bool) { stream->running.reset(); });
}

}  // namespace bellhop::server
