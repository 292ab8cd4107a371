// The messages between a rank and the launcher's store server (docs/internals/wire.md, "Store"). Values only; fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::net {

inline constexpr std::size_t kMaxStoreKey = 1024;
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;
// Longer texts of a failure are cut.
inline constexpr std::size_t kMaxCause = 4096;
inline constexpr std::size_t kMaxTensorName = 1024;
inline constexpr std::size_t kMaxFileName = 4096;
inline constexpr std::size_t kMaxMissed = 4096;  // more ranks are left out

// A request of a rank. `id` is the rank's number for the request; the reply has the same number.
struct StoreRequest {
  enum class Kind : std::uint8_t {
    kSet,
    kGet,
    kAdd,
    kCancel,
    kLeave,
    kFailure,
    kStop,
    kEarlyLeave,
    kStall,
    kErase,
    kLoss,
    kSwap,
    kCount,
    kWaits,
    kState,
    kNoProgress
  };
  static constexpr int kKinds = 16;
  Kind kind = Kind::kSet;
  std::uint64_t id = 0;    // kSet kGet kAdd kCancel kSwap kCount
  std::string key;         // kSet kGet kAdd kSwap; kErase kCount: the prefix of the keys
  std::string value;       // kSet: the value; kStop: the cause
  std::int64_t delta = 0;  // kAdd
  // kSwap: the expected and the wanted value of the key; none: the key does not exist.
  std::optional<std::string> expected;
  std::optional<std::string> wanted;
  int rank = -1;                // kEarlyLeave: the rank that left, not the sender
  MissedPeers missed;           // kStall kLoss
  RankFailure failure;          // kFailure kEarlyLeave kStall kLoss kNoProgress
  std::vector<RankWait> waits;  // kWaits
  ProgramState state;           // kState
};

// Sent to a rank: the answer to one request, or an event for all ranks.
struct StoreReply {
  enum class Kind : std::uint8_t { kDone, kValue, kSum, kRefused, kEvent, kAbsent };
  static constexpr int kKinds = 6;
  Kind kind = Kind::kDone;
  std::uint64_t id = 0;  // all kinds except kEvent
  std::string text;      // kValue: the value; kRefused: why
  std::int64_t sum = 0;  // kSum, which also answers kCount
  JobEvent event;        // kEvent
};

std::vector<std::byte> encode(const StoreRequest& request);
std::vector<std::byte> encode(const StoreReply& reply);
Result<StoreRequest> decode_request(std::span<const std::byte> bytes);
Result<StoreReply> decode_reply(std::span<const std::byte> bytes);

}  // namespace distrun::net
