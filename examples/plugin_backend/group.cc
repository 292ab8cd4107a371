#include "group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arithmetic.h"

namespace demo {
namespace {

constexpr std::size_t kPiece = 32768;  // a value in the store has at most 1 MiB
constexpr double kLook = 0.05;         // seconds between two checks for an abort

// Ends an operation early. run() catches it, because no exception may leave the plug-in.
struct Failure {
  std::int32_t code;
  std::string text;
};

std::vector<char> packed(const distrun_backend_operation& operation) {
  const std::size_t bytes = bytes_of(operation.dtype);
  std::vector<char> data;
  for (std::uint64_t i = 0; i < operation.num_segments; ++i) {
    const auto* from = static_cast<const char*>(operation.segments[i].input);
    data.insert(data.end(), from, from + operation.segments[i].count * bytes);
  }
  return data;
}

void unpack(const std::vector<char>& data, const distrun_backend_operation& operation) {
  const std::size_t bytes = bytes_of(operation.dtype);
  const char* from = data.data();
  for (std::uint64_t i = 0; i < operation.num_segments; ++i) {
    const std::size_t part = operation.segments[i].count * bytes;
    if (part > 0) std::memcpy(operation.segments[i].output, from, part);
    from += part;
  }
}

}  // namespace

void Group::run(const distrun_backend_operation& operation, std::uint64_t token) {
  std::int32_t code = DISTRUN_BACKEND_OK;
  std::string text;
  try {
    throw_if_aborted();
    ++sequence_;
    superseded_ = std::move(published_);
    published_.clear();
    if (operation.kind == DISTRUN_BACKEND_ALLREDUCE) allreduce(operation);
    if (operation.kind == DISTRUN_BACKEND_ALLGATHER) allgather(operation);
    if (operation.kind == DISTRUN_BACKEND_BROADCAST) broadcast(operation);
  } catch (const Failure& failure) {
    code = failure.code;
    text = failure.text;
  } catch (const std::exception& error) {
    code = DISTRUN_BACKEND_INTERNAL;
    text = error.what();
  }
  host_->complete(host_group_, token, code, text.c_str());
}

void Group::allreduce(const distrun_backend_operation& operation) {
  Bytes mine = packed(operation);
  with_element(operation.dtype, [&](auto element) {
    using E = decltype(element);
    scale<E>(mine, operation.prescale);
    publish(mine.data(), mine.size());
    std::vector<typename E::Value> sum(mine.size() / sizeof(typename E::Stored));
    // In member order on every member, so that all members get the same bits.
    for (std::size_t member = 0; member < size_; ++member) {
      accumulate<E>(operation.reduce, sum, member == index_ ? mine : fetch(member, mine.size()), member == 0);
    }
    const double divisor = operation.reduce == DISTRUN_BACKEND_AVERAGE ? static_cast<double>(size_) : 1;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const typename E::Stored stored = E::store(E::scale(sum[i], operation.postscale, divisor));
      std::memcpy(mine.data() + i * sizeof(stored), &stored, sizeof(stored));
    }
  });
  unpack(mine, operation);
  forget_what_all_have_read();
}

void Group::allgather(const distrun_backend_operation& operation) {
  const std::size_t bytes = bytes_of(operation.dtype);
  const Bytes mine = packed(operation);  // copied first, because the input may be part of the output
  publish(mine.data(), mine.size());
  char* out = static_cast<char*>(operation.segments[0].output);
  for (std::size_t member = 0; member < size_; ++member) {
    const std::size_t size = operation.counts[member] * bytes;
    const Bytes block = member == index_ ? mine : fetch(member, size);
    if (size > 0) std::memcpy(out, block.data(), size);
    out += size;
  }
  forget_what_all_have_read();
}

void Group::broadcast(const distrun_backend_operation& operation) {
  const auto root = static_cast<std::size_t>(operation.root);
  if (root == index_) {
    const Bytes mine = packed(operation);
    publish(mine.data(), mine.size());
    unpack(mine, operation);
  } else {
    std::size_t size = 0;
    for (std::uint64_t i = 0; i < operation.num_segments; ++i) size += operation.segments[i].count;
    unpack(fetch(root, size * bytes_of(operation.dtype)), operation);
  }
  // The root does not know which members have read its values. They are removed after a later operation.
  published_.insert(published_.end(), superseded_.begin(), superseded_.end());
}

std::string Group::key(std::size_t member, std::size_t piece) const {
  return std::to_string(sequence_) + "." + std::to_string(member) + "." + std::to_string(piece);
}

// Writes at least one value, so that a member that fetches it knows how far this member is.
void Group::publish(const void* data, std::size_t size) {
  for (std::size_t at = 0; at < std::max<std::size_t>(size, 1); at += kPiece) {
    published_.push_back(key(index_, at / kPiece));
    const void* piece = static_cast<const char*>(data) + at;
    const auto code = store_->set(store_->context, published_.back().c_str(), piece, std::min(kPiece, size - at));
    if (code != DISTRUN_BACKEND_OK) throw Failure{code, "demo: the store refused " + published_.back()};
  }
}

Group::Bytes Group::fetch(std::size_t member, std::size_t size) {
  Bytes data(size);
  for (std::size_t at = 0; at < std::max<std::size_t>(size, 1); at += kPiece) {
    const std::string name = key(member, at / kPiece);
    const std::size_t expected = std::min(kPiece, size - at);
    std::int32_t code = DISTRUN_BACKEND_TIMEOUT;
    std::uint64_t got = 0;
    while (code == DISTRUN_BACKEND_TIMEOUT) {
      throw_if_aborted();
      code = store_->get(store_->context, name.c_str(), kLook, data.data() + at, expected, &got);
    }
    if (code != DISTRUN_BACKEND_OK) throw Failure{code, "demo: the store did not give " + name};
    if (got != expected) throw Failure{DISTRUN_BACKEND_PROTOCOL, "demo: the members disagree on the size of " + name};
  }
  return data;
}

// Every member has contributed to the current operation, so all members have finished the earlier ones.
void Group::forget_what_all_have_read() {
  for (const std::string& name : superseded_) store_->set(store_->context, name.c_str(), "", 0);
  superseded_.clear();
}

void Group::throw_if_aborted() {
  if (!aborted_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw Failure{code_, cause_};
}

void Group::abort(std::int32_t code, const char* cause) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) return;
  code_ = code;
  cause_ = cause;
  aborted_ = true;
}

}  // namespace demo
