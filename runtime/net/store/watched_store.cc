#include "runtime/net/store/watched_store.h"

#include <algorithm>
#include <chrono>

#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {

// Interval of the check for failures. Shorter waits cost no extra requests.
constexpr Duration kLookAgain = std::chrono::seconds(1);
constexpr std::size_t kMaxFailureText = std::size_t{1} << 16;

struct MemberFailure {
  std::int32_t code = 0;
  std::int32_t rank = -1;
  std::string host;
  std::string why;
};

template <class V>
void fields(V& v, Ref<V, MemberFailure> m) {
  v(m.code, m.rank).cut_text(m.host, kMaxFailureText).cut_text(m.why, kMaxFailureText);
}

}  // namespace

bool WatchedStore::fail(int rank, const std::string& host, const Status& why) {
  if (why.code() == Errc::kTimeout || why.code() == Errc::kRankLost || why.code() == Errc::kRankLeft) return false;
  const auto first = store_.add(step_ + "/first failure", 1);
  if (!first.ok() || *first != 1) return true;
  const MemberFailure failed{
      .code = static_cast<std::int32_t>(why.code()), .rank = rank, .host = host, .why = why.message()};
  if (store_.set(step_ + "/failure", as_string(encoded(failed))).ok()) (void)store_.add(step_ + "/failed", 1);
  return true;
}

Result<std::string> WatchedStore::get(const std::string& key, TimePoint deadline) {
  for (;;) {
    auto value = store_.get(key, std::min(deadline, Clock::now() + kLookAgain));
    if (value.ok()) return value;
    const Errc code = value.status().code();
    // A member that saw the failure earlier may already have left the job. The store then reports that member.
    const bool ended = code == Errc::kRankLost || code == Errc::kRankLeft;
    if (code != Errc::kTimeout && !ended) return value;
    if (Status failed = failure(); !failed.ok()) {
      reported_ = failed;
      return failed;
    }
    if (ended || Clock::now() >= deadline) return value;
  }
}

Status WatchedStore::failure() {
  const auto count = store_.add(step_ + "/failed", 0);
  if (!count.ok() || *count == 0) return {};
  // This swap only reads. A get() would fail once the job has ended.
  const auto text = store_.swap(step_ + "/failure", "", std::nullopt);
  if (!text.ok() || !*text) return text.status();
  WireReader reader(as_bytes(**text));
  MemberFailure failed;
  fields(reader, failed);
  DISTRUN_RETURN_IF_ERROR(reader.finish("why a member cannot go on"));
  const bool known = failed.code > static_cast<int>(Errc::kOk) && failed.code <= static_cast<int>(Errc::kInternal);
  return Status(ErrorInfo{
      .code = known ? static_cast<Errc>(failed.code) : Errc::kSystem,
      .message = "rank " + std::to_string(failed.rank) + " on " + failed.host + " cannot take part: " + failed.why,
      .ranks = {failed.rank},
      .host = failed.host,
      .cause = failed.why});
}

}  // namespace distrun::net
