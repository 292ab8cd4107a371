#include "runtime/engine/protocol/messages.h"

#include <utility>

#include "runtime/net/bytes/wire.h"

namespace distrun::engine {
namespace {

using net::Ref;
using net::WireReader;
using net::WireWriter;

constexpr std::uint8_t kFormat = 7;  // of this file; change it with every change of the format
constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxList = 1 << 20;
constexpr int kNumErrorCodes = static_cast<int>(Errc::kInternal) + 1;

// One function with the list of fields for each kind of value, message and log entry. The number of a kind is its
// position in the variant.

template <class V>
void fields(V& v, Ref<V, ErrorInfo> error) {
  v.one_of(error.code, kNumErrorCodes);
  if (error.code == Errc::kOk) return;
  v.cut_text(error.message, kMaxText).cut_text(error.tensor, kMaxName).numbers(error.ranks, kMaxList);
  v.cut_text(error.host, kMaxName).cut_text(error.cause, kMaxText)(error.usable);
}

template <class V>
void fields(V& v, Ref<V, Status> status) {
  ErrorInfo error = status.ok() ? ErrorInfo{.code = Errc::kOk} : status.info();
  fields(v, error);
  if constexpr (V::kReads) status = error.code == Errc::kOk ? Status() : Status(std::move(error));
}

template <class V>
void fields(V& v, Ref<V, Signature> s) {
  v.one_of(s.kind, kNumOpKinds).one_of(s.dtype, kNumDTypes).one_of(s.device, 2).one_of(s.reduce, kNumReduceOps);
  v(s.prescale, s.postscale, s.root).numbers(s.shape, kMaxDimensions);
  if (traits_of(s.kind).has_splits) v.numbers(s.splits, kMaxList);
  v(s.group.size);
  if (s.group.size != 0) v(s.group.digest).text(s.group.first, kMaxName);
  v.check(!V::kReads || fits_in_memory(s.shape, s.dtype), "a shape is negative or too large");
  const bool reducible = !traits_of(s.kind).reduces || can_reduce(s.dtype, s.reduce);
  v.check(!V::kReads || reducible, "a reduction that the dtype does not have");
}

template <class V>
void fields(V& v, Ref<V, TensorRef> ref) {
  bool known = ref.name.empty();
  v(ref.id, known);
  if (known) return;
  v.text(ref.name, kMaxName).check(!ref.name.empty(), "a tensor without a name");
  bool full = ref.signature.has_value();
  v.numbers(ref.first_dims, kMaxSplitMembers * kMaxSplitMembers)(full);
  if (!full) return;
  if constexpr (V::kReads) ref.signature.emplace();
  fields(v, *ref.signature);
}

template <class V>
void fields(V& v, Ref<V, entry::Run> e) {
  v(e.set).list(e.tensors, kMaxList, [](auto& w, auto& ref) { fields(w, ref); });
}
template <class V>
void fields(V& v, Ref<V, entry::Fail> e) {
  v(e.set).text(e.name, kMaxName);
  fields(v, e.error);
  v.check(!e.error.ok(), "a tensor fails without an error").numbers(e.ranks, kMaxList);
}
template <class V>
void fields(V& v, Ref<V, entry::Evict> e) {
  v.numbers(e.ids, kMaxList);
}
template <class V>
void fields(V& v, Ref<V, entry::MakeSet> e) {
  v(e.set).numbers(e.ranks, kMaxList)(e.members_only, e.unordered);
}
template <class V>
void fields(V& v, Ref<V, entry::RemoveSet> e) {
  v(e.set);
}
template <class V>
void fields(V& v, Ref<V, entry::EndCall> e) {
  v(e.set).numbers(e.ranks, kMaxList)(e.unordered);
  fields(v, e.result);
}
template <class V>
void fields(V& v, Ref<V, entry::Timeline> e) {
  v.text(e.path, kMaxName);
}
template <class V>
void fields(V& v, Ref<V, entry::Left> e) {
  v(e.rank);
}
template <class V>
void fields(V& /*v*/, Ref<V, entry::Shutdown> /*e*/) {}

template <class V>
void fields(V& v, Ref<V, message::Submitted> m) {
  v(m.set).text(m.name, kMaxName);
  fields(v, m.signature);
  v.cut_text(m.refusal, kMaxText);
}
template <class V>
void fields(V& v, Ref<V, message::Ready> m) {
  v.numbers(m.ids, kMaxList);
}
template <class V>
void fields(V& v, Ref<V, message::Called> m) {
  v.one_of(m.call.kind, Call::kNumKinds).numbers(m.call.ranks, kMaxList)(m.call.set);
  v.text(m.call.path, kMaxName)(m.call.members_only, m.call.unordered);
}
template <class V>
void fields(V& v, Ref<V, message::SetMade> m) {
  v(m.set);
  fields(v, m.result);
}
template <class V>
void fields(V& /*v*/, Ref<V, message::Leaving> /*m*/) {}
template <class V>
void fields(V& /*v*/, Ref<V, message::Drained> /*m*/) {}
template <class V>
void fields(V& v, Ref<V, message::Events> m) {
  v.list(m.events, kMaxList, [](auto& w, auto& event) {
    w(event.start_ns, event.duration_ns).text(event.tensor, kMaxName).text(event.phase, kMaxName);
  });
}
template <class V>
void fields(V& v, Ref<V, message::Ping> m) {
  v(m.number, m.sent_ns);
}
template <class V>
void fields(V& v, Ref<V, message::Pong> m) {
  v(m.number, m.sent_ns, m.here_ns);
}
template <class V>
void fields(V& v, Ref<V, message::Abort> m) {
  fields(v, m.why);
  v.check(!m.why.ok(), "an abort without a reason");
}
template <class V>
void fields(V& v, Ref<V, message::StopAsked> m) {
  v.cut_text(m.cause, kMaxText);
}
template <class V>
void fields(V& v, Ref<V, message::StopCount> m) {
  v(m.calls);
}
template <class V>
void fields(V& /*v*/, Ref<V, message::StopHold> /*m*/) {}
template <class V>
void fields(V& v, Ref<V, message::StopAt> m) {
  v(m.call).check(m.call != 0, "ranks cannot stop before their first call");
}
template <class V>
void fields(V& v, Ref<V, message::WaitAsked> m) {
  v(m.round);
}
template <class V>
void fields(V& v, Ref<V, message::WaitAnswer> m) {
  v(m.round).one_of(m.wait, net::kMainWaits)(m.moves, m.changes, m.cpu_ns).cut_text(m.operation, kMaxText);
}
// This message contains log entries. So it is declared before the code that selects a kind by its position.
template <class V>
void fields(V& v, Ref<V, message::Append> m);

template <class Variant>
void variant(WireWriter& w, const Variant& value) {
  w.u8(static_cast<std::uint8_t>(value.index()));
  std::visit([&](const auto& one) { fields(w, one); }, value);
}

template <class Variant>
void variant(WireReader& r, Variant& value) {
  const std::uint8_t kind = r.u8();
  r.check(kind < std::variant_size_v<Variant>, "an unknown kind of message or log entry");
  const auto read_one = [&](auto index) {
    if (kind == index) fields(r, value.template emplace<index>());
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) { (read_one(std::integral_constant<std::size_t, Is>{}), ...); }
  (std::make_index_sequence<std::variant_size_v<Variant>>{});
}

// The smallest kinds have no fields, so they take one byte, for the kind.
template <class V, class Variants>
void variants(V& v, Variants& list) {
  v.list(
      list, kMaxList, [](auto& w, auto& one) { variant(w, one); }, 1);
}

template <class V>
void fields(V& v, Ref<V, message::Append> m) {
  variants(v, m.entries);
}
}  // namespace

std::vector<std::byte> encode(const Frame& frame) {
  WireWriter w;
  w.u8(kFormat).u32(frame.capabilities).u32(frame.epoch).u64(frame.index);
  variants(w, frame.messages);
  DISTRUN_CHECK(w.size() <= kMaxFrame, "a control frame of " + std::to_string(w.size()) + " bytes");
  return w.take();
}

Result<Frame> decode(std::span<const std::byte> bytes) {
  WireReader r(bytes);
  if (const std::uint8_t format = r.u8(); r.ok() && format != kFormat) {
    return Status(Errc::kProtocol, "another version of distrun sent it (format " + std::to_string(format) + ", not " +
                                       std::to_string(kFormat) + "). Install the same version on all hosts");
  }
  Frame frame{.capabilities = r.u32(), .epoch = r.u32(), .index = r.u64()};
  variants(r, frame.messages);
  if (Status status = r.finish("a control message"); !status.ok()) return status;
  return frame;
}

}  // namespace distrun::engine
