#include "runtime/backend/gloo/group.h"

#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "runtime/backend/gloo/operations.h"
#include "runtime/backend/gloo/rendezvous_store.h"
#include "runtime/backend/gloo/verify.h"
#include "runtime/net/open_files.h"

namespace distrun::backend::gloo_plugin {
namespace {

using std::chrono::milliseconds;

// Where it does not do, the members are not in step, or far apart, and the thread that waits has better things to do
// the next times.
constexpr std::chrono::microseconds kPatience(500);
constexpr int kRests = 64;
constexpr int kMostTried = 32;  // members: each costs several calls of the kernel
// Gloo listens for each member and connects to it, and a connection is duplicated (Sockets); its device has a few.
constexpr std::size_t kFilesForEach = 3;
constexpr std::size_t kFilesOfDevice = 8;

// Gloo waits five times its timeout for a pair to connect.
milliseconds connect_timeout(TimePoint deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::clamp(left, milliseconds(5), milliseconds(std::chrono::hours(1))) / 5;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::create(const distrun_backend_group_spec& spec, plugin::Host host) {
  std::unique_ptr<Group> group(
      new Group(std::vector<int>(spec.members, spec.members + spec.num_members), host));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(group->connect(spec));
  return group;
}

Status Group::connect(const distrun_backend_group_spec& spec) {
  const TimePoint deadline = deadline_after(std::min(spec.seconds, 1e6));
  try {
    const std::size_t others = spec.num_members - 1;
    DISTRUN_RETURN_IF_ERROR(
        net::make_room(kFilesForEach * others + kFilesOfDevice,
                       "gloo needs a connection to each of the group's other " + std::to_string(others) + " members")
            .status());
    ::gloo::transport::tcp::attr address;
    address.hostname = spec.local_host;
    std::shared_ptr<::gloo::transport::Device> device = ::gloo::transport::tcp::CreateDevice(address);
    context_ = std::make_shared<Mesh>(spec.index, static_cast<int>(spec.num_members));
    if (context_->size > 1) {
      RendezvousStore store(*spec.store, deadline);
      context_->setTimeout(connect_timeout(deadline));
      context_->connectFullMesh(store, device);
      context_->make_abortable();
      // First, while no member can be done and gone again: each waits for this one's proof.
      auto sockets = Sockets::of(*context_);
      if (!sockets.ok()) return sockets.status();
      sockets_ = *std::move(sockets);
      tiny_ = std::make_unique<Tiny>(context_);
      DISTRUN_RETURN_IF_ERROR(verify_pairs(context_, host_, 5 * connect_timeout(deadline)));
    }
    context_->setTimeout(kForever);
    return {};
  } catch (const std::bad_alloc&) {
    return {Errc::kOutOfMemory, "gloo: out of memory"};
  } catch (const std::exception& error) {
    return {Errc::kSystem, std::string("gloo did not connect the ranks: ") + error.what()};
  }
}

bool Group::try_now(const distrun_backend_operation& operation) {
  if (!tiny_ || context_->size > kMostTried || !tiny_->takes(operation) || !aborted_.why().ok()) return false;
  if (rests_ > 0) {
    --rests_;
    return false;
  }
  try {
    if (tiny_->try_allreduce(operation, Clock::now() + kPatience)) return true;
  } catch (const std::exception&) {
    return false;  // start() meets it again, and may wait for the cause
  }
  rests_ = kRests;
  return false;
}

void Group::start(const distrun_backend_operation& operation, std::uint64_t token) {
  host_.complete(token, outcome(operation));
}

Status Group::outcome(const distrun_backend_operation& operation) {
  if (Status why = aborted_.why(); !why.ok()) return why;
  try {
    if (tiny_ && tiny_->takes(operation)) {
      tiny_->allreduce(operation);
    } else {
      gloo_plugin::run(context_, operation);
    }
    return {};
  } catch (const std::bad_alloc&) {
    return {Errc::kOutOfMemory, "gloo: out of memory"};
  } catch (const std::exception& error) {
    return explain(error.what());
  }
}

// A connection ends when a member dies, and when a member hears of a death before this one does: the engine finds out.
Status Group::explain(const std::string& what) {
  if (Status why = aborted_.why(); !why.ok()) return why;
  const int lost = sockets_.lost_member();
  if (lost < 0) return {Errc::kSystem, "gloo: " + what};
  host_.peer_lost(members_[static_cast<std::size_t>(lost)]);
  return aborted_.wait();
}

void Group::abort(std::int32_t code, const char* cause) {
  aborted_.set(code, cause);
  sockets_.shut_down();
  context_->end_waits();
}

}  // namespace distrun::backend::gloo_plugin
