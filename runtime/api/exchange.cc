#include "runtime/api/exchange.h"

#include <span>

#include "runtime/net/wire.h"

namespace distrun::api {
namespace {

constexpr std::size_t kMaxMembers = 1 << 20;
constexpr std::size_t kMaxBlob = 1 << 16;

std::string pack(const std::vector<std::string>& blobs) {
  net::WireWriter writer;
  writer.list(blobs, [](net::WireWriter& to, const std::string& blob) { to.string(blob); });
  const std::span<const std::byte> bytes = writer.view();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::vector<std::string>> unpack(const std::string& all, std::size_t expected) {
  net::WireReader reader(net::as_bytes(all));
  auto blobs = reader.list<std::string>(kMaxMembers, 4, [](net::WireReader& from) { return from.string(kMaxBlob); });
  if (blobs.size() != expected) reader.fail("the list has not one entry per member");
  DISTRUN_RETURN_IF_ERROR(reader.finish("the members' list"));
  return blobs;
}

Status name_missing(const Status& status, const std::string& topic, int rank) {
  if (status.code() != Errc::kTimeout) return status;
  ErrorInfo info = status.info();
  info.ranks = {rank};
  info.message = "rank " + std::to_string(rank) + " did not come in time (" + topic +
                 "); is it still starting, or stuck before init? start_timeout sets how long to wait";
  return Status(std::move(info));
}

}  // namespace

Result<std::vector<std::string>> exchange(net::Store& store, const Members& members, const std::string& topic,
                                          const std::string& mine, TimePoint deadline) {
  const std::size_t size = members.ranks.size();
  if (size == 1) return std::vector<std::string>{mine};
  const std::string all_key = topic + "/all";
  if (members.index != 0) {
    const int self = members.ranks[static_cast<std::size_t>(members.index)];
    DISTRUN_RETURN_IF_ERROR(store.set(topic + "/" + std::to_string(self), mine));
    Result<std::string> all = store.get(all_key, deadline);
    if (!all.ok()) return name_missing(all.status(), topic, members.ranks[0]);
    return unpack(*all, size);
  }
  std::vector<std::string> blobs = {mine};
  for (std::size_t i = 1; i < size; ++i) {
    Result<std::string> blob = store.get(topic + "/" + std::to_string(members.ranks[i]), deadline);
    if (!blob.ok()) return name_missing(blob.status(), topic, members.ranks[i]);
    blobs.push_back(*std::move(blob));
  }
  DISTRUN_RETURN_IF_ERROR(store.set(all_key, pack(blobs)));
  return blobs;
}

}  // namespace distrun::api
