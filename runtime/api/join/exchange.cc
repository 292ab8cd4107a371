#include "runtime/api/join/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string_view>
#include <unordered_map>

#include "runtime/net/bytes/wire.h"

namespace distrun::api {
namespace {

constexpr std::size_t kMaxMembers = 1 << 20;
constexpr std::size_t kMaxBlob = 1 << 16;
// With many members, the published blobs do not fit into one value of the store.
constexpr std::size_t kPartBytes = 512 << 10;
constexpr std::uint32_t kMaxParts = 512;  // for a store of 256 MiB
// A waiting member gives the store this much time for an answer, even if earlier steps have used up the deadline. It
// also gives member 0, which knows the missing ranks, this much time to report them.
constexpr Duration kAnswerTime = std::chrono::seconds(1);

// The missing ranks, the distinct blobs, and the index of each member's blob. Most members have equal blobs,
// and each of them receives all of this.
struct Gathered {
  std::vector<int> missing;
  std::vector<std::string> distinct;
  std::vector<std::uint32_t> own;
};

template <class V>
void fields(V& v, net::Ref<V, Gathered> all) {
  v.numbers(all.missing, kMaxMembers).texts(all.distinct, kMaxMembers, kMaxBlob).numbers(all.own, kMaxMembers);
}

std::string pack(const std::vector<int>& missing, const std::vector<std::string>& blobs) {
  std::vector<std::string> distinct;
  std::vector<std::uint32_t> own;
  std::unordered_map<std::string_view, std::uint32_t> places;
  for (const std::string& blob : blobs) {
    const auto [place, fresh] = places.emplace(blob, static_cast<std::uint32_t>(distinct.size()));
    if (fresh) distinct.push_back(blob);
    own.push_back(place->second);
  }
  return net::as_string(net::encoded(Gathered{missing, std::move(distinct), std::move(own)}));
}

Status missing_error(const std::vector<int>& missing, const Members& members, const std::string& topic) {
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  const bool one = missing.size() == 1;
  char limit[48] = "in time";
  if (members.time_limit > 0) std::snprintf(limit, sizeof limit, "within %g s", members.time_limit);
  return Status(
      ErrorInfo{.code = Errc::kTimeout,
                .message = (one ? "rank " : "ranks ") + names +
                           (members.met ? " did not come to the step '" + topic + "' " : " did not call init() ") +
                           limit + " (--start-timeout). Check whether " + (one ? "it still runs" : "they still run"),
                .ranks = missing});
}

Result<std::vector<std::string>> unpack(const std::string& all, const Members& members, const std::string& topic) {
  net::WireReader reader(net::as_bytes(all));
  Gathered got;
  fields(reader, got);
  const auto& [missing, distinct, own] = got;
  if (missing.empty() && own.size() != members.ranks.size()) reader.fail("it has not one entry per member");
  const auto is_missing = [count = distinct.size()](std::uint32_t place) { return place >= count; };
  if (std::any_of(own.begin(), own.end(), is_missing)) {
    reader.fail("an entry is missing");
  }
  DISTRUN_RETURN_IF_ERROR(reader.finish("the list of members"));
  if (!missing.empty()) return missing_error(missing, members, topic);
  std::vector<std::string> blobs;
  blobs.reserve(own.size());
  for (const std::uint32_t place : own) blobs.push_back(distinct[place]);
  return blobs;
}

std::string part_key(const std::string& topic, std::uint32_t part) {
  return topic + "/all" + (part == 0 ? "" : "/" + std::to_string(part));
}

// The first part is written last, because it says how many there are. A member that has it finds the others.
Status publish(net::Store& store, const std::string& topic, const std::string& all) {
  const auto parts = static_cast<std::uint32_t>(std::max<std::size_t>((all.size() + kPartBytes - 1) / kPartBytes, 1));
  for (std::uint32_t part = 1; part < parts; ++part) {
    DISTRUN_RETURN_IF_ERROR(store.set(part_key(topic, part), all.substr(part * kPartBytes, kPartBytes)));
  }
  net::WireWriter writer;
  writer.u32(parts).raw(net::as_bytes(all.substr(0, kPartBytes)));
  return store.set(part_key(topic, 0), net::as_string(writer));
}

Result<std::string> fetch(net::Store& store, const std::string& topic, TimePoint deadline) {
  Result<std::string> all = store.get(part_key(topic, 0), deadline);
  if (!all.ok()) return all;
  net::WireReader reader(net::as_bytes(*all));
  const std::uint32_t parts = reader.u32();
  if (!reader.ok() || parts == 0 || parts > kMaxParts) return Status(Errc::kProtocol, "the list of members is damaged");
  all->erase(0, sizeof(parts));
  for (std::uint32_t part = 1; part < parts; ++part) {
    const Result<std::string> more = store.get(part_key(topic, part), deadline);
    if (!more.ok()) return more;
    *all += *more;
  }
  return all;
}

std::string own_key(const std::string& topic, int rank) { return topic + "/" + std::to_string(rank); }

// Member 0 stores this instead of a blob: it has come, and waits this long from now on.
std::string written(Duration time_limit) {
  return net::as_string(net::WireWriter().f64(std::max(std::chrono::duration<double>(time_limit).count(), 0.0)));
}

Result<double> time_limit_of(const std::string& text) {
  net::WireReader reader(net::as_bytes(text));
  const double seconds = reader.f64();
  DISTRUN_RETURN_IF_ERROR(reader.finish("the time limit of member 0"));
  return seconds;
}

// Member 0's part of the exchange.
Result<std::vector<std::string>> gather(net::Store& store, const Members& members, const std::string& topic,
                                        const std::string& mine, TimePoint deadline) {
  const std::vector<int>& ranks = members.ranks;
  DISTRUN_RETURN_IF_ERROR(store.set(own_key(topic, ranks[0]), written(deadline - Clock::now())));
  std::vector<std::string> blobs = {mine};
  std::vector<int> missing;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const TimePoint until = missing.empty() ? deadline : deadline + kAnswerTime;
    Result<std::string> blob = store.get(own_key(topic, ranks[i]), until);
    if (blob.ok()) {
      blobs.push_back(*std::move(blob));
    } else if (blob.status().code() == Errc::kTimeout) {
      missing.push_back(ranks[i]);
    } else {
      return blob.status();
    }
  }
  if (!missing.empty()) blobs.clear();
  DISTRUN_RETURN_IF_ERROR(publish(store, topic, pack(missing, blobs)));
  if (!missing.empty()) return missing_error(missing, members, topic);
  return blobs;
}

}  // namespace

Result<std::vector<std::string>> exchange(net::Store& store, const Members& members, const std::string& topic,
                                          const std::string& mine, TimePoint deadline) {
  if (members.ranks.size() == 1) return std::vector<std::string>{mine};
  const TimePoint until = std::max(deadline, Clock::now() + kAnswerTime);
  if (members.index == 0) return gather(store, members, topic, mine, until);
  const int self = members.ranks[static_cast<std::size_t>(members.index)];
  DISTRUN_RETURN_IF_ERROR(store.set(own_key(topic, self), mine));
  Result<std::string> all = fetch(store, topic, until + 3 * kAnswerTime);
  if (!all.ok() && all.status().code() == Errc::kTimeout) {
    // Member 0's deadline counts from its own call. If it came later than this member, it still waits for the missing
    // ones.
    const auto waits = store.get(own_key(topic, members.ranks[0]), Clock::now() + kAnswerTime);
    if (waits.ok()) {
      const auto seconds = time_limit_of(*waits);
      if (!seconds.ok()) return seconds.status();
      all = fetch(store, topic, deadline_after(*seconds) + 3 * kAnswerTime);
    }
  }
  if (all.ok()) return unpack(*all, members, topic);
  return all.status().code() == Errc::kTimeout ? missing_error({members.ranks[0]}, members, topic) : all.status();
}

}  // namespace distrun::api
