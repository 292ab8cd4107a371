#include "runtime/net/store/store_protocol.h"

#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {
constexpr std::size_t kMaxHostName = 256;
constexpr int kEventKinds = 6;
constexpr std::size_t kMaxWaitingRanks = 1 << 20;
constexpr std::size_t kMaxFunction = 256;
}  // namespace

template <class V>
void fields(V& v, Ref<V, JobEvent> event) {
  v.one_of(event.kind, kEventKinds)(event.rank, event.signal, event.exit_code);
  v.cut_text(event.host, kMaxHostName).cut_text(event.cause, kMaxCause)(event.explained_by_output);
}

template <class V>
void fields(V& v, Ref<V, CodePlace> place) {
  v.cut_text(place.file, kMaxFileName)(place.line);
}

template <class V>
void fields(V& v, Ref<V, RankFailure> failure) {
  v.cut_text(failure.cause, kMaxCause).cut_text(failure.tensor, kMaxTensorName);
  fields(v, failure.place);
}

template <class V>
void fields(V& v, Ref<V, ThreadStack> thread) {
  v.cut_text(thread.name, kMaxFunction).list(thread.frames, kMaxFrames, [](auto& w, auto& frame) {
    fields(w, frame.place);
    w.cut_text(frame.function, kMaxFunction);
  });
}

template <class V>
void fields(V& v, Ref<V, ProgramState> state) {
  v.one_of(state.view, ProgramState::kViews).one_of(state.wait, kMainWaits);
  v.cut_text(state.operation, kMaxTensorName)(state.waited).cut_text(state.exception, kMaxCause);
  fields(v, state.raised_at);
  v.list(state.threads, kMaxThreads, [](auto& w, auto& thread) { fields(w, thread); });
  v.cut_text(state.kernel, kMaxFunction);
}

template <class V>
void fields(V& v, Ref<V, RankWait> wait) {
  v.cut_text(wait.what, kMaxCause).numbers(wait.waiting, kMaxWaitingRanks).numbers(wait.missing, kMaxWaitingRanks);
}

// A value that may be missing.
template <class V>
void optional_value(V& v, Ref<V, std::optional<std::string>> value) {
  bool there = value.has_value();
  v(there);
  if constexpr (V::kReads) {
    if (there) value.emplace();
  }
  if (there) v.text(*value, kMaxStoreValue);
}

template <class V>
void fields(V& v, Ref<V, MissedPeers> missed) {
  v.numbers(missed.ranks, kMaxMissed).one_of(missed.link, kLinkEnds)(missed.by_other, missed.deadlock);
}

template <class V>
void fields(V& v, Ref<V, StoreRequest> request) {
  using Kind = StoreRequest::Kind;
  v.one_of(request.kind, StoreRequest::kKinds);
  const auto is = [kind = request.kind](auto... kinds) { return ((kind == kinds) || ...); };
  if (is(Kind::kSet, Kind::kGet, Kind::kAdd, Kind::kCancel, Kind::kSwap, Kind::kCount)) v(request.id);
  if (is(Kind::kSet, Kind::kGet, Kind::kAdd, Kind::kErase, Kind::kSwap, Kind::kCount)) {
    v.text(request.key, kMaxStoreKey);
  }
  if (is(Kind::kSet)) v.text(request.value, kMaxStoreValue);
  if (is(Kind::kAdd, Kind::kErase)) v(request.delta);
  if (is(Kind::kSwap)) {
    optional_value<V>(v, request.expected);
    optional_value<V>(v, request.wanted);
  }
  if (is(Kind::kEarlyLeave)) v(request.rank);
  if (is(Kind::kStop)) v.cut_text(request.value, kMaxCause);
  if (is(Kind::kStall, Kind::kLoss)) fields(v, request.missed);
  if (is(Kind::kFailure, Kind::kEarlyLeave, Kind::kStall, Kind::kLoss, Kind::kNoProgress)) fields(v, request.failure);
  if (is(Kind::kWaits)) v.list(request.waits, kMaxWaits, [](auto& w, auto& wait) { fields(w, wait); });
  if (is(Kind::kState)) fields(v, request.state);
}

template <class V>
void fields(V& v, Ref<V, StoreReply> reply) {
  using Kind = StoreReply::Kind;
  v.one_of(reply.kind, StoreReply::kKinds);
  if (reply.kind != Kind::kEvent) v(reply.id);
  if (reply.kind == Kind::kValue || reply.kind == Kind::kRefused) v.text(reply.text, kMaxStoreValue);
  if (reply.kind == Kind::kSum) v(reply.sum);
  if (reply.kind == Kind::kEvent) fields(v, reply.event);
}

std::vector<std::byte> encode(const StoreRequest& request) { return encoded(request).take(); }
std::vector<std::byte> encode(const StoreReply& reply) { return encoded(reply).take(); }

Result<StoreRequest> decode_request(std::span<const std::byte> bytes) {
  return decoded<StoreRequest>(bytes, "a store request");
}

Result<StoreReply> decode_reply(std::span<const std::byte> bytes) {
  return decoded<StoreReply>(bytes, "a store reply");
}

}  // namespace distrun::net
