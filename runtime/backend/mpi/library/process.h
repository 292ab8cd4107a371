// This process as a task of MPI: which library, who initialises it and who finalises it. MPI is process-wide, so there
// is one of these.
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

// Where this process stands among MPI's tasks; compared between the members of a group.
struct Place {
  int rank = 0;
  int size = 0;
};

// Held around every call of MPI, whatever the library allows: who abandons an operation must know that nobody is in the
// middle of a call that moves it. An MPI built with CUDA takes the thread's current context for that of the memory, and
// any call may move a message of any group.
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
  // Whether MPI could serve `members` ranks of this process's job. Initialises nothing, and loads the library if it
  // may: its symbols are global, and in the way of another MPI that the program loads later.
  Status usable(const Environment& environment, std::uint64_t members, bool may_load);
  [[nodiscard]] bool gpu_aware() const;  // after usable()

  // Initialises MPI unless the program has. Collective over MPI's world where it has not.
  Result<Place> enter();

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] std::string library_name() const;                                  // its file and version, for people
  [[nodiscard]] Turn turn() { return {turn_, exiting_ ? nullptr : gpu_.load()}; }  // in exit() CUDA may have ended
  // The GPU of what MPI is given from now on; it stays until the process has ended.
  void on_gpu(const cuda_parts::Gpu& gpu) { gpu_ = &gpu; }
  [[nodiscard]] Status check(int code, const char* call) const;
  Result<Handle> op_of(DType dtype, ReduceOp reduce);  // on a thread that has its turn

  // Whether the program calls MPI too, as far as can be known: it has initialised it. After enter().
  [[nodiscard]] bool program_calls() const { return !ours_; }
  // An operation was given up while MPI may still look at its memory: MPI is never called again. With the turn, as for
  // keep(): something that MPI may look at until the process ends.
  void abandon() { abandoned_ = true; }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  void keep(std::shared_ptr<void> something) { kept_.push_back(std::move(something)); }
  // MPI_Finalize waits for all tasks, and one that was lost does not come.
  void never_finalize() { finalize_ = false; }
  // A handler of exit() that runs after ours may leave the job yet. Only Open MPI's launcher asks for MPI_Finalize
  // then; to that of the others distrun's own goodbye has been said (PMI), and nothing can follow.
  void group_closed() {
    if (exiting_ && library_->abi == Abi::kOpenMpi) finalize();
  }

 private:
  Status find(const Environment& environment, bool may_load) DISTRUN_REQUIRES(setup_);
  Status initialised_by_program(std::uint64_t members) DISTRUN_REQUIRES(setup_);
  void finalize();

  const distrun_backend_host& host_;
  Mutex setup_;
  std::optional<Library> library_;  // with setup_ until it is found, then as it is
  bool entered_ DISTRUN_GUARDED_BY(setup_) = false;
  Status refused_ DISTRUN_GUARDED_BY(setup_);  // what entering found; every later attempt finds it too
  bool ours_ = false;                          // set by the first enter(), before anything that asks
  pid_t pid_ = 0;                              // where ours_
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
