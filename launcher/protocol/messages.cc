#include "launcher/protocol/messages.h"

namespace distrun::launcher {
namespace {
using net::WireReader;
using net::WireWriter;
constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxPorts = 65536;
constexpr std::size_t kMaxKey = 1024;
constexpr std::size_t kMaxAddress = 128;  // also of an interface's name
constexpr std::size_t kMaxTargets = 1 << 20;
constexpr std::size_t kMaxFailure = 4096;
constexpr std::size_t kMaxOptions = 4096;
constexpr std::size_t kMaxReasons = 64;

void write_texts(WireWriter& writer, const std::vector<std::string>& texts) {
  writer.list(texts, [](WireWriter& w, const std::string& text) { w.string(text); });
}

std::vector<std::string> read_texts(WireReader& reader, std::size_t most, std::size_t longest) {
  return reader.list<std::string>(most, 4, [longest](WireReader& r) { return r.string(longest); });
}

template <class Message>
Result<Message> done(WireReader& reader, Message message, const char* what) {
  DISTRUN_RETURN_IF_ERROR(reader.finish(what));
  return message;
}
}  // namespace

std::vector<std::byte> encode(const Prepare& message) {
  WireWriter writer;
  writer.u32(message.protocol).string(message.version).string(message.host).string(message.job_id);
  writer.string(message.sysroot)
      .i32(message.ports)
      .f64(message.grace)
      .i32(message.preempt_signal)
      .boolean(message.probe)
      .boolean(message.ask)
      .f64(message.lease)
      .bytes(to_bytes(message.common));
  return writer.take();
}

Result<Prepare> decode_prepare(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Prepare out;
  out.protocol = reader.u32();
  out.version = reader.string(kMaxText);
  out.host = reader.string(kMaxText);
  // The rest may look different in another version; the caller refuses by the number.
  if (reader.ok() && out.protocol != kAgentProtocol) return out;
  out.job_id = reader.string(kMaxText);
  out.sysroot = reader.string(kMaxText);
  out.ports = reader.i32();
  out.grace = reader.f64();
  out.preempt_signal = reader.i32();
  out.probe = reader.boolean();
  out.ask = reader.boolean();
  out.lease = reader.f64();
  auto common = job_common_from(reader.view(kMaxFramePayload));
  if (!common.ok()) return common.status();
  out.common = *std::move(common);
  return done(reader, std::move(out), "prepare");
}

std::vector<std::byte> encode(const Prepared& message) {
  WireWriter writer;
  write_topology(writer, message.facts.topology);
  writer.string(message.facts.machine);
  writer.list(message.facts.ports, [](WireWriter& w, std::uint16_t port) { w.u16(port); });
  writer.string(message.facts.address);
  writer.list(message.facts.candidates, [](WireWriter& w, const Candidate& item) {
    w.string(item.interface).string(item.address).i32(item.speed);
  });
  writer.u16(message.facts.probe_port);
  write_texts(writer, message.facts.reasons);
  return writer.take();
}

Result<Prepared> decode_prepared(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Prepared out;
  out.facts.topology = read_topology(reader);
  out.facts.machine = reader.string(kMaxText);
  out.facts.ports = reader.list<std::uint16_t>(kMaxPorts, 2, [](WireReader& r) { return r.u16(); });
  out.facts.address = reader.string(kMaxText);
  out.facts.candidates = reader.list<Candidate>(kMaxCandidates, 12, [](WireReader& r) {
    Candidate item;
    item.interface = r.string(kMaxAddress);
    item.address = r.string(kMaxAddress);
    item.speed = r.i32();
    return item;
  });
  out.facts.probe_port = reader.u16();
  out.facts.reasons = read_texts(reader, kMaxReasons, kMaxText);
  return done(reader, std::move(out), "prepared");
}

std::vector<std::byte> encode(const Refused& message) {
  WireWriter writer;
  writer.i32(message.exit_code).string(message.text);
  return writer.take();
}

Result<Refused> decode_refused(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Refused out;
  out.exit_code = reader.i32();
  out.text = reader.string(kMaxText);
  return done(reader, std::move(out), "refused");
}

std::vector<std::byte> encode(const Start& message) {
  WireWriter writer;
  writer.bytes(to_bytes(message.plan)).string(message.tf_cluster).string(message.no_grpc_proxy).bytes(message.key);
  return writer.take();
}

Result<Start> decode_start(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Start out;
  auto plan = host_plan_from(reader.view(kMaxFramePayload));
  if (!plan.ok()) return plan.status();
  out.plan = *std::move(plan);
  out.tf_cluster = reader.string(kMaxText);
  out.no_grpc_proxy = reader.string(kMaxText);
  out.key = reader.bytes(kMaxKey);
  return done(reader, std::move(out), "start");
}

std::vector<std::byte> encode(const Probe& message) {
  WireWriter writer;
  writer.bytes(message.key).i32(message.host);
  writer.list(message.targets, [](WireWriter& w, const ProbeTarget& target) {
    w.i32(target.host).i32(target.candidate).string(target.address);
  });
  return writer.take();
}

Result<Probe> decode_probe(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Probe out;
  out.key = reader.bytes(kMaxKey);
  out.host = reader.i32();
  out.targets = reader.list<ProbeTarget>(kMaxTargets, 12, [](WireReader& r) {
    ProbeTarget target;
    target.host = r.i32();
    target.candidate = r.i32();
    target.address = r.string(kMaxAddress);
    return target;
  });
  return done(reader, std::move(out), "probe");
}

std::vector<std::byte> encode(const Probed& message) {
  WireWriter writer;
  writer.list(message.results, [](WireWriter& w, const ProbeResult& result) {
    w.i32(result.host).i32(result.candidate).string(result.failure);
  });
  return writer.take();
}

Result<Probed> decode_probed(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Probed out;
  out.results = reader.list<ProbeResult>(kMaxTargets, 12, [](WireReader& r) {
    ProbeResult result;
    result.host = r.i32();
    result.candidate = r.i32();
    result.failure = r.string(kMaxFailure);
    return result;
  });
  return done(reader, std::move(out), "probed");
}

std::vector<std::byte> encode(const StreamBytes& message) {
  WireWriter writer;
  writer.i32(message.rank).u8(message.stream).u64(message.when).bytes(message.bytes);
  return writer.take();
}

Result<StreamBytes> decode_stream_bytes(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  StreamBytes out;
  out.rank = reader.i32();
  out.stream = reader.enumerator<std::uint8_t>(2);
  out.when = reader.u64();
  out.bytes = reader.bytes(kMaxFramePayload);
  return done(reader, std::move(out), "output");
}

std::vector<std::byte> encode(const Credit& message) {
  WireWriter writer;
  writer.i32(message.rank).u8(message.stream).u32(message.bytes);
  return writer.take();
}

Result<Credit> decode_credit(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Credit out;
  out.rank = reader.i32();
  out.stream = reader.enumerator<std::uint8_t>(2);
  out.bytes = reader.u32();
  return done(reader, out, "credit");
}

std::vector<std::byte> encode(const SignalRanks& message) {
  WireWriter writer;
  writer.i32(message.signal).boolean(message.whole_group).i32s(message.ranks);
  return writer.take();
}

Result<SignalRanks> decode_signal_ranks(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  SignalRanks out;
  out.signal = reader.i32();
  out.whole_group = reader.boolean();
  out.ranks = reader.i32s(kMaxRanks);
  return done(reader, out, "signal");
}

std::vector<std::byte> encode(const Stop& message) {
  WireWriter writer;
  writer.i32s(message.term_now).u32(message.term_after).u32(message.kill_after);
  return writer.take();
}

Result<Stop> decode_stop(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Stop out;
  out.term_now = reader.i32s(kMaxRanks);
  out.term_after = reader.u32();
  out.kill_after = reader.u32();
  return done(reader, std::move(out), "stop");
}

std::vector<std::byte> encode(const Alive& message) {
  WireWriter writer;
  writer.u8(message.hold ? 1 : 0);
  return writer.take();
}

Result<Alive> decode_alive(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Alive out;
  out.hold = reader.u8() != 0;
  return done(reader, out, "alive");
}

std::vector<std::byte> encode(const Window& message) {
  WireWriter writer;
  writer.u16(message.rows).u16(message.columns);
  return writer.take();
}

Result<Window> decode_window(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Window out;
  out.rows = reader.u16();
  out.columns = reader.u16();
  return done(reader, out, "window");
}

std::vector<std::byte> encode(const StartHosts& message) {
  WireWriter writer;
  writer.string(message.binary).i32(message.ssh.port).string(message.ssh.identity);
  write_texts(writer, message.ssh.options);
  writer.string(message.job_id).bytes(message.key);
  write_texts(writer, message.addresses);
  writer.list(message.hosts, [](WireWriter& w, const StartHosts::Host& host) {
    w.i32(host.index).string(host.name).string(host.user);
  });
  return writer.take();
}

Result<StartHosts> decode_start_hosts(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  StartHosts out;
  out.binary = reader.string(kMaxText);
  out.ssh.port = reader.i32();
  out.ssh.identity = reader.string(kMaxText);
  out.ssh.options = read_texts(reader, kMaxOptions, kMaxText);
  out.job_id = reader.string(kMaxText);
  out.key = reader.bytes(kMaxKey);
  out.addresses = read_texts(reader, kMaxCandidates, kMaxAddress);
  out.hosts = reader.list<StartHosts::Host>(kMaxTargets, 12, [](WireReader& r) {
    StartHosts::Host host;
    host.index = r.i32();
    host.name = r.string(kMaxText);
    host.user = r.string(kMaxText);
    return host;
  });
  return done(reader, std::move(out), "start hosts");
}

std::vector<std::byte> encode(const Join& message) {
  WireWriter writer;
  writer.i32(message.index).string(message.job_id).bytes(message.key);
  write_texts(writer, message.addresses);
  return writer.take();
}

Result<Join> decode_join(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Join out;
  out.index = reader.i32();
  out.job_id = reader.string(kMaxText);
  out.key = reader.bytes(kMaxKey);
  out.addresses = read_texts(reader, kMaxCandidates, kMaxAddress);
  return done(reader, std::move(out), "join");
}

std::vector<std::byte> encode(const HostFailed& message) {
  WireWriter writer;
  writer.i32(message.index).string(message.text);
  return writer.take();
}

Result<HostFailed> decode_host_failed(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  HostFailed out;
  out.index = reader.i32();
  out.text = reader.string(kMaxFailure);
  return done(reader, std::move(out), "host failed");
}

std::vector<std::byte> encode(const InputTaken& message) {
  WireWriter writer;
  writer.boolean(message.more);
  return writer.take();
}

Result<InputTaken> decode_input_taken(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  InputTaken out;
  out.more = reader.boolean();
  return done(reader, out, "input taken");
}

std::vector<std::byte> encode(const RankStarted& message) {
  WireWriter writer;
  writer.i32(message.rank).i32(message.pid);
  return writer.take();
}

Result<RankStarted> decode_rank_started(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  RankStarted out;
  out.rank = reader.i32();
  out.pid = reader.i32();
  return done(reader, out, "started");
}

std::vector<std::byte> encode(const RankExited& message) {
  WireWriter writer;
  writer.i32(message.rank).i32(message.pid).i32(message.exit_code).i32(message.signal);
  writer.boolean(message.out_of_memory).boolean(message.by_agent);
  return writer.take();
}

Result<RankExited> decode_rank_exited(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  RankExited out;
  out.rank = reader.i32();
  out.pid = reader.i32();
  out.exit_code = reader.i32();
  out.signal = reader.i32();
  out.out_of_memory = reader.boolean();
  out.by_agent = reader.boolean();
  return done(reader, out, "exited");
}

}  // namespace distrun::launcher
