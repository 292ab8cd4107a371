#include "launcher/protocol/messages.h"

namespace distrun::launcher {
namespace {
constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxPorts = 65536;
constexpr std::size_t kMaxKey = 1024;
constexpr std::size_t kMaxAddress = 128;  // also for an interface's name
constexpr std::size_t kMaxTargets = 1 << 20;
constexpr std::size_t kMaxFailure = 4096;
constexpr std::size_t kMaxOptions = 4096;
constexpr std::size_t kMaxReasons = 64;
constexpr std::size_t kMaxNames = 16;
}  // namespace

template <class V>
void fields(V& v, net::Ref<V, Prepare> m) {
  v(m.protocol).text(m.version, kMaxText).text(m.host, kMaxText);
  // The other fields may differ in another version. The caller refuses by the protocol number.
  if constexpr (V::kReads) {
    if (m.protocol != kAgentProtocol) return v.skip_rest();
  }
  v.text(m.job_id, kMaxText)
      .text(m.sysroot, kMaxText)(m.ports, m.grace, m.preempt_signal, m.probe, m.ask, m.keep_trying, m.lease);
  v.nested(m.common, kMaxFramePayload, "the job");
}

template <class V>
void fields(V& v, net::Ref<V, Prepared> m) {
  auto& facts = m.facts;
  fields(v, facts.topology);
  v.text(facts.machine, kMaxText)
      .text(facts.name, kMaxText)
      .numbers(facts.ports, kMaxPorts)
      .text(facts.address, kMaxText);
  v.list(facts.candidates, kMaxCandidates,
         [](auto& w, auto& item) { w.text(item.interface, kMaxAddress).text(item.address, kMaxAddress)(item.speed); });
  v(facts.probe_port).texts(facts.reasons, kMaxReasons, kMaxText);
}

template <class V>
void fields(V& v, net::Ref<V, Refused> m) {
  v(m.exit_code).text(m.text, kMaxText)(m.may_come);
}

template <class V>
void fields(V& v, net::Ref<V, Start> m) {
  v.nested(m.plan, kMaxFramePayload, "the host's plan");
  v.text(m.tf_cluster, kMaxText).text(m.no_grpc_proxy, kMaxText).blob(m.key, kMaxKey);
}

template <class V>
void fields(V& v, net::Ref<V, Probe> m) {
  v.blob(m.key, kMaxKey)(m.host).list(m.targets, kMaxTargets, [](auto& w, auto& target) {
    w(target.host, target.candidate).text(target.address, kMaxAddress);
  });
  v(m.limit_ms);
}

template <class V>
void fields(V& v, net::Ref<V, Probed> m) {
  v.list(m.results, kMaxTargets, [](auto& w, auto& result) {
    w(result.host, result.candidate).text(result.failure, kMaxFailure).one_of(result.link, kLinkEnds);
  });
}

template <class V>
void fields(V& v, net::Ref<V, Resolve> m) {
  v.texts(m.names, kMaxNames, kMaxText);
}

template <class V>
void fields(V& v, net::Ref<V, Resolved> m) {
  v.list(m.addresses, kMaxNames, [](auto& w, auto& one) { w.texts(one, kMaxCandidates, kMaxAddress); });
}

template <class V>
void fields(V& v, net::Ref<V, StreamBytes> m) {
  v(m.rank).one_of(m.stream, 2)(m.when).blob(m.bytes, kMaxFramePayload);
}

template <class V>
void fields(V& v, net::Ref<V, Credit> m) {
  v(m.rank).one_of(m.stream, 2)(m.bytes);
}

template <class V>
void fields(V& v, net::Ref<V, SignalRanks> m) {
  v(m.signal, m.whole_group).numbers(m.ranks, kMaxRanks);
}

template <class V>
void fields(V& v, net::Ref<V, Stop> m) {
  v.numbers(m.term_now, kMaxRanks)(m.term_after, m.kill_after);
}

template <class V>
void fields(V& v, net::Ref<V, Heartbeat> m) {
  v(m.sent, m.ready);
}

template <class V>
void fields(V& v, net::Ref<V, Alive> m) {
  v.one_of(m.what, 3)(m.sent);
}

template <class V>
void fields(V& v, net::Ref<V, Window> m) {
  v(m.rows, m.columns);
}

template <class V>
void fields(V& v, net::Ref<V, StartHosts> m) {
  v.text(m.binary, kMaxText)(m.ssh.port).text(m.ssh.identity, kMaxText).texts(m.ssh.options, kMaxOptions, kMaxText);
  v.text(m.job_id, kMaxText).blob(m.key, kMaxKey).texts(m.addresses, kMaxCandidates, kMaxAddress);
  v.list(m.hosts, kMaxTargets,
         [](auto& w, auto& host) { w(host.index).text(host.name, kMaxText).text(host.user, kMaxText); });
}

template <class V>
void fields(V& v, net::Ref<V, Join> m) {
  v(m.index).text(m.job_id, kMaxText).blob(m.key, kMaxKey).texts(m.addresses, kMaxCandidates, kMaxAddress);
}

template <class V>
void fields(V& v, net::Ref<V, HostFailed> m) {
  v(m.index).text(m.text, kMaxFailure);
}

template <class V>
void fields(V& v, net::Ref<V, CarrierNews> m) {
  v.one_of(m.kind, 3).text(m.name, kMaxText)(m.pid);
}

template <class V>
void fields(V& v, net::Ref<V, HostGone> m) {
  v(m.index);
}

template <class V>
void fields(V& v, net::Ref<V, InputTaken> m) {
  v(m.more, m.most, m.least);
}

template <class V>
void fields(V& v, net::Ref<V, RankStarted> m) {
  v(m.rank, m.pid);
}

template <class V>
void fields(V& v, net::Ref<V, Drained> m) {
  v(m.rank);
}

template <class V>
void fields(V& v, net::Ref<V, RankExited> m) {
  v(m.rank, m.pid, m.exit_code, m.signal, m.out_of_memory, m.by_agent, m.wrote);
}

template <class V>
void fields(V& v, net::Ref<V, AskStates> m) {
  v(m.round, m.listen).list(m.sessions, kMaxRanks, [](auto& w, auto& session) { w(session.rank, session.pid); });
}

template <class V>
void fields(V& v, net::Ref<V, RankStates> m) {
  v(m.round, m.probe_port).list(m.ranks, kMaxRanks, [](auto& w, auto& one) { w(one.rank, one.pid, one.state); });
}

template <class Message>
std::vector<std::byte> encode(const Message& message) {
  return net::encoded(message).take();
}

// `name` is the message's name in errors about malformed messages.
#define DISTRUN_AGENT_MESSAGE(Message, name)                          \
  template std::vector<std::byte> encode(const Message& message);     \
  template <>                                                         \
  Result<Message> decode<Message>(std::span<const std::byte> bytes) { \
    return net::decoded<Message>(bytes, name);                        \
  }
DISTRUN_AGENT_MESSAGE(Prepare, "prepare")
DISTRUN_AGENT_MESSAGE(Prepared, "prepared")
DISTRUN_AGENT_MESSAGE(Refused, "refused")
DISTRUN_AGENT_MESSAGE(Start, "start")
DISTRUN_AGENT_MESSAGE(Probe, "probe")
DISTRUN_AGENT_MESSAGE(Probed, "probed")
DISTRUN_AGENT_MESSAGE(Resolve, "resolve")
DISTRUN_AGENT_MESSAGE(Resolved, "resolved")
DISTRUN_AGENT_MESSAGE(StreamBytes, "output")
DISTRUN_AGENT_MESSAGE(Credit, "credit")
DISTRUN_AGENT_MESSAGE(SignalRanks, "signal")
DISTRUN_AGENT_MESSAGE(Stop, "stop")
DISTRUN_AGENT_MESSAGE(Heartbeat, "sign of life")
DISTRUN_AGENT_MESSAGE(Alive, "alive")
DISTRUN_AGENT_MESSAGE(Window, "window")
DISTRUN_AGENT_MESSAGE(StartHosts, "start hosts")
DISTRUN_AGENT_MESSAGE(Join, "join")
DISTRUN_AGENT_MESSAGE(HostFailed, "host failed")
DISTRUN_AGENT_MESSAGE(CarrierNews, "news of MPI's launcher")
DISTRUN_AGENT_MESSAGE(HostGone, "host gone")
DISTRUN_AGENT_MESSAGE(InputTaken, "input taken")
DISTRUN_AGENT_MESSAGE(RankStarted, "started")
DISTRUN_AGENT_MESSAGE(Drained, "drained")
DISTRUN_AGENT_MESSAGE(RankExited, "exited")
DISTRUN_AGENT_MESSAGE(AskStates, "ask states")
DISTRUN_AGENT_MESSAGE(RankStates, "rank states")
#undef DISTRUN_AGENT_MESSAGE

}  // namespace distrun::launcher
