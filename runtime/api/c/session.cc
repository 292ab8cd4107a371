// The C API: sessions, queries, process sets, timeline.
#include "runtime/api/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "distrun/distrun.h"
#include "runtime/api/c/error.h"
#include "runtime/api/c/handles.h"
#include "runtime/api/describe.h"

using distrun::Errc;
using distrun::Status;
using distrun::api::check_struct;
using distrun::api::deadline_of;
using distrun::api::guarded;

namespace {

constexpr std::array<const char*, 16> kCodeNames = {
    "ok",      "invalid argument", "duplicate name", "mismatch",       "rank lost",    "rank left",
    "timeout", "not initialized",  "unsupported",    "protocol error", "system error", "interrupted",
    "aborted", "shut down",        "out of memory",  "internal error"};

std::atomic<bool> g_session_open{false};
std::atomic<int> g_next_process_set{1};  // for all sessions of this process, if it is rank 0 of their jobs
std::atomic<distrun_session*> g_current_session{nullptr};  // set from the end of init to close

// The right to open this process's session. The destructor gives it back unless keep() was called.
class SessionClaim {
 public:
  SessionClaim() : taken_(!g_session_open.exchange(true, std::memory_order_seq_cst)) {}
  SessionClaim(const SessionClaim&) = delete;
  SessionClaim& operator=(const SessionClaim&) = delete;
  ~SessionClaim() {
    if (taken_ && !kept_) g_session_open.store(false, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool taken() const { return taken_; }
  void keep() { kept_ = true; }

 private:
  const bool taken_;
  bool kept_ = false;
};

Status check_session(const distrun_session* session) {
  if (session != nullptr) return {};
  return {Errc::kNotInitialized, "distrun is not initialized. Call init first"};
}

Status take_settings(const distrun_options& options, std::vector<std::string>& overrides) {
  DISTRUN_RETURN_IF_ERROR(check_struct(&options, "options"));
  if (options.settings == nullptr && options.num_settings != 0) {
    return {Errc::kInvalidArgument, "options.settings is NULL, but num_settings is not 0"};
  }
  for (uint32_t i = 0; i < options.num_settings; ++i) {
    if (options.settings[i] == nullptr) {
      return {Errc::kInvalidArgument, "options.settings[" + std::to_string(i) + "] is NULL. Write it as name=value"};
    }
    overrides.emplace_back(options.settings[i]);
  }
  return {};
}

template <class Add>
Status add_process_set(distrun_session* session, const int32_t* ranks, uint64_t count, int32_t* process_set,
                       const Add& add) {
  DISTRUN_RETURN_IF_ERROR(check_session(session));
  if (ranks == nullptr || process_set == nullptr || count == 0) {
    return {Errc::kInvalidArgument, "a process set needs at least one rank and a place for its id"};
  }
  const distrun::Result<int> id = add(session->session->engine(), std::vector<int>{ranks, ranks + count});
  if (!id.ok()) return id.status();
  *process_set = *id;
  return {};
}

Status add_process_set_in_order(distrun_session* session, const int32_t* ranks, uint64_t count, bool members_only,
                                int32_t* process_set) {
  return add_process_set(session, ranks, count, process_set, [&](auto& engine, const std::vector<int>& members) {
    return engine.add_process_set(members, members_only, distrun::TimePoint::max());
  });
}

}  // namespace

extern "C" {

uint32_t distrun_api_version(void) { return DISTRUN_API_VERSION; }
const char* distrun_version(void) { return DISTRUN_VERSION_TEXT; }

const char* distrun_code_name(int32_t code) {
  if (code < 0 || static_cast<std::size_t>(code) >= kCodeNames.size()) return "unknown code";
  return kCodeNames[static_cast<std::size_t>(code)];
}

void distrun_last_error(distrun_error* error) {
  if (check_struct(error, "error").ok()) distrun::api::fill_error(distrun::api::last_error(), error);
}

int32_t distrun_init(const distrun_options* options, distrun_session** session) {
  return guarded([&]() -> Status {
    if (session == nullptr) return {Errc::kInvalidArgument, "session is NULL"};
    // Only one at a time: a process is one rank, and a rank joins its job once.
    SessionClaim claim;
    if (!claim.taken()) {
      return {
          Errc::kInvalidArgument,
          "this process has a session already. Use it (distrun_current), or shut it down and close it before another "
          "init"};
    }
    *session = nullptr;  // not earlier: `session` may point to the session that is open
    std::vector<std::string> overrides;
    if (options != nullptr) DISTRUN_RETURN_IF_ERROR(take_settings(*options, overrides));
    auto opened = distrun::api::Session::open(distrun::process_environment(), overrides, &g_next_process_set);
    if (!opened.ok()) return opened.status();
    auto made = std::make_unique<distrun_session>();
    made->session = *std::move(opened);
    claim.keep();
    *session = made.release();
    g_current_session.store(*session, std::memory_order_release);
    return {};
  });
}

distrun_session* distrun_current(void) {
  return distrun::in_forked_child() ? nullptr : g_current_session.load(std::memory_order_acquire);
}

int32_t distrun_shutdown(distrun_session* session) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    return session->session->shutdown();
  });
}

int32_t distrun_abort(distrun_session* session, const char* cause) {
  return distrun_abort_at(session, cause, nullptr, 0, nullptr);
}

int32_t distrun_abort_at(distrun_session* session, const char* cause, const char* file, int32_t line,
                         const char* tensor) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    session->session->abort({.cause = cause == nullptr ? "aborted by the program" : cause,
                             .tensor = tensor == nullptr ? "" : tensor,
                             .place = {.file = file == nullptr ? "" : file, .line = line}});
    return {};
  });
}

int32_t distrun_should_stop(distrun_session* session, int32_t request, int32_t* stop) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    if (stop == nullptr) return {Errc::kInvalidArgument, "stop is NULL"};
    const auto answer = session->session->should_stop(request != 0);
    if (!answer.ok()) return answer.status();
    *stop = *answer ? 1 : 0;
    return {};
  });
}

void distrun_close(distrun_session* session) {
  // In a forked child the descriptors are already closed and the threads do not exist. The only safe action is to leave
  // the memory alone.
  if (session == nullptr || distrun::in_forked_child()) return;
  g_current_session.store(nullptr, std::memory_order_release);
  delete session;
  g_session_open.store(false, std::memory_order_seq_cst);
}

int32_t distrun_get_world(distrun_session* session, distrun_world* world) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    DISTRUN_RETURN_IF_ERROR(check_struct(world, "world"));
    const distrun::net::World& known = session->session->world();
    distrun_world filled = {};
    filled.rank = known.rank;
    filled.size = known.size;
    filled.local_rank = known.local_rank;
    filled.local_size = known.local_size;
    filled.cross_rank = known.cross_rank;
    filled.cross_size = known.cross_size;
    filled.host = known.host.c_str();
    filled.job_id = known.job_id.c_str();
    filled.num_gpus = static_cast<uint32_t>(known.gpus.size());
    filled.gpus = known.gpus.data();
    distrun::api::copy_sized(world, filled);
    return {};
  });
}

int64_t distrun_query(distrun_session* session, const char* what, char* buffer, uint64_t size) {
  std::string text;
  const int32_t code = guarded([&]() -> Status {
    if (what == nullptr) return {Errc::kInvalidArgument, "the question is NULL"};
    text = session != nullptr ? session->session->describe(what) : distrun::api::describe_without_session(what);
    return {};
  });
  if (code != DISTRUN_OK) return -1;
  if (buffer != nullptr && size > 0) {
    const std::size_t copied = std::min<std::size_t>(text.size(), size - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return static_cast<int64_t>(text.size());
}

int32_t distrun_mac(distrun_session* session, const char* purpose, const void* data, uint64_t size, void* mac) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    if (purpose == nullptr || mac == nullptr || (data == nullptr && size > 0)) {
      return {Errc::kInvalidArgument, "purpose, data or mac is NULL"};
    }
    const auto made = session->session->job().mac(purpose, {static_cast<const std::byte*>(data), size});
    static_assert(made.size() == DISTRUN_MAC_SIZE);
    std::memcpy(mac, made.data(), made.size());
    return {};
  });
}

int32_t distrun_process_set_add(distrun_session* session, const int32_t* ranks, uint64_t count, int32_t* process_set) {
  return guarded([&] { return add_process_set_in_order(session, ranks, count, false, process_set); });
}

int32_t distrun_process_set_add_by_members(distrun_session* session, const int32_t* ranks, uint64_t count,
                                           int32_t* process_set) {
  return guarded([&] { return add_process_set_in_order(session, ranks, count, true, process_set); });
}

int32_t distrun_process_set_remove(distrun_session* session, int32_t process_set) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    return session->session->engine().remove_process_set(process_set, distrun::TimePoint::max());
  });
}

int32_t distrun_process_set_add_apart(distrun_session* session, const int32_t* ranks, uint64_t count, double timeout,
                                      int32_t* process_set) {
  return guarded([&] {
    return add_process_set(session, ranks, count, process_set, [&](auto& engine, const std::vector<int>& members) {
      return engine.add_process_set_apart(members, deadline_of(timeout));
    });
  });
}

int32_t distrun_process_set_drop(distrun_session* session, int32_t process_set) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    return session->session->engine().drop_process_set(process_set);
  });
}

int32_t distrun_process_set_ranks(distrun_session* session, int32_t process_set, int32_t* ranks, uint64_t capacity,
                                  uint64_t* count) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    if (count == nullptr) return {Errc::kInvalidArgument, "count is NULL"};
    const auto members = session->session->engine().process_set_ranks(process_set);
    if (!members.ok()) return members.status();
    *count = members->size();
    const std::size_t copied = std::min<std::size_t>(members->size(), capacity);
    if (ranks != nullptr) std::copy_n(members->begin(), copied, ranks);
    return {};
  });
}

int32_t distrun_timeline_start(distrun_session* session, const char* path) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    if (path == nullptr || *path == '\0') return {Errc::kInvalidArgument, "the timeline needs the path of a file"};
    return session->session->engine().start_timeline(path);
  });
}

int32_t distrun_timeline_stop(distrun_session* session) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_session(session));
    return session->session->engine().stop_timeline();
  });
}

}  // extern "C"
