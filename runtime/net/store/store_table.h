// The table of the store: values, counters, and the ranks that wait for keys. Pure: it takes requests and returns
// replies. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/net/store/store_protocol.h"

namespace distrun::net {

class StoreTable {
 public:
  // `max_bytes` limits all keys and values together. `max_waits` limits the unanswered gets of one rank.
  explicit StoreTable(std::size_t max_bytes = kDefaultMaxBytes, std::size_t max_waits = 4096)
      : max_bytes_(max_bytes), max_waits_(max_waits) {}

  // Sends one reply at a time, so that a text for thousands of waiting ranks is not copied for each of them. The
  // function must not use the table.
  using Send = std::function<void(int rank, const StoreReply& reply)>;
  // Executes kSet, kGet, kAdd, kSwap, kCount, kCancel and kErase of `rank`. Also answers other ranks that wait for a
  // key that exists now.
  void handle(int rank, const StoreRequest& request, const Send& send);
  // The rank's connection ended. Drops its waits and sends nothing.
  void forget(int rank);

  static constexpr std::size_t kDefaultMaxBytes = std::size_t{256} << 20;

 private:
  using Wait = std::pair<int, std::uint64_t>;  // rank, request id

  void set(int rank, const StoreRequest& request, const Send& send);
  void get(int rank, const StoreRequest& request, const Send& send);
  void add(int rank, const StoreRequest& request, const Send& send);
  void swap(int rank, const StoreRequest& request, const Send& send);
  // Returns false if the table is full.
  bool keep(const std::string& key, const std::string& value);
  void answer_waits(const std::string& key, const Send& send);
  void cancel(const Wait& wait);
  void erase(const std::string& prefix, std::int64_t members);
  [[nodiscard]] bool fits(std::size_t more) const { return more <= max_bytes_ - bytes_; }

  std::size_t max_bytes_;
  std::size_t max_waits_;
  std::size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<Wait>> waiting_;  // by key
  std::map<Wait, std::string> keys_;               // the keys of the waits, ordered by rank
};

}  // namespace distrun::net
