#include "runtime/net/store/store_protocol.h"

#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {

constexpr std::size_t kMaxHostName = 256;
constexpr int kEventKinds = 3;

void write_event(WireWriter& writer, const JobEvent& event) {
  writer.u8(static_cast<std::uint8_t>(event.kind)).i32(event.rank).i32(event.signal).i32(event.exit_code);
  writer.string(event.host.substr(0, kMaxHostName)).string(event.cause.substr(0, kMaxCause));
}

JobEvent read_event(WireReader& reader) {
  JobEvent event;
  event.kind = reader.enumerator<JobEvent::Kind>(kEventKinds);
  event.rank = reader.i32();
  event.signal = reader.i32();
  event.exit_code = reader.i32();
  event.host = reader.string(kMaxHostName);
  event.cause = reader.string(kMaxCause);
  return event;
}

}  // namespace

std::vector<std::byte> encode(const StoreRequest& request) {
  using Kind = StoreRequest::Kind;
  WireWriter writer;
  writer.u8(static_cast<std::uint8_t>(request.kind));
  switch (request.kind) {
    case Kind::kSet:
      writer.u64(request.id).string(request.key).string(request.value);
      break;
    case Kind::kGet:
      writer.u64(request.id).string(request.key);
      break;
    case Kind::kAdd:
      writer.u64(request.id).string(request.key).i64(request.delta);
      break;
    case Kind::kCancel:
      writer.u64(request.id);
      break;
    case Kind::kErase:
      writer.string(request.key).i64(request.delta);
      break;
    case Kind::kLeave:
      break;
    case Kind::kFailure:
    case Kind::kStop:
      writer.string(request.value.substr(0, kMaxCause));
      break;
    case Kind::kEarlyLeave:
    case Kind::kStall:
      writer.i32(request.rank).string(request.value.substr(0, kMaxCause));
      break;
  }
  return writer.take();
}

Result<StoreRequest> decode_request(std::span<const std::byte> bytes) {
  using Kind = StoreRequest::Kind;
  WireReader reader(bytes);
  StoreRequest request;
  request.kind = reader.enumerator<Kind>(StoreRequest::kKinds);
  if (request.kind < Kind::kLeave) request.id = reader.u64();
  const bool erases = request.kind == Kind::kErase;
  if (request.kind == Kind::kSet || request.kind == Kind::kGet || request.kind == Kind::kAdd || erases) {
    request.key = reader.string(kMaxStoreKey);
  }
  if (request.kind == Kind::kSet) request.value = reader.string(kMaxStoreValue);
  if (request.kind == Kind::kAdd || erases) request.delta = reader.i64();
  if (request.kind >= Kind::kEarlyLeave && !erases) request.rank = reader.i32();
  if (request.kind >= Kind::kFailure && !erases) request.value = reader.string(kMaxCause);
  DISTRUN_RETURN_IF_ERROR(reader.finish("a store request"));
  return request;
}

std::vector<std::byte> encode(const StoreReply& reply) {
  using Kind = StoreReply::Kind;
  WireWriter writer;
  writer.u8(static_cast<std::uint8_t>(reply.kind));
  if (reply.kind != Kind::kEvent) writer.u64(reply.id);
  if (reply.kind == Kind::kValue || reply.kind == Kind::kRefused) writer.string(reply.text);
  if (reply.kind == Kind::kSum) writer.i64(reply.sum);
  if (reply.kind == Kind::kEvent) write_event(writer, reply.event);
  return writer.take();
}

Result<StoreReply> decode_reply(std::span<const std::byte> bytes) {
  using Kind = StoreReply::Kind;
  WireReader reader(bytes);
  StoreReply reply;
  reply.kind = reader.enumerator<Kind>(StoreReply::kKinds);
  if (reply.kind != Kind::kEvent) reply.id = reader.u64();
  if (reply.kind == Kind::kValue || reply.kind == Kind::kRefused) reply.text = reader.string(kMaxStoreValue);
  if (reply.kind == Kind::kSum) reply.sum = reader.i64();
  if (reply.kind == Kind::kEvent) reply.event = read_event(reader);
  DISTRUN_RETURN_IF_ERROR(reader.finish("a store reply"));
  return reply;
}

}  // namespace distrun::net
