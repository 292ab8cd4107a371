// NCCL's communicator of one group. All calls return at once (NCCL's non-blocking mode) and are asked for their outcome
// afterwards, so that a peer that never comes cannot hold a thread. On the lane's thread, with the GPU current.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/nccl/nccl_api.h"
#include "runtime/backend/plugin/guest.h"
#include "runtime/base/clock.h"

namespace distrun::backend::nccl_plugin {

// What NCCL answered as a Status; kNcclInProgress is no error.
Status nccl_status(const NcclApi& nccl, NcclComm comm, NcclResult code, const char* call);

class Communicator {
 public:
  struct Spec {
    int index = 0;
    int members = 1;
    double seconds = 0;                            // for connecting
    const distrun_backend_store* store = nullptr;  // outlives this
  };
  Communicator(const NcclApi& nccl, Spec spec) : nccl_(nccl), spec_(spec) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // A step towards being connected: true when it is. Member 0 makes the id and the job's store carries it.
  Result<bool> connect();
  // Whether NCCL has taken what was called last; an error also when anything has gone wrong since.
  Result<bool> settled();
  // Takes back what is in flight on the device. Nothing may be called afterwards. What NCCL frees then waits until the
  // device has done all that it was given, so for other communicators of this GPU too: abort_together().
  void abort();
  // A step towards being closed in good order, which needs the peers: true when it is, or has failed. `at_rest`:
  // nothing of any communicator is on the device, for which NCCL would wait where it frees memory.
  bool close(bool at_rest);
  // Nothing has been made yet; what makes it may wait for the device as well.
  [[nodiscard]] bool is_new() const { return stage_ == Stage::kNew; }
  [[nodiscard]] bool is_connecting() const { return stage_ == Stage::kConnecting; }

  [[nodiscard]] NcclComm get() const { return comm_; }
  [[nodiscard]] const NcclApi& nccl() const { return nccl_; }

 private:
  Result<bool> exchange_id();
  [[nodiscard]] Status check(NcclResult code, const char* call) const { return nccl_status(nccl_, comm_, code, call); }

  enum class Stage { kNew, kConnecting, kReady, kClosing, kGone };
  const NcclApi& nccl_;
  const Spec spec_;
  Stage stage_ = Stage::kNew;
  bool timed_ = false;
  bool finalized_ = false;
  TimePoint deadline_;
  NcclUniqueId id_{};
  NcclComm comm_ = nullptr;
};

// All of them at once, so that none waits for a kernel of another one that waits for a peer which is gone. As NCCL has
// it from 2.22 on in one group of calls, before that on a thread for each (NVIDIA/nccl issues 549, 1013).
void abort_together(std::vector<Communicator*> communicators, const Gpu& gpu);

}  // namespace distrun::backend::nccl_plugin
