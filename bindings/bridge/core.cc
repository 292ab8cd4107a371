#include "bindings/bridge/core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace distrun::bridge {

CoreApi core;

namespace {

// How long other threads may take to return from calls that have nothing left to wait for.
constexpr auto kDrainTime = std::chrono::seconds(10);
// Pause between two tries if the watch reports an error (no memory). No event tells when it works again.
constexpr auto kRetryTime = std::chrono::milliseconds(20);
// After this many tries detach() continues. The framework then gets no result for operations in flight.
constexpr int kLastRetries = 50;

thread_local int t_own_leases = 0;

}  // namespace

std::string resolve_core(void* library) {
  std::string missing;
#define X(name)                                                           \
  core.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (core.name == nullptr) missing += std::string(missing.empty() ? "" : ", ") + #name;
  DISTRUN_CORE_FUNCTIONS(X)
#undef X
  return missing.empty() ? "" : "libdistrun.so lacks " + missing;
}

Attachment& attachment() {
  static auto* const the_one = new Attachment;
  return *the_one;
}

Attachment::Lease::Lease(Attachment& owner) : owner_(&owner), session_(owner.session_), watch_(owner.watch_) {
  ++owner.leases_;
  ++t_own_leases;
}

Attachment::Lease::~Lease() {
  if (owner_ == nullptr) return;
  --t_own_leases;
  const std::lock_guard lock(owner_->mutex_);
  --owner_->leases_;
  if (owner_->detaching_) owner_->left_.notify_all();
}

void Attachment::Lease::watch(const std::vector<distrun_handle*>& handles, PendingOperation* operation) const noexcept {
  if (core.distrun_watch_add(watch_, handles.data(), handles.size(), operation) == DISTRUN_OK) return;
  // There is no memory, or the session has ended. No other thread can take the operation, so this one waits.
  const auto done = [](distrun_handle* handle) { return core.distrun_poll(handle) != 0; };
  while (!std::all_of(handles.begin(), handles.end(), done)) {
    core.distrun_wait_all(handles.data(), handles.size(), -1.0, nullptr);
  }
  operation->complete();
}

std::string Attachment::attach(distrun_session* session) {
  detach();
  distrun_watch* watch = nullptr;
  if (core.distrun_watch_open(session, &watch) != DISTRUN_OK) {
    auto error = DISTRUN_INIT(distrun_error);
    core.distrun_last_error(&error);
    return error.message;
  }
  std::string failure = start_completer(watch);
  if (!failure.empty()) {
    core.distrun_watch_close(watch);
    return failure;
  }
  const std::lock_guard lock(mutex_);
  numbers_.clear();
  session_ = session;
  watch_ = watch;
  return "";
}

// As in runtime/base/thread.h, which bindings may not include: the thread blocks all signals except those that its
// own faults raise.
std::string Attachment::start_completer(distrun_watch* watch) {
  sigset_t mask;
  sigset_t before;
  sigfillset(&mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&mask, fault);
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  std::string failure;
  try {
    completer_ = std::thread([this, watch] { take_completions(watch); });
    pthread_setname_np(completer_.native_handle(), "distrun-watch");
  } catch (const std::system_error& error) {
    failure = "cannot start the thread distrun-watch: " + error.code().message() +
              ". Is the limit of processes reached (ulimit -u, or pids.max of the container)?";
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return failure;
}

bool Attachment::detach() {
  bool drained = false;
  {
    std::unique_lock lock(mutex_);
    if (session_ == nullptr) return leases_ == 0;  // called again after an operation has never returned
    if (detaching_) return false;
    detaching_ = true;
    // A signal handler that shuts down may run inside an operation of this thread. That operation continues after the
    // handler.
    left_.wait_for(lock, kDrainTime, [this] { return leases_ <= t_own_leases; });
    drained = leases_ == 0;
  }
  core.distrun_watch_end(watch_);
  completer_.join();
  if (drained) core.distrun_watch_close(watch_);
  const std::lock_guard lock(mutex_);
  session_ = nullptr;
  watch_ = nullptr;
  detaching_ = false;
  return drained;
}

std::optional<Attachment::Lease> Attachment::lease() {
  const std::lock_guard lock(mutex_);
  if (session_ == nullptr || detaching_) return std::nullopt;
  return Lease(*this);
}

std::string Attachment::next_number(const std::string& kind, std::int32_t process_set) {
  const std::lock_guard lock(mutex_);
  return std::to_string(numbers_[{kind, process_set}]++);
}

void Attachment::forget_numbers(std::int32_t process_set) {
  const std::lock_guard lock(mutex_);
  std::erase_if(numbers_, [process_set](const auto& entry) { return entry.first.second == process_set; });
}

void Attachment::take_completions(distrun_watch* watch) {
  int last_retries = 0;
  for (;;) {
    void* operation = nullptr;
    const std::int32_t code = core.distrun_watch_next(watch, -1.0, &operation);
    if (code == DISTRUN_OK) {
      static_cast<PendingOperation*>(operation)->complete();
    } else if (code == DISTRUN_SHUT_DOWN) {
      return;
    } else if (code != DISTRUN_INTERRUPTED && code != DISTRUN_TIMEOUT) {
      // The job has ended, but the framework still waits for each operation that it has handed over.
      std::unique_lock lock(mutex_);
      if (detaching_ && ++last_retries > kLastRetries) return;
      left_.wait_for(lock, kRetryTime);
    }
  }
}

}  // namespace distrun::bridge
