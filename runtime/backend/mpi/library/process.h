// This process as an MPI task: its library, and who initialises and finalises it. MPI is process-wide, so there is one
// object of this class.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/mpi/library/library.h"
#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/annotations.h"
#include "runtime/base/environment.h"

namespace distrun::backend::mpi_plugin {

// The position of this process among MPI's tasks. The members of a group compare it.
struct Place {
  int rank = 0;
  int size = 0;
};

// A lock that is held around every call of MPI, at any thread level: a thread that abandons an operation must know that
// no other thread is in a call that moves it. An MPI built with CUDA assumes that memory belongs to the thread's
// current context, and any call may move a message of any group. So this makes the GPU's context current.
class Turn {
 public:
  Turn(std::mutex& mutex, const cuda_parts::Gpu* gpu) : lock_(mutex) {
    if (gpu != nullptr) gpu->make_current(current_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  std::optional<cuda_parts::Current> current_;
};

class Process {
 public:
  explicit Process(const distrun_backend_host& host) : host_(host) {}
  // Whether MPI can serve `members` ranks of this process's job. Does not initialise MPI. Loads the library only if
  // `may_load`, because its symbols are global and conflict with another MPI that the program loads later.
  Status usable(const Environment& environment, std::uint64_t members, bool may_load);
  [[nodiscard]] bool gpu_aware() const;  // after usable()

  // Initialises MPI, unless the program has done so. The initialisation is collective over MPI's world.
  Result<Place> enter();

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] std::string library_name() const;                                  // its file and version, for messages
  [[nodiscard]] Turn turn() { return {turn_, exiting_ ? nullptr : gpu_.load()}; }  // in exit() CUDA may have ended
  // Sets the GPU for the memory that MPI gets from now on. It stays set until the process ends.
  void on_gpu(const cuda_parts::Gpu& gpu) { gpu_ = &gpu; }
  [[nodiscard]] Status check(int code, const char* call) const;
  Result<Handle> op_of(DType dtype, ReduceOp reduce);  // call it with a Turn held

  // Whether the program calls MPI too. This is assumed if the program has initialised MPI. Call it after enter().
  [[nodiscard]] bool program_calls() const { return !ours_; }
  // abandon(): an operation was given up while MPI may still access its memory, so MPI is never called again. keep()
  // holds an object that MPI may access until the process ends. Call both with a Turn held.
  void abandon() { abandoned_ = true; }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  void keep(std::shared_ptr<void> something) { kept_.push_back(std::move(something)); }
  // MPI_Finalize waits for all tasks, and a lost task never calls it.
  void never_finalize() { finalize_ = false; }
  // Call this after a group has been closed. A handler of exit() that runs after this plug-in's handler may still leave
  // the job. Only Open MPI's launcher requires MPI_Finalize then. For the other launchers distrun has already sent its
  // own goodbye (PMI), and no call may follow it.
  void group_closed() {
    if (exiting_ && library_->abi == Abi::kOpenMpi) finalize();
  }

 private:
  Status find(const Environment& environment, bool may_load) DISTRUN_REQUIRES(setup_);
  Status initialised_by_program(std::uint64_t members) DISTRUN_REQUIRES(setup_);
  void finalize();

  const distrun_backend_host& host_;
  Mutex setup_;
  std::optional<Library> library_;  // guarded by setup_ until it is found, constant afterwards
  bool entered_ DISTRUN_GUARDED_BY(setup_) = false;
  Status refused_ DISTRUN_GUARDED_BY(setup_);  // the error of enter(); every later attempt returns it too
  bool ours_ = false;                          // set by the first enter(), before any reader
  pid_t pid_ = 0;                              // valid if ours_
  int tasks_ DISTRUN_GUARDED_BY(setup_) = 0;
  std::mutex turn_;
  std::array<std::array<Handle, kNumReduceOps>, kNumDTypes> ops_ DISTRUN_GUARDED_BY(setup_){};
  std::vector<std::shared_ptr<void>> kept_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> finalize_{true};
  std::atomic<bool> exiting_{false};
  std::atomic<const cuda_parts::Gpu*> gpu_{nullptr};
};

}  // namespace distrun::backend::mpi_plugin
