// launcher/protocol/messages.h: the messages between the head and an agent. The first byte chooses the type of message.
#include <array>
#include <span>

#include "launcher/protocol/messages.h"
#include "runtime/net/bytes/wire.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using std::span;

// A message that can be read can be written again without a change.
template <class Message>
void check(span<const std::byte> bytes) {
  const auto message = launcher::decode<Message>(bytes);
  if (!message.ok()) return;
  const Bytes written = launcher::encode(*message);
  const auto again = launcher::decode<Message>(written);
  require(again.ok() && launcher::encode(*again) == written, "a message survives being written and read");
}

// The first byte of a seed is the index of its message in this table.
constexpr std::array kMessages = {
    &check<launcher::Prepare>,     &check<launcher::Prepared>,    &check<launcher::Refused>,
    &check<launcher::Start>,       &check<launcher::StreamBytes>, &check<launcher::Credit>,
    &check<launcher::SignalRanks>, &check<launcher::Stop>,        &check<launcher::RankStarted>,
    &check<launcher::Probe>,       &check<launcher::Probed>,      &check<launcher::RankExited>,
    &check<launcher::Window>,      &check<launcher::Alive>,       &check<launcher::StartHosts>,
    &check<launcher::Join>,        &check<launcher::HostFailed>,  &check<launcher::InputTaken>,
    &check<launcher::Drained>,     &check<launcher::Heartbeat>,   &check<launcher::HostGone>,
    &check<launcher::AskStates>,   &check<launcher::RankStates>,  &check<launcher::Resolve>,
    &check<launcher::Resolved>,
};

Bytes seed(std::uint8_t which, const Bytes& message) { return net::WireWriter().u8(which).raw(message).take(); }

}  // namespace

int agent(const std::uint8_t* data, std::size_t size) {
  if (size > 0) kMessages[data[0] % kMessages.size()](as_span(data + 1, size - 1));
  return 0;
}

std::vector<Bytes> agent_seeds() {
  launcher::Prepare prepare{.version = "1", .host = "h", .job_id = "j"};
  prepare.common.command = {"python", "train.py"};
  prepare.common.server = {"python", "-m", "distrun._tf_server"};
  prepare.common.environment = {{"PATH", "/bin"}, {"A", ""}};
  launcher::Start start;
  start.plan.host = "h";
  start.plan.ranks = {
      {.rank = 1, .local_rank = 1, .serves = true, .cpus = {0, 1}, .environment = {{"DISTRUN_RANK", "1"}}}};
  start.key = Bytes(32, std::byte{7});
  launcher::Prepared prepared;
  prepared.facts.candidates = {{"eth0", "10.0.0.7"}};
  prepared.facts.probe_port = 4711;
  prepared.facts.topology.cpus = {{.id = 1, .core = 1}};
  prepared.facts.topology.gpus = {{.bus = "0000:3b:00.0", .uuid = "GPU-1", .cpus = {1}, .slices = {{7, 0}}}};
  prepared.facts.topology.visible_devices = "0";
  launcher::Probe probe{.key = Bytes(32, std::byte{7}), .host = 1, .targets = {{0, 1, "10.0.0.7:4711"}}};
  launcher::Join join{.index = 1, .job_id = "j", .key = Bytes(32, std::byte{7}), .addresses = {"10.0.0.7:4711"}};
  launcher::StartHosts start_hosts{.binary = "/bin/distrun",
                                   .ssh = {.port = 22, .identity = "/k", .options = {"Compression=yes"}},
                                   .job_id = "j",
                                   .key = join.key,
                                   .addresses = join.addresses,
                                   .hosts = {{1, "h1", ""}, {2, "h2", "user"}}};
  return {seed(0, launcher::encode(prepare)),
          seed(1, launcher::encode(prepared)),
          seed(2, launcher::encode(launcher::Refused{.text = "no"})),
          seed(3, launcher::encode(start)),
          seed(4, launcher::encode(launcher::StreamBytes{.rank = 1, .bytes = Bytes(5)})),
          seed(5, launcher::encode(launcher::Credit{.rank = 1, .bytes = 2})),
          seed(6, launcher::encode(launcher::SignalRanks{.signal = 15, .whole_group = true, .ranks = {1}})),
          seed(7, launcher::encode(launcher::Stop{.term_now = {1, 2}, .kill_after = 9})),
          seed(8, launcher::encode(launcher::RankStarted{.rank = 1, .pid = 2})),
          seed(9, launcher::encode(probe)),
          seed(10, launcher::encode(launcher::Probed{.results = {{0, 1, "no answer"}, {2, 0, ""}}})),
          seed(11, launcher::encode(launcher::RankExited{.rank = 1, .signal = 9, .by_agent = true})),
          seed(12, launcher::encode(launcher::Window{.rows = 24, .columns = 80})),
          seed(13, launcher::encode(launcher::Alive{.what = launcher::Alive::What::kHold})),
          seed(14, launcher::encode(start_hosts)),
          seed(15, launcher::encode(join)),
          seed(16, launcher::encode(launcher::HostFailed{.index = 1, .text = "no route"})),
          seed(17, launcher::encode(launcher::InputTaken{.more = true})),
          seed(18, launcher::encode(launcher::Drained{.rank = 1})),
          seed(19, launcher::encode(launcher::Heartbeat{.sent = 5, .ready = true})),
          seed(20, launcher::encode(launcher::HostGone{.index = 1})),
          seed(21, launcher::encode(launcher::AskStates{.round = 1, .listen = true, .sessions = {{1, 42}}})),
          seed(22, launcher::encode(launcher::RankStates{.round = 1, .probe_port = 4711, .ranks = {{1, 42, 'T'}}}))};
}

}  // namespace distrun::fuzz
