#include "runtime/backend/mpi/group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"

namespace distrun::backend::mpi_plugin {
namespace {

constexpr double kAnswerSeconds = 1;  // also for a step that has used up the deadline

double seconds_until(TimePoint deadline) {
  return std::max(std::chrono::duration<double>(deadline - Clock::now()).count(), 0.0);
}

Result<std::string> read(const distrun_backend_group_spec& spec, const std::string& key, double seconds) {
  std::array<char, 1024> text{};
  std::uint64_t size = 0;
  const int code = spec.store->get(spec.store->context, key.c_str(), seconds, text.data(), text.size(), &size);
  if (code == DISTRUN_BACKEND_OK) return std::string(text.data(), std::min<std::uint64_t>(size, text.size()));
  return Status(code == DISTRUN_BACKEND_TIMEOUT ? Errc::kTimeout : Errc::kSystem, "mpi: no rank has set " + key);
}

Status write(const distrun_backend_group_spec& spec, const std::string& key, const std::string& text) {
  const int code = spec.store->set(spec.store->context, key.c_str(), text.data(), text.size());
  return code == DISTRUN_BACKEND_OK ? Status()
                                    : Status(Errc::kSystem, "mpi: the store of the job did not accept " + key);
}

// Computes the result on the first member. It is ok if all members came to the step with an ok status.
Status collect(const distrun_backend_group_spec& spec, const std::string& step, const Status& mine, double seconds) {
  const TimePoint until = deadline_after(seconds);
  Status common = mine;
  Status silent;
  for (std::uint64_t member = 1; member < spec.num_members; ++member) {
    const std::string who = "rank " + std::to_string(spec.members[member]);
    const auto blob = read(spec, step + "/" + std::to_string(member), seconds_until(until));
    if (!blob.ok() && silent.ok()) silent = blob.status().with_context(who + " did not answer in time");
    if (blob.ok() && !blob->empty() && common.ok()) common = Status(Errc::kUnsupported, who + ": " + *blob);
  }
  return common.ok() ? silent : common;
}

// Makes all members agree on one outcome, by the deadline. Call it before each collective step: a collective call of
// MPI never returns if one member does not make it.
Status agree(const distrun_backend_group_spec& spec, const std::string& step, const Status& mine, TimePoint deadline) {
  if (spec.num_members == 1) return mine;  // a job of one rank has no store
  const double seconds = std::max(seconds_until(deadline), kAnswerSeconds);
  if (spec.index == 0) {
    const Status verdict = collect(spec, step, mine, seconds);
    const Status written = write(spec, step + "/verdict", verdict.ok() ? "" : verdict.message());
    return verdict.ok() ? written : verdict;
  }
  DISTRUN_RETURN_IF_ERROR(
      write(spec, step + "/" + std::to_string(spec.index), mine.ok() ? std::string() : mine.message()));
  const auto verdict = read(spec, step + "/verdict", seconds + 2 * kAnswerSeconds);
  if (!verdict.ok()) return mine.ok() ? verdict.status() : mine;
  return verdict->empty() ? Status() : Status(Errc::kUnsupported, *verdict);
}

// The error for a launcher that belongs to another MPI than the library. Such a library treats each process as a job of
// its own.
Status other_worlds(const Process& process, const std::string& what) {
  return {
      Errc::kUnsupported,
      process.library_name() + " " + what +
          ": the launcher belongs to another MPI, or ran several times. Start all ranks with one mpirun of this MPI, "
          "or with distrun --mpi (--mpi=hydra for MPICH and Intel MPI). Or put the library of the launcher's MPI into "
          "LD_LIBRARY_PATH"};
}

// Exchanges the MPI ranks of the members through the job's store. MPI's tasks may be in another order than distrun's
// ranks.
Result<std::vector<int>> exchange_ranks(const Process& process, const distrun_backend_group_spec& spec,
                                        const Place& place, TimePoint deadline) {
  if (spec.num_members == 1) return std::vector<int>{place.rank};
  DISTRUN_RETURN_IF_ERROR(write(spec, "task/" + std::to_string(spec.index), std::to_string(place.rank)));
  if (static_cast<std::uint64_t>(place.size) < spec.num_members) {
    return other_worlds(process, "puts this rank into a world of " + std::to_string(place.size) + ", and these are " +
                                     std::to_string(spec.num_members) + " ranks");
  }
  std::vector<int> ranks;
  for (std::uint64_t member = 0; member < spec.num_members; ++member) {
    const auto text = read(spec, "task/" + std::to_string(member), seconds_until(deadline));
    if (!text.ok()) return text.status();
    int rank = -1;
    std::from_chars(text->data(), text->data() + text->size(), rank);
    if (rank < 0 || rank >= place.size) {
      return Status(Errc::kSystem, "member " + std::to_string(member) + " did not send its rank in MPI's world");
    }
    ranks.push_back(rank);
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    return other_worlds(process, "puts the ranks into several worlds");
  }
  return ranks;
}

}  // namespace

Result<std::unique_ptr<MpiGroup>> MpiGroup::create(Process& process, const distrun_backend_group_spec& spec,
                                                   plugin::Host host) {
  std::unique_ptr<MpiGroup> group(
      new MpiGroup(process, spec.device_type == DISTRUN_BACKEND_CUDA, host));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(group->connect(spec));
  return group;
}

Status MpiGroup::connect(const distrun_backend_group_spec& spec) {
  const TimePoint deadline = deadline_after(std::min(spec.seconds, 1e6));
  DISTRUN_RETURN_IF_ERROR(agree(spec, "init", {}, deadline));
  const auto place = process_.enter();
  DISTRUN_RETURN_IF_ERROR(agree(spec, "place", place.status(), deadline));
  const auto ranks = exchange_ranks(process_, spec, *place, deadline);
  DISTRUN_RETURN_IF_ERROR(agree(spec, "group", ranks.status(), deadline));
  channel_ = {.process = &process_,
              .memory = memory_.get(),
              .comm = nullptr,
              .index = spec.index,
              .members = static_cast<int>(ranks->size())};
  return make_communicator(spec.id, *ranks);
}

Status MpiGroup::make_communicator(const std::string& id, const std::vector<int>& ranks) {
  const auto turn = process_.turn();
  const Functions& call = process_.library().call;
  const Constants& is = process_.library().is;
  constexpr std::size_t kTags = 32767;  // the largest tag that every MPI supports
  const int tag = static_cast<int>(std::hash<std::string>()(id) % kTags);
  Handle world = nullptr;
  Handle members = nullptr;
  const auto checked = [this](int code, const char* what) { return process_.check(code, what); };
  DISTRUN_RETURN_IF_ERROR(checked(call.Comm_group(is.world, &world), "MPI_Comm_group"));
  const int count = static_cast<int>(ranks.size());
  DISTRUN_RETURN_IF_ERROR(checked(call.Group_incl(world, count, ranks.data(), &members), "MPI_Group_incl"));
  DISTRUN_RETURN_IF_ERROR(
      checked(call.Comm_create_group(is.world, members, tag, &channel_.comm), "MPI_Comm_create_group"));
  call.Group_free(&members);
  call.Group_free(&world);
  return checked(call.Comm_set_errhandler(channel_.comm, is.errors_return), "MPI_Comm_set_errhandler");
}

MpiGroup::~MpiGroup() {
  const auto turn = process_.turn();
  // This loop ends, because the device finishes its work by itself.
  for (const Status closed(Errc::kAborted, "the group was closed"); !operations_.empty() || !device_.empty();) {
    give_up(closed);
    std::this_thread::yield();
  }
  if (channel_.comm == nullptr || process_.abandoned() || !aborted_.why().ok()) return;
  int finalized = 0;
  process_.library().call.Finalized(&finalized);
  if (finalized == 0) process_.library().call.Comm_free(&channel_.comm);
}

// Ok while MPI may be called. Call it with a Turn held (library/process.h), like give_up() and progress_device().
Status MpiGroup::usable() const {
  if (Status why = aborted_.why(); !why.ok()) return why;
  if (!process_.abandoned()) return {};
  return {Errc::kAborted, "mpi: an operation of another group was given up, and MPI cannot continue after that"};
}

void MpiGroup::start(const distrun_backend_operation& operation, std::uint64_t token) {
  const auto turn = process_.turn();
  if (const Status status = usable(); !status.ok()) return host_.complete(token, status);
  if (on_device_) return device_.start(channel_, operation, token);
  // No exception may leave a plug-in. MPI keeps what it was given before an exception.
  Status started;
  try {
    operations_.push_back(std::make_unique<HostOperation>(channel_, operation, token));
  } catch (const std::bad_alloc&) {
    return host_.complete(token, {Errc::kOutOfMemory, "mpi: no memory for an operation"});
  }
  try {
    started = operations_.back()->start();
  } catch (const std::bad_alloc&) {
    started = {Errc::kOutOfMemory, "mpi: no memory for an operation's messages"};
  }
  if (!started.ok()) give_up(started);
}

bool MpiGroup::progress() {
  const auto turn = process_.turn();
  if (const Status status = usable(); !status.ok()) {
    give_up(status);
    return false;
  }
  if (on_device_) return progress_device();
  bool any = false;
  bool around = false;  // an operation that uses the ring was tested
  for (std::size_t i = 0; i < operations_.size();) {
    if (operations_[i]->goes_around() && std::exchange(around, true)) {
      ++i;
      continue;
    }
    if (const Status status = operations_[i]->test(); !status.ok()) {
      give_up(status);
      return true;
    }
    if (!operations_[i]->done()) {
      ++i;
      continue;
    }
    operations_[i]->finish();
    const std::uint64_t token = operations_[i]->token();
    operations_.erase(operations_.begin() + static_cast<std::ptrdiff_t>(i));
    host_.complete(token, {});
    any = true;
  }
  return any;
}

bool MpiGroup::progress_device() {
  const auto moved = device_.progress();
  if (!moved.ok()) give_up(moved.status());
  return !moved.ok() || *moved;
}

// MPI cannot cancel a collective operation, and any call of MPI may move pending ones. distrun makes no more calls of
// MPI in this process. The program may still do so if it has initialised MPI; in that case the operations do not use
// the tensors' memory. So the tensors' memory is free again in both cases. The memory that MPI was given is kept until
// the process ends.
void MpiGroup::give_up(const Status& why) {
  if (operations_.empty() && device_.empty()) return;
  process_.abandon();
  device_.give_up(why);
  if (!operations_.empty()) process_.keep(memory_);  // not in each call that only waits for the device
  for (auto& one : std::exchange(operations_, {})) {
    host_.complete(one->token(), why);
    process_.keep(std::move(one));
  }
}

void MpiGroup::abort(std::int32_t code, const char* cause) {
  process_.never_finalize();
  aborted_.set(code, cause);
}

}  // namespace distrun::backend::mpi_plugin
