// This process's membership in the job, and everything that is asked of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"
#include "distrun/operation.hpp"
#include "distrun/request.hpp"

namespace distrun {

// distrun_query(): a text for people. "settings", "backends"; of a session also "control" and "why".
// "backends.json" and "why.json" are JSON.
inline std::string query(const std::string& what, distrun_session* session = nullptr) {
  std::string text;
  for (std::int64_t size = 255; size > static_cast<std::int64_t>(text.size());) {  // it may grow between two calls
    text.resize(static_cast<std::size_t>(size));
    size = distrun_query(session, what.c_str(), text.data(), text.size() + 1);
    if (size < 0) detail::fail();
    if (size <= static_cast<std::int64_t>(text.size())) text.resize(static_cast<std::size_t>(size));
  }
  return text;
}

// Use one from any thread, several at once. Operations end before it does: declare them after it. What fails throws
// Error: a wrong argument on this rank at once, what ranks disagree about on each of them, when it waits.
//
// Each operation has a method that waits and one that does not (..._async). They take `count` elements in the memory of
// the host, as one dimension; for shapes, scale, groups and tensors on GPUs make a Request and submit() it. `name` is
// as in Request. `process_set` is 0 for all ranks, or an id that add_process_set() gave: a member's rank is its place
// there in ascending order, but roots are world ranks.
class Session {
 public:
  // Joins the job, or makes a world of one (distrun_init). `settings` are "name=value", as in docs/settings.md.
  explicit Session(const std::vector<std::string>& settings = {}) : owned_(true) {
    std::vector<const char*> texts;
    texts.reserve(settings.size());
    for (const std::string& setting : settings) texts.push_back(setting.c_str());
    distrun_options options = {};
    options.struct_size = sizeof(options);
    options.num_settings = static_cast<std::uint32_t>(texts.size());
    options.settings = texts.data();
    detail::check(distrun_init(&options, &session_));
  }
  // For a library: the session that the program has opened, which stays the program's: distrun_current() in distrun.h
  // has the rules. DISTRUN_NOT_INITIALIZED where none is open.
  [[nodiscard]] static Session current() {
    Session borrowed(distrun_current());
    (void)borrowed.world();
    return borrowed;
  }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)), owned_(other.owned_) {}
  Session& operator=(Session&&) = delete;
  // Leaves in good order; call shutdown() first where its errors matter.
  ~Session() {
    if (session_ == nullptr || !owned_) return;
    leave();
    distrun_close(session_);
  }

  // Waits for the other ranks, and throws the job's failure if there is one (distrun.h). A signal that arrives does not
  // end the wait.
  void shutdown() { detail::check(leave()); }
  // Tells every rank that this one ends because of `cause`. `distrun --report` has the line that calls it.
  void abort(const std::string& cause, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    detail::check(distrun_abort_at(session_, cause.c_str(), file, line, nullptr));
  }
  // True on all ranks from the same call on, once one was asked to stop; every rank calls it once per step.
  bool should_stop(bool request = false) {
    int32_t stop = 0;
    int32_t code = DISTRUN_INTERRUPTED;
    while (code == DISTRUN_INTERRUPTED) code = distrun_should_stop(session_, request ? 1 : 0, &stop);
    detail::check(code);
    return stop != 0;
  }
  [[nodiscard]] int rank() const { return world().rank; }
  [[nodiscard]] int size() const { return world().size; }
  // Also the ranks on this host, its name, the job's and this rank's GPUs; texts are valid as long as the session.
  [[nodiscard]] distrun_world world() const {
    distrun_world world = {};
    world.struct_size = sizeof(world);
    detail::check(distrun_get_world(session_, &world));
    return world;
  }
  [[nodiscard]] std::string query(const std::string& what) const { return distrun::query(what, session_); }
  // A hash of `size` bytes that only this job's ranks can make, another one for each purpose (distrun_mac).
  [[nodiscard]] std::array<std::uint8_t, DISTRUN_MAC_SIZE> mac(const std::string& purpose, const void* data,
                                                               std::size_t size) const {
    std::array<std::uint8_t, DISTRUN_MAC_SIZE> made = {};
    detail::check(distrun_mac(session_, purpose.c_str(), data, size, made.data()));
    return made;
  }
  // A Chrome trace of all ranks in one file. Every rank calls, with the same path.
  void start_timeline(const std::string& path) { detail::check(distrun_timeline_start(session_, path.c_str())); }
  void stop_timeline() { detail::check(distrun_timeline_stop(session_)); }

  // A process set, by its id: for the operations below. Called by all ranks, or with `members_only` by its members
  // alone (distrun.h). World ranks.
  int add_process_set(const std::vector<std::int32_t>& ranks, bool members_only = false) {
    const auto add = members_only ? distrun_process_set_add_by_members : distrun_process_set_add;
    std::int32_t set = -1;
    detail::check(add(session_, ranks.data(), ranks.size(), &set));
    return set;
  }
  // By its members alone, in no order with other calls; DISTRUN_TIMEOUT after `seconds` (negative: no limit), and the
  // next call for the same ranks goes on with it.
  int add_process_set_apart(const std::vector<std::int32_t>& ranks, double seconds = -1.0) {
    std::int32_t set = -1;
    detail::check(distrun_process_set_add_apart(session_, ranks.data(), ranks.size(), seconds, &set));
    return set;
  }
  void remove_process_set(int process_set) { detail::check(distrun_process_set_remove(session_, process_set)); }
  // Instead of remove, without waiting for the others.
  void drop_process_set(int process_set) { detail::check(distrun_process_set_drop(session_, process_set)); }
  // Ascending.
  [[nodiscard]] std::vector<std::int32_t> process_set_ranks(int process_set) const {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(size()));
    std::uint64_t count = 0;
    detail::check(distrun_process_set_ranks(session_, process_set, ranks.data(), ranks.size(), &count));
    ranks.resize(count);
    return ranks;
  }
  // How many of `rows` rows a reducescatter gives to this member: equal shares, one more for the first rows % members.
  [[nodiscard]] std::int64_t share_of(std::int64_t rows, int process_set = 0) const {
    const std::vector<std::int32_t> ranks = process_set_ranks(process_set);
    const auto members = static_cast<std::int64_t>(ranks.size());
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return rows / members + (place < rows % members ? 1 : 0);
  }

  // Hands an operation over; does not wait for other ranks.
  [[nodiscard]] Operation submit(const Request& request) { return submit(request.op()); }
  // All or none are handed over; those with the same `group` (>= 0) also run all or none.
  [[nodiscard]] std::vector<Operation> submit(const std::vector<Request>& requests) {
    std::vector<distrun_op> ops;
    ops.reserve(requests.size());
    for (const Request& request : requests) ops.push_back(request.op());
    return submit(ops.data(), ops.size());
  }
  // As they are in C: `count` of them, each with its struct_size. What they refer to is copied, but for the tensors'
  // memory.
  [[nodiscard]] Operation submit(const distrun_op& op) {
    distrun_handle* handle = nullptr;
    detail::check(distrun_enqueue(session_, &op, 1, &handle));
    return Operation(handle, op.dtype, op.device_type);
  }
  [[nodiscard]] std::vector<Operation> submit(const distrun_op* ops, std::size_t count) {
    std::vector<distrun_handle*> handles(count);
    std::vector<Operation> operations;
    operations.reserve(count);  // once they are in flight nothing may throw
    detail::check(distrun_enqueue(session_, ops, count, handles.data()));
    for (std::size_t i = 0; i < count; ++i) operations.emplace_back(handles[i], ops[i].dtype, ops[i].device_type);
    return operations;
  }

  // data[i] = reduction over all ranks of data[i]; in place.
  template <class T>
  Operation allreduce_async(const std::string& name, T* data, std::size_t count,
                            distrun_reduce reduce = DISTRUN_AVERAGE, int process_set = 0) {
    return submit_in(process_set, Request::allreduce(name, data, row(count), reduce));
  }
  template <class T>
  void allreduce(const std::string& name, T* data, std::size_t count, distrun_reduce reduce = DISTRUN_AVERAGE,
                 int process_set = 0) {
    allreduce_async(name, data, count, reduce, process_set).wait();
  }
  // The root's data on every rank; in place. `root` is a world rank.
  template <class T>
  Operation broadcast_async(const std::string& name, T* data, std::size_t count, int root, int process_set = 0) {
    return submit_in(process_set, Request::broadcast(name, data, row(count), root));
  }
  template <class T>
  void broadcast(const std::string& name, T* data, std::size_t count, int root, int process_set = 0) {
    broadcast_async(name, data, count, root, process_set).wait();
  }
  // All ranks' elements in rank order; `count` may differ between ranks. Of the one in flight: values<T>(), rows().
  template <class T>
  Operation allgather_async(const std::string& name, const T* data, std::size_t count, int process_set = 0) {
    return submit_in(process_set, Request::allgather(name, data, row(count)));
  }
  template <class T>
  std::vector<T> allgather(const std::string& name, const T* data, std::size_t count, int process_set = 0) {
    return values_of<T>(allgather_async(name, data, count, process_set));
  }
  // data[i] goes to the ranks in order: splits[r] elements to rank r, or equal shares. The others' blocks in rank
  // order. Of the one in flight: values<T>(), and rows() for how many came from each.
  template <class T>
  Operation alltoall_async(const std::string& name, const T* data, std::size_t count,
                           const std::vector<std::int64_t>& splits = {}, int process_set = 0) {
    return submit_in(process_set, Request::alltoall(name, data, row(count), splits));
  }
  template <class T>
  std::vector<T> alltoall(const std::string& name, const T* data, std::size_t count,
                          const std::vector<std::int64_t>& splits = {}, int process_set = 0) {
    return values_of<T>(alltoall_async(name, data, count, splits, process_set));
  }
  // This member's share of the reduction over n: count / n elements, one more on the first count % n members. The one
  // in flight writes it to `share`, which has room for share_of(count) and is apart from the data.
  template <class T>
  Operation reducescatter_async(const std::string& name, const T* data, std::size_t count, T* share,
                                distrun_reduce reduce = DISTRUN_AVERAGE, int process_set = 0) {
    return submit_in(process_set, Request::reducescatter(name, data, row(count), share, reduce));
  }
  template <class T>
  std::vector<T> reducescatter(const std::string& name, const T* data, std::size_t count,
                               distrun_reduce reduce = DISTRUN_AVERAGE, int process_set = 0) {
    const auto mine = static_cast<std::size_t>(share_of(static_cast<std::int64_t>(count), process_set));
    try {
      const std::unique_ptr<T[]> share(new T[mine]);  // a vector of bool has no elements to point at
      reducescatter_async(name, data, count, share.get(), reduce, process_set).wait();
      return std::vector<T>(share.get(), share.get() + mine);  // no braces: two pointers are a list of two bools
    } catch (const std::bad_alloc&) {
      detail::refuse("reducescatter '" + name + "': no memory for this rank's share, " + std::to_string(mine) + " of " +
                         std::to_string(count) + " elements of " + std::to_string(sizeof(T)) + " bytes",
                     name, DISTRUN_OUT_OF_MEMORY);
    }
  }
  // For a rank that has run out of data (distrun_op in distrun.h). The rank that joined last; of the one in flight:
  // rows().
  Operation join_async(int process_set = 0) { return submit_in(process_set, Request::join()); }
  int join(int process_set = 0) {
    Operation operation = join_async(process_set);
    operation.wait();
    return static_cast<int>(*operation.result().first_dims);
  }
  // Threads that may be in one at the same time give it names of their own.
  Operation barrier_async(int process_set = 0, const std::string& name = "barrier") {
    return submit_in(process_set, Request::barrier(name));
  }
  void barrier(int process_set = 0, const std::string& name = "barrier") { barrier_async(process_set, name).wait(); }

  // For the C API; stays this object's.
  [[nodiscard]] distrun_session* get() const { return session_; }

 private:
  explicit Session(distrun_session* borrowed) noexcept : session_(borrowed) {}
  std::int32_t leave() {
    std::int32_t code = DISTRUN_INTERRUPTED;
    while (code == DISTRUN_INTERRUPTED) code = distrun_shutdown(session_);
    return code;
  }
  static Request::Shape row(std::size_t count) { return {static_cast<std::int64_t>(count)}; }
  Operation submit_in(int process_set, Request request) {
    request.process_set = process_set;
    return submit(request);
  }
  template <class T>
  static std::vector<T> values_of(Operation operation) {
    operation.wait();
    return operation.values<T>();
  }

  distrun_session* session_ = nullptr;
  bool owned_ = false;
};

}  // namespace distrun
