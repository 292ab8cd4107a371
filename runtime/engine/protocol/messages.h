// The messages that engines exchange over the control plane, and their encoding (docs/internals/wire.md). Members talk
// to the leader; the leader talks to all. One frame carries all messages that are pending when it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/signature.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

// A change that ranks request together: all ranks of the job, or only the members of a process set (call_board.h).
struct Call {
  enum class Kind : std::uint8_t { kAddSet = 0, kRemoveSet = 1, kStartTimeline = 2, kStopTimeline = 3 };
  static constexpr int kNumKinds = 4;
  Kind kind = Kind::kAddSet;
  std::vector<int> ranks;     // add: world ranks, ascending
  int set = 0;                // remove
  std::string path;           // start timeline
  bool members_only = false;  // add: only `ranks` call it and know of the set; they remove it in the same way
  bool unordered = false;     // not ordered relative to this rank's other calls
  friend bool operator==(const Call&, const Call&) = default;
};

struct TimelineEvent {
  std::int64_t start_ns = 0;  // by the sender's clock; the file's writer corrects it to the leader's
  std::int64_t duration_ns = 0;
  std::string tensor;
  std::string phase;
};

namespace message {

// Member to leader, in the order of the member's events.
struct Submitted {  // the full request, for a tensor without an id
  int set = 0;
  std::string name;
  Signature signature;
  std::string refusal{};  // why the tensor's group cannot run, equal on all members that agree on it; empty: it can
};
struct Ready {  // by id: each of these tensors is submitted once more
  std::vector<TensorId> ids;
};
struct Called {
  Call call;
  Status refused;  // leader's own call only, never sent: why it could not do its part
};
struct SetMade {
  int set = 0;
  Status result;
};
struct Leaving {};  // the member submits nothing more; operations in flight continue
struct Drained {};  // the member has left and nothing of it is or will be in flight: no rank needs it
struct Events {     // for the timeline
  std::vector<TimelineEvent> events;
};

// Leader to members.
struct Append {  // consecutive log entries; the frame's `index` is that of the first one
  std::vector<Entry> entries;
};

// Both ways.
struct Ping {
  std::uint64_t number = 0;
  std::int64_t sent_ns = 0;  // the sender's clock
};
struct Pong {
  std::uint64_t number = 0;
  std::int64_t sent_ns = 0;  // as in the ping
  std::int64_t here_ns = 0;  // the answering rank's clock
};
struct Abort {  // terminal: every rank fails with it
  Status why;
};

// Stopping all ranks at the same call (stop_agreement.h). Member to leader:
struct StopAsked {
  std::string cause;
};
struct StopCount {
  std::uint64_t calls = 0;  // number of calls that returned false
};
// Leader to members:
struct StopHold {};
struct StopAt {
  std::uint64_t call = 0;  // the first call that returns true
};

// How a rank waits (monitoring/deadlock.h). Leader to members:
struct WaitAsked {
  std::uint64_t round = 0;
};
// Member to leader:
struct WaitAnswer {
  std::uint64_t round = 0;  // as in the question
  net::MainWait wait = net::MainWait::kOutside;
  bool moves = false;         // an operation that was agreed on is running
  std::uint64_t changes = 0;  // how often the rank has submitted, called or completed something
  std::int64_t cpu_ns = 0;    // CPU time that the process has used
  std::string operation{};    // the operation that has been in flight longest
};

}  // namespace message

using Message = std::variant<message::Submitted, message::Ready, message::Called, message::SetMade, message::Leaving,
                             message::Events, message::Append, message::Ping, message::Pong, message::Abort,
                             message::StopAsked, message::StopCount, message::StopHold, message::StopAt,
                             message::Drained, message::WaitAsked, message::WaitAnswer>;

// What an engine can do beyond this version's minimum, so that later versions can agree on more. Nothing is defined
// yet. The leader uses the intersection of all ranks.
inline constexpr std::uint32_t kCapabilities = 0;

struct Frame {
  std::uint32_t capabilities = kCapabilities;
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;  // leader: of the first entry in this frame; member: number of entries read so far
  std::vector<Message> messages;
};

// The control plane's limit. tensor_table bounds names and groups, fusion bounds batches, and outbox starts a new frame
// long before this size. A larger frame is therefore a bug.
inline constexpr std::size_t kMaxFrame = 16 << 20;

std::vector<std::byte> encode(const Frame& frame);
// Malformed bytes give kProtocol. Memory is allocated for a list only after its bytes are known to be present.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace distrun::engine
