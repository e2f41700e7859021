#include "moe/doorbell_service.h"

#include <algorithm>
#include <system_error>

#include "sys/spin_wait.h"
#include "sys/thread_affinity.h"

namespace bellhop::moe {
namespace {

// Looks at the flag between two yields. With a core of its own a yield returns at once; on a shared one, it lets the
// thread run that the service waits for.
constexpr int kLooksPerYield = 256;

}  // namespace

bool ColdPathRunner::RunMisses(const MissRequest& request) {
  cold_->Run({.layer = request.layer,
              .numeric_class = NumericClass::kDecode,
              .routes = request.routes,
              .x = request.x,
              .y = {},
              .sums = request.sums,
              .inner = inner_.empty() ? RowRange{} : inner_[request.layer.index()],
              .ready = ready_.empty() ? nullptr : ready_[request.layer.index()]});
  return true;
}

bool InstantRunner::RunMisses(const MissRequest& request) {
  for (int64_t m = 0; m < request.sums.rows; ++m) {
    cuda::PublishSums(zeros_.data(), request.sums.cols, request.sums.Row(m));
  }
  return true;
}

Result<std::unique_ptr<DoorbellService>> DoorbellService::Create(const cuda::DoorbellChannel& channel,
                                                                 MissRunner* runner, Options options) {
  if (channel.header == nullptr || runner == nullptr) {
    return InvalidArgument("the doorbell service needs a channel and something that runs misses");
  }
  BELLHOP_TRY(cuda::DoorbellDeviceStatus(channel));
  cuda::StoreReleaseSystem(&channel.header->abort, 0);  // of a service that was stopped
  auto service = std::unique_ptr<DoorbellService>(new DoorbellService(channel, runner, std::move(options)));
  try {
    service->thread_ = std::thread([s = service.get()] { s->Loop(); });
  } catch (const std::system_error& error) {
    return Internal("cannot start the doorbell thread: {}; raise the limit on threads (ulimit -u)", error.what());
  }
  return service;
}

DoorbellService::DoorbellService(const cuda::DoorbellChannel& channel, MissRunner* runner, Options options)
    : channel_(channel), runner_(runner), options_(std::move(options)), sums_(channel) {
  skip_.resize(static_cast<size_t>(channel.max_rows) * static_cast<size_t>(channel.max_used));
  last_seq_ = cuda::LoadAcquireSystem(channel.header->done_seq);
}

DoorbellService::~DoorbellService() { Stop(); }

void DoorbellService::SetControl(uint32_t value) {
  // Sequentially consistent, as in WaitForStep: either the thread sees the new word before it sleeps, or it is seen
  // sleeping here.
  control_.store(value);
  if (sleeping_.load()) sys::FutexWakeAll(control_);
}

Status DoorbellService::BeginStep() {
  if (poison_.poisoned()) return poison_.status();
  SetControl(kInStep);
  return Status();
}

Status DoorbellService::EndStep() {
  if (!thread_.joinable()) return poison_.status();
  SetControl(0);
  if (cuda::LoadAcquireSystem(channel_.header->failed) != 0) (void)poison_.Set(cuda::DoorbellDeviceStatus(channel_));
  return poison_.status();
}

void DoorbellService::Abort(Status reason) {
  if (reason.ok()) reason = Cancelled("the doorbell was aborted; load the model again");
  (void)poison_.Set(std::move(reason));
  cuda::StoreReleaseSystem(&channel_.header->abort, 1);
}

void DoorbellService::Stop() {
  if (!thread_.joinable()) return;
  // Nobody answers any more, so a device that waits must not wait for its deadline.
  Abort(Cancelled("the doorbell service has been stopped"));
  SetControl(kStop);
  thread_.join();
}

void DoorbellService::WaitForStep(uint32_t control) {
  if (sys::SpinUntilChanged(control_, control, int64_t{options_.linger_us} * 1000)) return;
  sleeping_.store(true);
  if (control_.load() == control) sys::FutexWait(control_, control);
  sleeping_.store(false);
}

void DoorbellService::Loop() {
  if (options_.cpu >= 0) (void)sys::PinThisThread(options_.cpu);
  for (int looks = 0;;) {
    // Acquire; pairs with SetControl.
    const uint32_t control = control_.load(std::memory_order_acquire);
    if (control == kStop) return;
    if (control != kInStep) {
      WaitForStep(control);
      continue;
    }
    if (const uint64_t seq = cuda::LoadAcquireSystem(channel_.header->req_seq); seq > last_seq_) {
      Serve(seq);
      continue;
    }
    sys::CpuRelax();
    if (++looks % kLooksPerYield == 0) std::this_thread::yield();
  }
}

bool DoorbellService::ReadRoutes(const cuda::DoorbellRequest& request) {
  const auto layers = static_cast<int32_t>(options_.experts_per_layer.size());
  if (request.layer < 0 || request.layer >= layers) return false;
  if (request.rows < 1 || request.rows > channel_.max_rows) return false;
  if (request.used < 1 || request.used > channel_.max_used) return false;
  const int32_t experts = options_.experts_per_layer[static_cast<size_t>(request.layer)];
  uint32_t misses = 0;
  for (int32_t r = 0; r < request.rows * request.used; ++r) {
    const int32_t id = channel_.ids[r];
    if (id >= experts) return false;
    skip_[static_cast<size_t>(r)] = id < 0;
    if (id < 0) continue;
    ++misses;
    if ((request.miss_rows >> (r / request.used) & 1u) == 0) return false;
  }
  return misses == request.misses;
}

void DoorbellService::Serve(uint64_t seq) {
  const cuda::DoorbellRequest& request = channel_.header->request;
  if (request.seq != seq || !ReadRoutes(request)) {
    sums_.Refuse(seq, cuda::ServiceError::kBadRequest);
  } else if (!runner_->RunMisses({.layer = LayerId(request.layer),
                                  .placement = request.placement,
                                  .routes = {request.rows, request.used, channel_.ids, channel_.weights, skip_.data()},
                                  .x = {channel_.x, request.rows, channel_.hidden, channel_.stride},
                                  .sums = sums_.Of(seq, request.rows)})) {
    // Here too: the device may have had all sums by then.
    (void)poison_.Set(Internal("layer {}: the cold path failed", request.layer));
    sums_.Refuse(seq, cuda::ServiceError::kFailed);
  }
  last_seq_ = seq;
  served_.fetch_add(1, std::memory_order_relaxed);
  cuda::StoreReleaseSystem(&channel_.header->done_seq, last_seq_);
  sums_.Answered(seq);
}

}  // namespace bellhop::moe
