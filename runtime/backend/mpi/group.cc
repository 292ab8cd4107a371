#include "runtime/backend/mpi/group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>
#include <utility>

#include "runtime/base/clock.h"

namespace distrun::backend::mpi_plugin {
namespace {

// Where each member is among MPI's tasks, by the job's store: ranks need not be in the same order as tasks.
Result<std::vector<int>> exchange_ranks(const distrun_backend_group_spec& spec, const Place& place) {
  if (spec.num_members == 1) return std::vector<int>{place.rank};  // a world of one has no store
  const distrun_backend_store& store = *spec.store;
  const TimePoint deadline = deadline_after(std::min(spec.seconds, 1e6));
  const std::string mine = std::to_string(place.rank);
  const std::string own_key = "task/" + std::to_string(spec.index);
  if (store.set(store.context, own_key.c_str(), mine.data(), mine.size()) != DISTRUN_BACKEND_OK) {
    return Status(Errc::kSystem, "the job's store did not take this rank's place in MPI's world");
  }
  std::vector<int> ranks;
  for (std::uint64_t member = 0; member < spec.num_members; ++member) {
    std::array<char, 16> text{};
    std::uint64_t size = 0;
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    const std::string key = "task/" + std::to_string(member);
    const int code = store.get(store.context, key.c_str(), std::max(left, 0.0), text.data(), text.size(), &size);
    int rank = -1;
    std::from_chars(text.data(), text.data() + std::min<std::uint64_t>(size, text.size()), rank);
    if (code != DISTRUN_BACKEND_OK || rank < 0 || rank >= place.size) {
      return Status(Errc::kSystem, "member " + key.substr(5) + " did not say where it is in MPI's world");
    }
    ranks.push_back(rank);
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    return Status(Errc::kUnsupported,
                  "the ranks are in several worlds of MPI; start them all with one mpirun, or with "
                  "distrun --mpi");
  }
  return ranks;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::create(Process& process, const distrun_backend_group_spec& spec,
                                             plugin::Host host) {
  std::unique_ptr<Group> group(new Group(process, host));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(group->connect(spec));
  return group;
}

Status Group::connect(const distrun_backend_group_spec& spec) {
  const auto place = process_.enter();
  if (!place.ok()) return place.status();
  const auto ranks = exchange_ranks(spec, *place);
  if (!ranks.ok()) return ranks.status();
  channel_ = {.process = &process_,
              .memory = memory_.get(),
              .comm = nullptr,
              .index = spec.index,
              .members = static_cast<int>(ranks->size())};
  return make_communicator(spec.id, *ranks);
}

Status Group::make_communicator(const std::string& id, const std::vector<int>& ranks) {
  const auto turn = process_.turn();
  const Functions& call = process_.library().call;
  const Constants& is = process_.library().is;
  constexpr std::size_t kTags = 32767;  // the largest that every MPI has
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

Group::~Group() {
  const auto turn = process_.turn();
  if (!flights_.empty()) give_up({Errc::kAborted, "the group was closed"});
  if (channel_.comm == nullptr || process_.abandoned() || !aborted_.why().ok()) return;
  int finalized = 0;
  process_.library().call.Finalized(&finalized);
  if (finalized == 0) process_.library().call.Comm_free(&channel_.comm);
}

// Ok while MPI may be called. With the turn, as for the next three.
Status Group::usable() const {
  if (Status why = aborted_.why(); !why.ok()) return why;
  if (!process_.abandoned()) return {};
  return {Errc::kAborted, "mpi: an operation of another group was given up, and MPI cannot go on after that"};
}

void Group::start(const distrun_backend_operation& operation, std::uint64_t token) {
  const auto turn = process_.turn();
  if (const Status status = usable(); !status.ok()) return host_.complete(token, status);
  flights_.push_back(std::make_unique<Flight>(channel_, operation, token));
  if (const Status status = flights_.back()->start(); !status.ok()) give_up(status);
}

bool Group::progress() {
  const auto turn = process_.turn();
  if (const Status status = usable(); !status.ok()) {
    give_up(status);
    return false;
  }
  bool any = false;
  bool around = false;  // one goes around the ring
  for (std::size_t i = 0; i < flights_.size();) {
    if (flights_[i]->goes_around() && std::exchange(around, true)) {
      ++i;
      continue;
    }
    if (const Status status = flights_[i]->test(); !status.ok()) {
      give_up(status);
      return true;
    }
    if (!flights_[i]->done()) {
      ++i;
      continue;
    }
    flights_[i]->finish();
    const std::uint64_t token = flights_[i]->token();
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
    host_.complete(token, {});
    any = true;
  }
  return any;
}

// MPI cannot take back a collective operation, and moves what is open whenever anybody calls it. Nobody of distrun does
// in this process any more. The program may, where it has initialised MPI: there operations are not in the tensors'
// memory, which is free again either way. What MPI has been given of ours stays for as long as the process.
void Group::give_up(const Status& why) {
  if (flights_.empty()) return;
  process_.abandon();
  process_.keep(memory_);
  for (auto& flight : std::exchange(flights_, {})) {
    host_.complete(flight->token(), why);
    process_.keep(std::move(flight));
  }
}

void Group::abort(std::int32_t code, const char* cause) {
  process_.never_finalize();
  aborted_.set(code, cause);
}

}  // namespace distrun::backend::mpi_plugin
