// The C API: the part of the job's store that programs may use.
#include "runtime/net/store/store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "distrun/distrun.h"
#include "runtime/api/c/error.h"
#include "runtime/api/c/handles.h"

using distrun::Errc;
using distrun::Result;
using distrun::Status;
using distrun::api::guarded;

namespace {

// Separates the program's keys from those of the runtime.
std::string program_key(const char* key) { return std::string("program/") + key; }

Result<distrun::net::Store*> store_of(const distrun_session* session, const char* key) {
  if (session == nullptr) return Status(Errc::kNotInitialized, "distrun is not initialized. Call init first");
  if (key == nullptr) return Status(Errc::kInvalidArgument, "the key is NULL");
  distrun::net::Store* store = session->session->job().store();
  if (store == nullptr) return Status(Errc::kUnsupported, "a job of one rank has no store");
  return store;
}

std::optional<std::string> value_of(const void* data, uint64_t size) {
  if (data == nullptr) return std::nullopt;
  return std::string(static_cast<const char*>(data), size);
}

void hand_out(const std::optional<std::string>& value, void* buffer, uint64_t capacity, int64_t* size) {
  *size = value ? static_cast<int64_t>(value->size()) : -1;
  if (value && buffer != nullptr) std::memcpy(buffer, value->data(), std::min<uint64_t>(value->size(), capacity));
}

}  // namespace

extern "C" {

int32_t distrun_store_set(distrun_session* session, const char* key, const void* value, uint64_t size) {
  return guarded([&]() -> Status {
    const auto store = store_of(session, key);
    if (!store.ok()) return store.status();
    return (*store)->set(program_key(key), value_of(value, size).value_or(""));
  });
}

int32_t distrun_store_get(distrun_session* session, const char* key, double timeout, void* buffer, uint64_t capacity,
                          int64_t* size) {
  return guarded([&]() -> Status {
    const auto store = store_of(session, key);
    if (!store.ok()) return store.status();
    if (size == nullptr) return {Errc::kInvalidArgument, "size is NULL"};
    const auto value = (*store)->get(program_key(key), distrun::api::deadline_of(timeout));
    if (!value.ok()) return value.status();
    hand_out(*value, buffer, capacity, size);
    return {};
  });
}

int32_t distrun_store_add(distrun_session* session, const char* key, int64_t delta, int64_t* sum) {
  return guarded([&]() -> Status {
    const auto store = store_of(session, key);
    if (!store.ok()) return store.status();
    if (sum == nullptr) return {Errc::kInvalidArgument, "sum is NULL"};
    const auto added = (*store)->add(program_key(key), delta);
    if (!added.ok()) return added.status();
    *sum = *added;
    return {};
  });
}

int32_t distrun_store_swap(distrun_session* session, const char* key, const void* expected, uint64_t expected_size,
                           const void* wanted, uint64_t wanted_size, void* buffer, uint64_t capacity, int64_t* size) {
  return guarded([&]() -> Status {
    const auto store = store_of(session, key);
    if (!store.ok()) return store.status();
    if (size == nullptr) return {Errc::kInvalidArgument, "size is NULL"};
    const auto before =
        (*store)->swap(program_key(key), value_of(expected, expected_size), value_of(wanted, wanted_size));
    if (!before.ok()) return before.status();
    hand_out(*before, buffer, capacity, size);
    return {};
  });
}

int32_t distrun_store_count(distrun_session* session, const char* prefix, int64_t* count) {
  return guarded([&]() -> Status {
    const auto store = store_of(session, prefix);
    if (!store.ok()) return store.status();
    if (count == nullptr) return {Errc::kInvalidArgument, "count is NULL"};
    const auto keys = (*store)->count(program_key(prefix));
    if (!keys.ok()) return keys.status();
    *count = *keys;
    return {};
  });
}

}  // extern "C"
