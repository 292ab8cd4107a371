#include "test/sim/virtual_rank.h"

#include <algorithm>
#include <utility>

namespace distrun::sim {
namespace {

engine::EngineOptions placed(engine::EngineOptions options, SimWaitSet& wait_set, net::ControlPlane* plane,
                             SimJobChannel& channel) {
  options.wait_set = &wait_set;
  options.control_plane = plane;
  options.job_channel = &channel;
  options.background_thread = false;
  return options;
}

}  // namespace

VirtualRank::VirtualRank(engine::EngineOptions options, std::unique_ptr<net::ControlPlane> plane)
    : wait_set_(channel_),
      plane_(std::move(plane)),
      options_(placed(std::move(options), wait_set_, plane_.get(), channel_)),
      table_(options_.world.rank),
      loop_(options_, {.table = table_, .requests = requests_, .token = token_, .stop = stop_, .probe = probe_}) {}

TimePoint VirtualRank::step() {
  wait_set_.begin_step();
  // Drives the loop as the engine's thread, which neither spins nor yields here.
  const Status driven = loop_.drive(
      engine::ProgressToken::Holder::kEngine, [this] { return wait_set_.would_block(); }, TimePoint::max());
  DISTRUN_CHECK(driven.ok(), "nothing interrupts a virtual rank");
  return wait_set_.until();
}

std::shared_ptr<engine::CallTicket> VirtualRank::call(engine::Call call) {
  auto ticket = std::make_shared<engine::CallTicket>();
  if (call.kind == engine::Call::Kind::kRemoveSet) {
    if (const Status closed = table_.close_set(call.set); !closed.ok()) {
      ticket->finish(closed, -1);
      return ticket;
    }
  }
  if (const Status closed = table_.closed(); !closed.ok()) {
    ticket->finish(closed, -1);
    return ticket;
  }
  requests_.put({.kind = engine::Request::Kind::kCall, .call = std::move(call), .ticket = ticket});
  return ticket;
}

void VirtualRank::leave() {
  table_.close({Errc::kShutDown, "this rank has shut down"});
  requests_.put({.kind = engine::Request::Kind::kLeave});
}

std::shared_ptr<engine::CallTicket> VirtualRank::go() {
  auto ticket = std::make_shared<engine::CallTicket>();
  requests_.put({.kind = engine::Request::Kind::kGo, .ticket = ticket});
  return ticket;
}

void VirtualRank::close() {
  wait_set_.begin_step();
  loop_.close({Errc::kAborted, "the session was closed without shutdown"});
}

}  // namespace distrun::sim
