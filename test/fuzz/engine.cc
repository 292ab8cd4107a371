// runtime/engine/protocol/messages.h, and the leader's decisions on its messages. The first byte is the number of
// ranks. The rest is one frame; the ranks send its messages in turn.
#include <algorithm>

#include "runtime/engine/agreement/coordinator.h"
#include "runtime/engine/protocol/messages.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using namespace distrun::engine;  // NOLINT(google-build-using-namespace)

void take_message(Coordinator& coordinator, int rank, const Message& message, TimePoint now) {
  if (const auto* submitted = std::get_if<message::Submitted>(&message)) {
    coordinator.submitted(rank, *submitted, now);
  } else if (const auto* ready = std::get_if<message::Ready>(&message)) {
    for (const TensorId id : ready->ids) coordinator.ready(rank, id, now);
  } else if (const auto* called = std::get_if<message::Called>(&message)) {
    coordinator.called(rank, called->call, now);
  } else if (const auto* made = std::get_if<message::SetMade>(&message)) {
    coordinator.set_made(rank, made->set, made->result);
  } else if (std::holds_alternative<message::Leaving>(message)) {
    coordinator.leave(rank);
  } else if (std::holds_alternative<message::Drained>(message)) {
    coordinator.drained(rank);
  }
}

void decide(const Frame& frame, int ranks) {
  Coordinator coordinator({.world_size = ranks,
                           .hosts = std::vector<std::string>(static_cast<std::size_t>(ranks), "host"),
                           .fusion_threshold = 1000,
                           .cache_capacity = 2,
                           .stall_warning = std::chrono::seconds(5)});
  TimePoint now{};
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < frame.messages.size(); ++i) {
    now += std::chrono::seconds(1);
    const int rank = static_cast<int>(i % static_cast<std::size_t>(ranks));
    coordinator.has_read(rank, frame.index);
    take_message(coordinator, rank, frame.messages[i], now);
    coordinator.tick(now);
    const bool ended = coordinator.finished();
    const Actions actions = coordinator.act();
    entries += actions.entries.size();
    require(coordinator.log_size() == entries, "every entry is handed out once");
    require(actions.abort.ok() || coordinator.finished(), "an abort is the end");
    require(!ended || coordinator.finished(), "the end is final");
  }
}

Bytes seed(int ranks, std::vector<Message> messages) {
  Bytes bytes{static_cast<std::byte>(ranks)};
  const auto frame = encode({.index = 3, .messages = std::move(messages)});
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  return bytes;
}

}  // namespace

int engine(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = as_span(data, size).subspan(1);
  const auto frame = decode(bytes);
  if (!frame.ok()) return 0;
  require(std::ranges::equal(encode(*frame), bytes), "what is understood is written the same way");
  decide(*frame, 1 + data[0] % 4);
  return 0;
}

std::vector<Bytes> engine_seeds() {
  const message::Submitted x{.name = "x", .signature = {.shape = {4}}};
  const message::Submitted g{.name = "g", .signature = {.kind = OpKind::kAllgather, .shape = {2, 3}}};
  const message::Submitted a{.name = "a", .signature = {.kind = OpKind::kAlltoall, .shape = {4, 3}, .splits = {1, 3}}};
  const message::Submitted join{.name = "distrun.join", .signature = {.kind = OpKind::kJoin}};
  message::Submitted join_of_a_group = join;
  join_of_a_group.signature.group = {.digest = 7, .size = 2, .first = "a"};
  const message::Submitted no_join{.name = "distrun.join", .signature = {.shape = {4}}};
  const entry::Run stand_in{.tensors = {{.name = "x", .signature = x.signature}}};
  const Signature tied{.shape = {1}, .group = {.digest = 7, .size = 2, .first = "a"}};
  const message::Submitted grouped{.name = "a", .signature = tied};
  const message::Submitted other{.name = "b", .signature = tied};
  const message::Submitted refused{.name = "a", .signature = tied, .refusal = "x"};
  const message::Called add{.call = {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}};
  const message::Called alone{.call = {.kind = Call::Kind::kAddSet, .ranks = {0, 1}, .members_only = true}};
  message::Called unordered = alone;
  unordered.call.unordered = true;
  const message::Called drop{.call = {.kind = Call::Kind::kRemoveSet, .set = 1, .unordered = true}};
  const message::Called remove{.call = {.kind = Call::Kind::kRemoveSet, .set = 1}};
  const message::Append append{.entries = {entry::Run{.tensors = {{.id = 1, .name = "x"}}}, entry::Shutdown{}}};
  return {seed(1, {x, x, x, message::Ready{.ids = {1}}, message::Leaving{}, message::Drained{}}),
          seed(0, {x, g, message::Ready{.ids = {1, 2}}, message::Leaving{}}),
          seed(1, {g, g, message::Ready{.ids = {1}}, g, x, x}),
          seed(1, {grouped, grouped, other, other}),
          seed(1, {grouped, refused, other, other}),
          seed(1, {a, a, message::Ready{.ids = {1, 1}}, join, join}),
          seed(2, {join, x, g, a, join, x, join, message::Append{.entries = {stand_in}}}),
          seed(1, {grouped, join_of_a_group, other, join_of_a_group, x}),
          seed(1, {no_join, join, x, x}),
          seed(1, {add, add, message::SetMade{.set = 1}, message::SetMade{.set = 1}, remove, remove}),
          seed(1, {alone, alone, add, message::SetMade{.set = 1}, message::SetMade{.set = 1}, remove, remove}),
          seed(1, {unordered, add, unordered, message::SetMade{.set = 1}, message::SetMade{.set = 1}, drop, drop}),
          seed(2, {append, message::Ping{.number = 1}, message::Pong{}, message::Events{.events = {{.tensor = "x"}}},
                   message::StopAsked{.cause = "x"}, message::StopCount{}, message::StopHold{},
                   message::StopAt{.call = 1}, message::WaitAsked{.round = 1},
                   message::WaitAnswer{.round = 1, .wait = net::MainWait::kForever, .operation = "x"}})};
}

}  // namespace distrun::fuzz
