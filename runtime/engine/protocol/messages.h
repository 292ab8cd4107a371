// What engines say to each other over the control plane, and its encoding (docs/wire.md). Members talk to the leader,
// the leader to all. One frame carries everything there was to say when it was sent.
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

// A change that ranks ask for together: all ranks of the job, or the members of a process set alone (call_board.h).
struct Call {
  enum class Kind : std::uint8_t { kAddSet = 0, kRemoveSet = 1, kStartTimeline = 2, kStopTimeline = 3 };
  static constexpr int kNumKinds = 4;
  Kind kind = Kind::kAddSet;
  std::vector<int> ranks;     // add: world ranks, ascending
  int set = 0;                // remove
  std::string path;           // start timeline
  bool members_only = false;  // add: `ranks` alone call it, and know of the set; they remove it in the same way
  bool unordered = false;     // in no order with this rank's other calls
  friend bool operator==(const Call&, const Call&) = default;
};

struct TimelineEvent {
  std::int64_t start_ns = 0;  // of the sender's clock, corrected to the leader's
  std::int64_t duration_ns = 0;
  std::string tensor;
  std::string phase;
};

namespace message {

// Member to leader, in the order in which things happened there.
struct Submitted {  // cold: a full request
  int set = 0;
  std::string name;
  Signature signature;
  std::string refusal{};  // why its group cannot run, as all members say that agree on it; empty: it can
};
struct Ready {  // cached: each id is submitted once more
  std::vector<TensorId> ids;
};
struct Called {
  Call call;
  Status refused;  // the leader's own call, which crosses no wire: it could not do its part
};
struct SetMade {
  int set = 0;
  Status result;
};
struct Leaving {};  // nothing more is submitted; what is in flight goes on
struct Drained {};  // it has left, and nothing is in flight there nor will be: nobody needs it any more
struct Events {     // for the timeline
  std::vector<TimelineEvent> events;
};

// Leader to members.
struct Append {  // consecutive log entries; the frame's `index` is the first one's
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
  std::int64_t here_ns = 0;  // the answering side's clock
};
struct Abort {  // terminal: every rank fails with it
  Status why;
};

// Stopping all ranks at the same call (stop_agreement.h). Member to leader:
struct StopAsked {
  std::string cause;
};
struct StopCount {
  std::uint64_t calls = 0;  // answered with false
};
// Leader to members:
struct StopHold {};
struct StopAt {
  std::uint64_t call = 0;  // the first that is answered with true
};

// How does this rank wait? (monitoring/deadlock.h) Leader to members:
struct WaitAsked {
  std::uint64_t round = 0;
};
// Member to leader:
struct WaitTold {
  std::uint64_t round = 0;  // as asked
  net::MainWait wait = net::MainWait::kOutside;
  bool moves = false;         // something that was agreed on runs
  std::uint64_t changes = 0;  // times that the rank has submitted, called or completed something
  std::int64_t cpu_ns = 0;    // that the process has used
  std::string operation{};    // in flight longest
};

}  // namespace message

using Message = std::variant<message::Submitted, message::Ready, message::Called, message::SetMade, message::Leaving,
                             message::Events, message::Append, message::Ping, message::Pong, message::Abort,
                             message::StopAsked, message::StopCount, message::StopHold, message::StopAt,
                             message::Drained, message::WaitAsked, message::WaitTold>;

// What an engine can do beyond this version's minimum, so that later ones can agree on more. Nothing is defined yet;
// the leader uses the intersection.
inline constexpr std::uint32_t kCapabilities = 0;

struct Frame {
  std::uint32_t capabilities = kCapabilities;
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;  // leader: of the first entry here; member: entries read so far
  std::vector<Message> messages;
};

// The control plane's limit. Names and groups are bounded by tensor_table, batches by fusion, and outbox starts a new
// frame long before this, so a frame that exceeds it is a bug.
inline constexpr std::size_t kMaxFrame = 16 << 20;

std::vector<std::byte> encode(const Frame& frame);
// Anything malformed is kProtocol; nothing is allocated before its bytes are known to be there.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace distrun::engine
