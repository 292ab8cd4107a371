#include "runtime/backend/gloo/group.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "runtime/backend/gloo/operations.h"

namespace distrun::backend::gloo_plugin {
namespace {

// If try_now() fails, the members do not call at the same time, or messages between them take long. Then the calling
// thread should not try the next operations. It skips one operation after the first failure, and twice as many after
// each further one.
constexpr int kMostSkipped = 64;
constexpr std::size_t kMostTried = 32;  // members; each one costs several system calls

}  // namespace

Result<std::unique_ptr<GlooGroup>> GlooGroup::create(const distrun_backend_group_spec& spec, plugin::Host host) {
  try {
    auto connections = connect_members(spec, host);
    if (!connections.ok()) return connections.status();
    // The constructor is private.
    return std::unique_ptr<GlooGroup>(
        new GlooGroup(std::vector<int>(spec.members, spec.members + spec.num_members), host, *std::move(connections)));
  } catch (const std::bad_alloc&) {
    return Status(Errc::kOutOfMemory, "gloo: out of memory");
  } catch (const std::exception& error) {
    return Status(Errc::kSystem, std::string("gloo did not connect the ranks: ") + error.what());
  }
}

bool GlooGroup::try_now(const distrun_backend_operation& operation) {
  Direct* const direct = connections_.direct.get();
  if (direct == nullptr || members_.size() > kMostTried || !direct->takes(operation)) return false;
  if (!aborted_.why().ok() || failed_) return false;
  if (skipped_ > 0) {
    --skipped_;
    return false;
  }
  try {
    if (direct->try_allreduce(operation)) {
      next_skipped_ = 1;
      return true;
    }
    skipped_ = std::exchange(next_skipped_, std::min(2 * next_skipped_, kMostSkipped));
  } catch (...) {
    failed_ = std::current_exception();  // start() reports it, and may wait for the cause
  }
  return false;
}

void GlooGroup::start(const distrun_backend_operation& operation, std::uint64_t token) {
  host_.complete(token, outcome(operation));
}

Status GlooGroup::outcome(const distrun_backend_operation& operation) {
  if (Status why = aborted_.why(); !why.ok()) return why;
  try {
    if (failed_) std::rethrow_exception(failed_);
    run(operation);
    return {};
  } catch (const std::bad_alloc&) {
    return {Errc::kOutOfMemory, "gloo: out of memory"};
  } catch (const std::exception& error) {
    return explain(error.what());
  }
}

void GlooGroup::run(const distrun_backend_operation& operation) {
  Direct* const direct = connections_.direct.get();
  try {
    if (direct != nullptr && direct->takes(operation)) return direct->allreduce(operation);
    gloo_plugin::run(connections_.mesh, operation);
  } catch (...) {
    failed_ = std::current_exception();
    throw;
  }
}

// A connection ends if its member dies. It also ends if that member has noticed another death first. The engine finds
// the cause.
Status GlooGroup::explain(const std::string& what) {
  if (Status why = aborted_.why(); !why.ok()) return why;
  const int lost = connections_.sockets.lost_member();
  if (lost < 0) return {Errc::kSystem, "gloo: " + what};
  host_.peer_lost(members_[static_cast<std::size_t>(lost)]);
  return aborted_.wait();
}

void GlooGroup::abort(std::int32_t code, const char* cause) {
  aborted_.set(code, cause);
  connections_.sockets.shut_down();
  connections_.mesh->end_waits();
}

}  // namespace distrun::backend::gloo_plugin
