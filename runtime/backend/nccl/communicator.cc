#include "runtime/backend/nccl/communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/thread.h"

namespace distrun::backend::nccl_plugin {
namespace {

constexpr const char* kIdKey = "nccl/id";
constexpr double kStoreSlice = 0.05;  // seconds; an abort is noticed after at most this time
constexpr int kAbortsInGroups = 22200;

}  // namespace

Status nccl_status(const NcclApi& nccl, NcclComm comm, NcclResult code, const char* call) {
  if (code == kNcclSuccess || code == kNcclInProgress) return {};
  const char* what = nccl.error_string(code);
  const char* detail = nccl.last_error(comm);
  std::string text = std::string(call) + ": " + (what == nullptr ? "error " + std::to_string(code) : what);
  if (detail != nullptr && *detail != '\0') text += " (" + std::string(detail) + ")";
  return {Errc::kSystem, "nccl: " + text + ". NCCL_DEBUG=WARN shows more"};
}

Result<bool> Communicator::exchange_id() {
  const distrun_backend_store& store = *spec_.store;
  if (spec_.index == 0) {
    DISTRUN_RETURN_IF_ERROR(check(nccl_.get_unique_id(&id_), "ncclGetUniqueId"));
    if (spec_.members == 1) return true;
    if (store.set(store.context, kIdKey, &id_, sizeof(id_)) == DISTRUN_BACKEND_OK) return true;
    return Status(Errc::kSystem, "nccl: the store of the job did not accept the id of the communicator");
  }
  std::uint64_t size = 0;
  const int code = store.get(store.context, kIdKey, kStoreSlice, &id_, sizeof(id_), &size);
  if (code == DISTRUN_BACKEND_OK && size == sizeof(id_)) return true;
  if (code == DISTRUN_BACKEND_TIMEOUT && Clock::now() < deadline_) return false;
  return Status(code == DISTRUN_BACKEND_TIMEOUT ? Errc::kTimeout : Errc::kSystem,
                "nccl: the first member of the group did not send the id of the communicator within " +
                    std::to_string(static_cast<int>(spec_.seconds)) + " s");
}

Result<bool> Communicator::connect() {
  if (stage_ == Stage::kReady) return true;
  if (!timed_) deadline_ = deadline_after(std::min(spec_.seconds, 1e6));
  timed_ = true;
  if (stage_ == Stage::kNew) {
    auto known = exchange_id();
    if (!known.ok() || !*known) return known;
    NcclConfig config;
    stage_ = Stage::kConnecting;
    DISTRUN_RETURN_IF_ERROR(
        check(nccl_.init(&comm_, spec_.members, id_, spec_.index, &config), "ncclCommInitRankConfig"));
  }
  auto done = accepted();
  if (!done.ok()) return done;
  if (*done) stage_ = Stage::kReady;
  if (!*done && Clock::now() >= deadline_) {
    return Status(Errc::kTimeout, "nccl: the members did not connect within " +
                                      std::to_string(static_cast<int>(spec_.seconds)) +
                                      " s. NCCL_DEBUG=INFO shows how they try to connect");
  }
  return done;
}

Result<bool> Communicator::accepted() {
  if (comm_ == nullptr) return Status(Errc::kSystem, "nccl: the communicator has ended");
  NcclResult state = kNcclSuccess;
  DISTRUN_RETURN_IF_ERROR(check(nccl_.async_error(comm_, &state), "ncclCommGetAsyncError"));
  DISTRUN_RETURN_IF_ERROR(check(state, "the communicator failed"));
  return state == kNcclSuccess;
}

void Communicator::abort() {
  if (stage_ == Stage::kGone) return;
  stage_ = Stage::kGone;
  if (comm_ != nullptr) nccl_.abort(comm_);
  comm_ = nullptr;
}

bool Communicator::close(bool device_idle) {
  if (stage_ == Stage::kReady) {
    stage_ = Stage::kClosing;
    finalized_ = check(nccl_.finalize(comm_), "ncclCommFinalize").ok();
  }
  if (stage_ == Stage::kClosing && finalized_) {
    const auto quiet = accepted();
    if (quiet.ok() && !*quiet) return false;
    finalized_ = quiet.ok();
  }
  if (comm_ != nullptr && !device_idle) return false;
  if (!finalized_) {
    abort();
  } else if (comm_ != nullptr) {
    stage_ = Stage::kGone;
    nccl_.destroy(comm_);
    comm_ = nullptr;
  }
  return true;
}

void abort_together(std::vector<Communicator*> communicators, const Gpu& gpu) {
  if (communicators.empty()) return;
  // Those that are connecting come last: NCCL joins their connecting thread, which may wait for kernels of the others.
  std::stable_partition(communicators.begin(), communicators.end(),
                        [](const Communicator* one) { return !one->is_connecting(); });
  const NcclApi& nccl = communicators.front()->nccl();
  int version = 0;
  nccl.get_version(&version);
  if (communicators.size() == 1 || version >= kAbortsInGroups) {
    const bool group = communicators.size() > 1;
    if (group) nccl.group_start();
    for (Communicator* one : communicators) one->abort();
    if (group) nccl.group_end();
    return;
  }
  std::vector<std::jthread> threads;  // joined at the end of this function
  for (Communicator* one : communicators) {
    auto thread = named_thread("distrun-abort", [one, &gpu] {
      const Current scope = gpu.current();
      one->abort();
    });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      one->abort();
    }
  }
}

}  // namespace distrun::backend::nccl_plugin
