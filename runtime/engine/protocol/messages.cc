#include "runtime/engine/protocol/messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/net/bytes/wire.h"

namespace distrun::engine {
namespace {

using net::WireReader;
using net::WireWriter;

constexpr std::uint8_t kFormat = 6;  // of this file; a change of format is a new number
constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxList = 1 << 20;
constexpr int kNumErrorCodes = static_cast<int>(Errc::kInternal) + 1;

// --- values ---

// The part of a text that its reader takes, without half a character: better than that the peers end over its length.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (most > 0 && inside(most)) --most;
  return text.substr(0, most);
}

void write_status(WireWriter& w, const Status& status) {
  w.u8(static_cast<std::uint8_t>(status.code()));
  if (status.ok()) return;
  const ErrorInfo& info = status.info();
  w.string(cut(info.message, kMaxText)).string(cut(info.tensor, kMaxName));
  w.i32s(std::span(info.ranks).first(std::min(info.ranks.size(), kMaxList)));
  w.string(cut(info.host, kMaxName)).string(cut(info.cause, kMaxText)).boolean(info.usable);
}

Status read_status(WireReader& r) {
  ErrorInfo info{.code = r.enumerator<Errc>(kNumErrorCodes)};
  if (info.code == Errc::kOk) return {};
  info.message = r.string(kMaxText);
  info.tensor = r.string(kMaxName);
  info.ranks = r.i32s(kMaxList);
  info.host = r.string(kMaxName);
  info.cause = r.string(kMaxText);
  info.usable = r.boolean();
  return Status(std::move(info));
}

void write_signature(WireWriter& w, const Signature& s) {
  w.u8(static_cast<std::uint8_t>(s.kind)).u8(static_cast<std::uint8_t>(s.dtype));
  w.u8(static_cast<std::uint8_t>(s.device)).u8(static_cast<std::uint8_t>(s.reduce));
  w.f64(s.prescale).f64(s.postscale).i32(s.root).i64s(s.shape);
  if (s.kind == OpKind::kAlltoall) w.i64s(s.splits);
  w.u32(s.group.size);
  if (s.group.size != 0) w.u64(s.group.digest).string(s.group.first);
}

Signature read_signature(WireReader& r) {
  Signature s;
  s.kind = r.enumerator<OpKind>(kNumOpKinds);
  s.dtype = r.enumerator<DType>(kNumDTypes);
  s.device = r.enumerator<DeviceType>(2);
  s.reduce = r.enumerator<ReduceOp>(kNumReduceOps);
  s.prescale = r.f64();
  s.postscale = r.f64();
  s.root = r.i32();
  s.shape = r.i64s(kMaxDimensions);
  if (s.kind == OpKind::kAlltoall) s.splits = r.i64s(kMaxList);
  s.group.size = r.u32();
  if (s.group.size != 0) {
    s.group.digest = r.u64();
    s.group.first = r.string(kMaxName);
  }
  if (!fits_in_memory(s.shape, s.dtype)) r.fail("a shape is negative or too large");
  return s;
}

void write_ref(WireWriter& w, const TensorRef& ref) {
  w.u32(ref.id).boolean(ref.name.empty());
  if (ref.name.empty()) return;
  w.string(ref.name).i64s(ref.first_dims).boolean(ref.signature.has_value());
  if (ref.signature) write_signature(w, *ref.signature);
}

TensorRef read_ref(WireReader& r) {
  TensorRef ref{.id = r.u32()};
  if (r.boolean()) return ref;
  ref.name = r.string(kMaxName);
  if (ref.name.empty()) r.fail("a tensor without a name");
  ref.first_dims = r.i64s(kMaxSplitMembers * kMaxSplitMembers);
  if (r.boolean()) ref.signature = read_signature(r);
  return ref;
}

void write_ids(WireWriter& w, const std::vector<TensorId>& ids) {
  w.list(ids, [](WireWriter& writer, TensorId id) { writer.u32(id); });
}

std::vector<TensorId> read_ids(WireReader& r) {
  return r.list<TensorId>(kMaxList, 4, [](WireReader& reader) { return reader.u32(); });
}

// --- log entries: one write and one read per kind; the kind is the position in the variant ---

void write_body(WireWriter& w, const entry::Run& e) { w.i32(e.set).list(e.tensors, write_ref); }
void read_body(WireReader& r, entry::Run& e) {
  e.set = r.i32();
  e.tensors = r.list<TensorRef>(kMaxList, 5, read_ref);
}
void write_body(WireWriter& w, const entry::Fail& e) {
  w.i32(e.set).string(e.name);
  write_status(w, e.error);
  w.i32s(e.ranks);
}
void read_body(WireReader& r, entry::Fail& e) {
  e.set = r.i32();
  e.name = r.string(kMaxName);
  e.error = read_status(r);
  if (e.error.ok()) r.fail("a tensor fails without an error");
  e.ranks = r.i32s(kMaxList);
}
void write_body(WireWriter& w, const entry::Evict& e) { write_ids(w, e.ids); }
void read_body(WireReader& r, entry::Evict& e) { e.ids = read_ids(r); }
void write_body(WireWriter& w, const entry::MakeSet& e) {
  w.i32(e.set).i32s(e.ranks).boolean(e.members_only).boolean(e.apart);
}
void read_body(WireReader& r, entry::MakeSet& e) {
  e.set = r.i32();
  e.ranks = r.i32s(kMaxList);
  e.members_only = r.boolean();
  e.apart = r.boolean();
}
void write_body(WireWriter& w, const entry::RemoveSet& e) { w.i32(e.set); }
void read_body(WireReader& r, entry::RemoveSet& e) { e.set = r.i32(); }
void write_body(WireWriter& w, const entry::EndCall& e) {
  w.i32(e.set).i32s(e.ranks).boolean(e.apart);
  write_status(w, e.result);
}
void read_body(WireReader& r, entry::EndCall& e) {
  e.set = r.i32();
  e.ranks = r.i32s(kMaxList);
  e.apart = r.boolean();
  e.result = read_status(r);
}
void write_body(WireWriter& w, const entry::Timeline& e) { w.string(e.path); }
void read_body(WireReader& r, entry::Timeline& e) { e.path = r.string(kMaxName); }
void write_body(WireWriter& w, const entry::Left& e) { w.i32(e.rank); }
void read_body(WireReader& r, entry::Left& e) { e.rank = r.i32(); }
void write_body(WireWriter&, const entry::Shutdown&) {}
void read_body(WireReader&, entry::Shutdown&) {}

// --- messages ---

void write_body(WireWriter& w, const message::Submitted& m) {
  w.i32(m.set).string(m.name);
  write_signature(w, m.signature);
  w.string(cut(m.refusal, kMaxText));
}
void read_body(WireReader& r, message::Submitted& m) {
  m.set = r.i32();
  m.name = r.string(kMaxName);
  m.signature = read_signature(r);
  m.refusal = r.string(kMaxText);
}
void write_body(WireWriter& w, const message::Ready& m) { write_ids(w, m.ids); }
void read_body(WireReader& r, message::Ready& m) { m.ids = read_ids(r); }
void write_body(WireWriter& w, const message::Called& m) {
  w.u8(static_cast<std::uint8_t>(m.call.kind)).i32s(m.call.ranks).i32(m.call.set).string(m.call.path);
  w.boolean(m.call.members_only).boolean(m.call.apart);
}
void read_body(WireReader& r, message::Called& m) {
  m.call.kind = r.enumerator<Call::Kind>(Call::kNumKinds);
  m.call.ranks = r.i32s(kMaxList);
  m.call.set = r.i32();
  m.call.path = r.string(kMaxName);
  m.call.members_only = r.boolean();
  m.call.apart = r.boolean();
}
void write_body(WireWriter& w, const message::SetMade& m) {
  w.i32(m.set);
  write_status(w, m.result);
}
void read_body(WireReader& r, message::SetMade& m) {
  m.set = r.i32();
  m.result = read_status(r);
}
void write_body(WireWriter&, const message::Leaving&) {}
void read_body(WireReader&, message::Leaving&) {}
void write_body(WireWriter&, const message::Drained&) {}
void read_body(WireReader&, message::Drained&) {}
void write_body(WireWriter& w, const message::Events& m) {
  w.list(m.events, [](WireWriter& writer, const TimelineEvent& event) {
    writer.i64(event.start_ns).i64(event.duration_ns).string(event.tensor).string(event.phase);
  });
}
void read_body(WireReader& r, message::Events& m) {
  m.events = r.list<TimelineEvent>(kMaxList, 24, [](WireReader& reader) {
    TimelineEvent event{.start_ns = reader.i64(), .duration_ns = reader.i64()};
    event.tensor = reader.string(kMaxName);
    event.phase = reader.string(kMaxName);
    return event;
  });
}
void write_body(WireWriter& w, const message::Ping& m) { w.u64(m.number).i64(m.sent_ns); }
void read_body(WireReader& r, message::Ping& m) {
  m.number = r.u64();
  m.sent_ns = r.i64();
}
void write_body(WireWriter& w, const message::Pong& m) { w.u64(m.number).i64(m.sent_ns).i64(m.here_ns); }
void read_body(WireReader& r, message::Pong& m) {
  m.number = r.u64();
  m.sent_ns = r.i64();
  m.here_ns = r.i64();
}
void write_body(WireWriter& w, const message::Abort& m) { write_status(w, m.why); }
void read_body(WireReader& r, message::Abort& m) {
  m.why = read_status(r);
  if (m.why.ok()) r.fail("an abort without a reason");
}
void write_body(WireWriter& w, const message::StopAsked& m) { w.string(cut(m.cause, kMaxText)); }
void read_body(WireReader& r, message::StopAsked& m) { m.cause = r.string(kMaxText); }
void write_body(WireWriter& w, const message::StopCount& m) { w.u64(m.calls); }
void read_body(WireReader& r, message::StopCount& m) { m.calls = r.u64(); }
void write_body(WireWriter&, const message::StopHold&) {}
void read_body(WireReader&, message::StopHold&) {}
void write_body(WireWriter& w, const message::StopAt& m) { w.u64(m.call); }
void read_body(WireReader& r, message::StopAt& m) {
  m.call = r.u64();
  if (m.call == 0) r.fail("ranks cannot stop before their first call");
}

// Entries are nested in messages, so both kinds of body are declared before the code that picks one by position.
void write_body(WireWriter& w, const message::Append& m);
void read_body(WireReader& r, message::Append& m);

template <class Variant>
void write_variant(WireWriter& w, const Variant& value) {
  w.u8(static_cast<std::uint8_t>(value.index()));
  std::visit([&](const auto& one) { write_body(w, one); }, value);
}

template <class Variant, std::size_t... Is>
Variant read_variant(WireReader& r, std::index_sequence<Is...>) {
  const std::uint8_t kind = r.u8();
  if (kind >= sizeof...(Is)) r.fail("an unknown kind of message or log entry");
  Variant value;
  const auto read_one = [&](auto index) {
    if (kind == index) read_body(r, value.template emplace<index>());
  };
  (read_one(std::integral_constant<std::size_t, Is>{}), ...);
  return value;
}

template <class Variant>
Variant read_variant(WireReader& r) {
  return read_variant<Variant>(r, std::make_index_sequence<std::variant_size_v<Variant>>{});
}

void write_body(WireWriter& w, const message::Append& m) {
  w.list(m.entries, [](WireWriter& writer, const Entry& entry) { write_variant(writer, entry); });
}
void read_body(WireReader& r, message::Append& m) {
  m.entries = r.list<Entry>(kMaxList, 1, [](WireReader& reader) { return read_variant<Entry>(reader); });
}
}  // namespace

std::vector<std::byte> encode(const Frame& frame) {
  WireWriter w;
  w.u8(kFormat).u32(frame.capabilities).u32(frame.epoch).u64(frame.index);
  w.list(frame.messages, [](WireWriter& writer, const Message& one) { write_variant(writer, one); });
  DISTRUN_CHECK(w.size() <= kMaxFrame, "a control frame of " + std::to_string(w.size()) + " bytes");
  return w.take();
}

Result<Frame> decode(std::span<const std::byte> bytes) {
  WireReader r(bytes);
  if (const std::uint8_t format = r.u8(); r.ok() && format != kFormat) {
    return Status(Errc::kProtocol, "a peer's engine speaks format " + std::to_string(format) + ", this one " +
                                       std::to_string(kFormat) + "; install the same distrun version on all hosts");
  }
  Frame frame{.capabilities = r.u32(), .epoch = r.u32(), .index = r.u64()};
  frame.messages = r.list<Message>(kMaxList, 1, [](WireReader& reader) { return read_variant<Message>(reader); });
  if (Status status = r.finish("a control frame"); !status.ok()) return status;
  return frame;
}

}  // namespace distrun::engine
