// The NCCL communicator of one group. All calls return at once (NCCL's non-blocking mode), and their outcome is polled
// later. So a missing peer cannot block a thread. Only the lane's thread calls this, with the GPU current.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/nccl/nccl_api.h"
#include "runtime/backend/plugin/plugin_side.h"
#include "runtime/base/clock.h"

namespace distrun::backend::nccl_plugin {

// An NCCL result as a Status. kNcclInProgress is not an error.
Status nccl_status(const NcclApi& nccl, NcclComm comm, NcclResult code, const char* call);

class Communicator {
 public:
  struct Spec {
    int index = 0;
    int members = 1;
    double seconds = 0;                            // time limit for connecting
    const distrun_backend_store* store = nullptr;  // outlives this object
  };
  Communicator(const NcclApi& nccl, Spec spec) : nccl_(nccl), spec_(spec) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Makes a step of connecting, and returns true when connected. Member 0 creates the id, and the job's store carries
  // it.
  Result<bool> connect();
  // Whether NCCL has accepted the last call. Also returns an error if anything has failed since.
  Result<bool> accepted();
  // Aborts the work of this communicator on the device. No method may be called afterwards. NCCL then frees memory, and
  // this waits until the device has done all its work, also that of other communicators of this GPU: use
  // abort_together().
  void abort();
  // Makes a step of closing normally, which needs the peers. Returns true when it has closed or failed. `device_idle`:
  // no communicator has work on the device. Otherwise NCCL would wait for that work when it frees memory.
  bool close(bool device_idle);
  // Nothing has been created yet. Creating it may wait for the device as well.
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

// Aborts all of them at once. Otherwise one could wait for a kernel of another that waits for a lost peer. NCCL 2.22
// and newer do this in one group of calls. For older versions it uses one thread for each (NVIDIA/nccl issues 549,
// 1013).
void abort_together(std::vector<Communicator*> communicators, const Gpu& gpu);

}  // namespace distrun::backend::nccl_plugin
