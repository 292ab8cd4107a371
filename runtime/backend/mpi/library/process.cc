#include "runtime/backend/mpi/library/process.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/backend/kernels/kernels.h"
#include "runtime/backend/mpi/library/gpu_aware.h"
#include "runtime/net/launchers/other_launcher.h"

namespace distrun::backend::mpi_plugin {
namespace {

Process* to_finalize = nullptr;  // written once, before the handler below is registered

template <int dtype, int op>
void combine(void* in, void* inout, int* count, Handle*) {
  const std::array<const std::byte*, 2> sources = {static_cast<const std::byte*>(in),
                                                   static_cast<const std::byte*>(inout)};
  kernels::reduce({.dtype = static_cast<DType>(dtype), .op = static_cast<ReduceOp>(op), .finish = {}}, sources,
                  static_cast<std::byte*>(inout), static_cast<std::size_t>(*count));
}

template <int... index>
constexpr auto combiners(std::integer_sequence<int, index...>) {
  return std::array<UserFunction*, sizeof...(index)>{&combine<index / kNumReduceOps, index % kNumReduceOps>...};
}
constexpr auto kCombiners = combiners(std::make_integer_sequence<int, kNumDTypes * kNumReduceOps>());

// MPI's built-in operation, if all its results are as docs/reference/numerics.md defines them; otherwise null. Minimum
// and maximum of floats differ for NaN. Sums of small integers differ because Open MPI's vector code saturates them.
// Products of complex numbers differ for infinities.
Handle built_in(const Constants& is, DType dtype, ReduceOp reduce) {
  if (size_of(dtype) < 4 || traits_of(dtype).family == DTypeFamily::kComplex) return nullptr;
  const bool is_float = traits_of(dtype).family == DTypeFamily::kFloat;
  if (reduce == ReduceOp::kSum) return is.sum;
  if (reduce == ReduceOp::kProduct) return is.product;
  if (is_float) return nullptr;
  return reduce == ReduceOp::kMin ? is.min : is.max;
}

// This process as an MPI task, according to the environment variables.
struct Task {
  int size = 0;  // 0: only MPI knows
  bool pmi = false;
};

std::optional<Task> task_of(const Environment& environment) {
  const auto launcher = net::other_launcher(environment);
  if (!launcher.ok()) return std::nullopt;
  if (launcher->has_value()) {
    return Task{.size = (*launcher)->size, .pmi = (*launcher)->exchange == net::OtherLauncher::Exchange::kPmi};
  }
  // A launcher with one task. other_launcher() does not report it, because only MPI needs it.
  if (environment.contains("OMPI_COMM_WORLD_SIZE")) return Task{.size = 1};
  if (environment.contains("PMI_FD")) return Task{.size = 1, .pmi = true};
  return std::nullopt;
}

// Whether distrun's own init has found the other ranks through PMIx in this process. PMIx 5 serves only the first user
// in a process.
bool joined_through_pmix(const Environment& environment) {
  if (environment.contains("DISTRUN_RANK")) return false;
  const auto launcher = net::other_launcher(environment);
  return launcher.ok() && launcher->has_value() && (*launcher)->exchange == net::OtherLauncher::Exchange::kPmix;
}

std::string version_of(const Library& library) {
  std::array<char, kLibraryVersionBytes> text{};
  int length = 0;
  return library.call.Get_library_version(text.data(), &length) == kSuccess ? text.data() : "";
}

// 0 for another MPI.
int open_mpi_major(const Library& library) {
  constexpr std::string_view kName = "Open MPI v";
  const std::string version = library.abi == Abi::kOpenMpi ? version_of(library) : "";
  return version.starts_with(kName) ? std::atoi(version.c_str() + kName.size()) : 0;
}

Status too_few(int tasks, std::uint64_t members) {
  return {Errc::kUnsupported, "MPI's world has " + std::to_string(tasks) + " tasks, and this group has " +
                                  std::to_string(members) + " ranks. Start them with mpirun, mpiexec or distrun --mpi"};
}

// The libraries to look for, the most likely one first.
std::vector<Abi> most_likely(const Task& task, const Environment& environment) {
  if (task.pmi) return {Abi::kStandard, Abi::kOpenMpi};
  if (environment.contains("OMPI_COMM_WORLD_SIZE")) return {Abi::kOpenMpi};
  return {Abi::kOpenMpi, Abi::kStandard};
}

}  // namespace

Status Process::usable(const Environment& environment, std::uint64_t members, bool may_load) {
  const MutexLock lock(setup_);
  if (abandoned_) return {Errc::kUnsupported, "an operation of MPI was given up, and MPI cannot continue after that"};
  if (!refused_.ok()) return refused_;
  if (!entered_) DISTRUN_RETURN_IF_ERROR(find(environment, may_load));
  int flag = 0;
  library_->call.Finalized(&flag);
  if (flag != 0) return {Errc::kUnsupported, "the program has finalised MPI"};
  library_->call.Initialized(&flag);
  if (flag != 0 && !entered_) return initialised_by_program(members);
  if (flag == 0 && joined_through_pmix(environment) && open_mpi_major(*library_) >= 5) {
    return {Errc::kUnsupported,
            "initialise MPI before distrun (import mpi4py.MPI), or start the job with distrun --mpi: MPI_Init of Open "
            "MPI 5 fails after distrun has used PMIx"};
  }
  const bool known = tasks_ > 0;  // under srun --mpi=pmix only MPI knows the number
  return known && static_cast<std::uint64_t>(tasks_) < members ? too_few(tasks_, members) : Status();
}

// A process that only inherited the variables of an MPI task is not a task. Ranks of distrun keep these variables only
// under --mpi, where each rank is the only process of its task that calls MPI.
Status Process::find(const Environment& environment, bool may_load) {
  auto loaded = loaded_library();
  if (!loaded.ok() && loaded.status().code() != Errc::kNotInitialized) return loaded.status();
  const std::optional<Task> task = task_of(environment);
  if (task) tasks_ = task->size;
  if (loaded.ok()) {
    library_ = *std::move(loaded);
    int initialised = 0;
    library_->call.Initialized(&initialised);
    if (initialised != 0) return {};
  }
  if (!task) {
    return {Errc::kUnsupported,
            "no launcher of MPI started this process. Start the job with mpirun, mpiexec or "
            "distrun --mpi"};
  }
  if (library_) return {};
  if (!may_load) {
    return {Errc::kUnsupported, "it is used only with --backend mpi or --between-hosts mpi"};
  }
  auto found = load_library(most_likely(*task, environment));
  if (!found.ok()) return found.status();
  library_ = *std::move(found);
  return {};
}

Status Process::initialised_by_program(std::uint64_t members) {
  int level = 0;
  library_->call.Query_thread(&level);
  if (level < library_->is.thread_multiple) {
    return {Errc::kUnsupported,
            "the program initialised MPI without MPI_THREAD_MULTIPLE. Ask for it in MPI_Init_thread, or call init() of "
            "distrun first"};
  }
  library_->call.Comm_size(library_->is.world, &tasks_);
  return static_cast<std::uint64_t>(tasks_) < members ? too_few(tasks_, members) : Status();
}

std::string Process::library_name() const {
  const std::string version = version_of(*library_);
  const std::string name = version.substr(0, version.find_first_of(",\n"));  // details follow
  return name.empty() ? library_->file : library_->file + " (" + name + ")";
}

bool Process::gpu_aware() const { return says_gpu_aware(library_->opened); }

Result<Place> Process::enter() {
  const MutexLock lock(setup_);
  const Functions& call = library_->call;
  if (!entered_) {
    int initialised = 0;
    call.Initialized(&initialised);
    int level = library_->is.thread_multiple;
    if (initialised == 0) {
      DISTRUN_RETURN_IF_ERROR(check(call.Init_thread(nullptr, nullptr, level, &level), "MPI_Init_thread"));
      ours_ = true;
      pid_ = ::getpid();
    }
    entered_ = true;
    to_finalize = this;
    if (ours_) std::atexit([] { to_finalize->finalize(); });
    if (level < library_->is.thread_serialized) {
      refused_ = {Errc::kUnsupported,
                  library_->file + " allows calls of one thread only, and distrun needs MPI_THREAD_SERIALIZED"};
    }
  }
  if (!refused_.ok()) return refused_;
  Place place;
  DISTRUN_RETURN_IF_ERROR(check(call.Comm_rank(library_->is.world, &place.rank), "MPI_Comm_rank"));
  DISTRUN_RETURN_IF_ERROR(check(call.Comm_size(library_->is.world, &place.size), "MPI_Comm_size"));
  return place;
}

// Runs in exit(). A forked child may call exit() too, but MPI belongs to its parent. If other ranks still wait for this
// rank's tensors, they do not reach MPI_Finalize. Then do not wait for them: they must see that this process has ended.
void Process::finalize() {
  if (::getpid() != pid_ || abandoned_ || !finalize_) return;
  exiting_ = true;
  if (host_.in_job() != 0) return;
  const auto mine = turn();
  int finalized = 0;
  library_->call.Finalized(&finalized);
  if (finalized == 0) library_->call.Finalize();
  abandon();  // in a job of one rank, the engine's thread may still be running
}

Status Process::check(int code, const char* call) const {
  if (code == kSuccess) return {};
  std::array<char, kErrorStringBytes> text{};
  int length = 0;
  library_->call.Error_string(code, text.data(), &length);
  return {Errc::kSystem, std::string(call) + ": " + text.data()};
}

Result<Handle> Process::op_of(DType dtype, ReduceOp reduce) {
  const ReduceOp op = reduce == ReduceOp::kAverage ? ReduceOp::kSum : reduce;
  if (Handle own = built_in(library_->is, dtype, op); own != nullptr) return own;
  const MutexLock lock(setup_);
  Handle& made = ops_[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  if (made != nullptr) return made;
  const auto index = static_cast<std::size_t>(dtype) * kNumReduceOps + static_cast<std::size_t>(op);
  DISTRUN_RETURN_IF_ERROR(check(library_->call.Op_create(kCombiners[index], 1, &made), "MPI_Op_create"));
  return made;
}

}  // namespace distrun::backend::mpi_plugin
