// This process's membership in the job, and all operations of the job.
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

// distrun_query(): a text for users. `what` is "settings" or "backends", and with a session also "control" or "why".
// "backends.json" and "why.json" return JSON.
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

// Any thread may use a session, and several may at once. Operations must end before it: declare them after it. Failures
// throw Error. A wrong argument on this rank throws at once. If ranks disagree, each of them throws when it waits.
//
// Each operation has a method that waits and one that does not (..._async). They take `count` elements in the memory of
// the host, as one dimension. For shapes, scale factors, groups and tensors on GPUs, make a Request and submit() it.
// `name` is as in Request. `process_set` is 0 for all ranks, or an id from add_process_set(). A member's rank in a set
// is its place there in ascending order, but roots are world ranks.
class Session {
 public:
  // Joins the job, or makes a job of one rank (distrun_init). `settings` are "name=value", see
  // docs/reference/settings.md.
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
  // For a library: borrows the session that the program has opened and still owns. distrun_current() in distrun.h has
  // the rules. Throws DISTRUN_NOT_INITIALIZED if none is open.
  [[nodiscard]] static Session current() {
    Session borrowed(distrun_current());
    (void)borrowed.world();
    return borrowed;
  }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)), owned_(other.owned_) {}
  Session& operator=(Session&&) = delete;
  // Leaves the job in good order. Call shutdown() first if you need its errors.
  ~Session() {
    if (session_ == nullptr || !owned_) return;
    leave();
    distrun_close(session_);
  }

  // Waits for the other ranks. Throws the failure of the job if there is one (see distrun.h). A signal does not end the
  // wait.
  void shutdown() { detail::check(leave()); }
  // Tells every rank that this rank ends because of `cause`. `distrun --report` shows the line of the call.
  void abort(const std::string& cause, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    detail::check(distrun_abort_at(session_, cause.c_str(), file, line, nullptr));
  }
  // Returns true on all ranks from the same call on, after one rank was asked to stop. Every rank must call it once per
  // step.
  bool should_stop(bool request = false) {
    int32_t stop = 0;
    int32_t code = DISTRUN_INTERRUPTED;
    while (code == DISTRUN_INTERRUPTED) code = distrun_should_stop(session_, request ? 1 : 0, &stop);
    detail::check(code);
    return stop != 0;
  }
  [[nodiscard]] int rank() const { return world().rank; }
  [[nodiscard]] int size() const { return world().size; }
  // Also has the ranks on this host, the names of the host and the job, and this rank's GPUs. Texts are valid as long
  // as the session.
  [[nodiscard]] distrun_world world() const {
    distrun_world world = {};
    world.struct_size = sizeof(world);
    detail::check(distrun_get_world(session_, &world));
    return world;
  }
  [[nodiscard]] std::string query(const std::string& what) const { return distrun::query(what, session_); }
  // A hash of `size` bytes that only ranks of this job can make. It differs for each purpose (distrun_mac).
  [[nodiscard]] std::array<std::uint8_t, DISTRUN_MAC_SIZE> mac(const std::string& purpose, const void* data,
                                                               std::size_t size) const {
    std::array<std::uint8_t, DISTRUN_MAC_SIZE> made = {};
    detail::check(distrun_mac(session_, purpose.c_str(), data, size, made.data()));
    return made;
  }
  // Writes a Chrome trace of all ranks to one file. Every rank must call it with the same path.
  void start_timeline(const std::string& path) { detail::check(distrun_timeline_start(session_, path.c_str())); }
  void stop_timeline() { detail::check(distrun_timeline_stop(session_)); }

  // Adds a process set of world ranks and returns its id for the operations below. All ranks call it, or only the
  // members if `members_only` is set (see distrun.h).
  int add_process_set(const std::vector<std::int32_t>& ranks, bool members_only = false) {
    const auto add = members_only ? distrun_process_set_add_by_members : distrun_process_set_add;
    std::int32_t set = -1;
    detail::check(add(session_, ranks.data(), ranks.size(), &set));
    return set;
  }
  // Only the members call this, in any order with other calls. Throws DISTRUN_TIMEOUT after `seconds` (negative: no
  // limit). The next call for the same ranks then continues it.
  int add_process_set_apart(const std::vector<std::int32_t>& ranks, double seconds = -1.0) {
    std::int32_t set = -1;
    detail::check(distrun_process_set_add_apart(session_, ranks.data(), ranks.size(), seconds, &set));
    return set;
  }
  void remove_process_set(int process_set) { detail::check(distrun_process_set_remove(session_, process_set)); }
  // Call this instead of remove to avoid the wait for the other ranks.
  void drop_process_set(int process_set) { detail::check(distrun_process_set_drop(session_, process_set)); }
  // World ranks of the members, ascending.
  [[nodiscard]] std::vector<std::int32_t> process_set_ranks(int process_set) const {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(size()));
    std::uint64_t count = 0;
    detail::check(distrun_process_set_ranks(session_, process_set, ranks.data(), ranks.size(), &count));
    ranks.resize(count);
    return ranks;
  }
  // How many of `rows` rows a reducescatter gives to this member: equal shares, and one more for the first rows %
  // members members.
  [[nodiscard]] std::int64_t share_of(std::int64_t rows, int process_set = 0) const {
    const std::vector<std::int32_t> ranks = process_set_ranks(process_set);
    const auto members = static_cast<std::int64_t>(ranks.size());
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return rows / members + (place < rows % members ? 1 : 0);
  }

  // Submits an operation. Does not wait for other ranks.
  [[nodiscard]] Operation submit(const Request& request) { return submit(request.op()); }
  // Submits all or none. Operations with the same `group` (>= 0) also run all or none.
  [[nodiscard]] std::vector<Operation> submit(const std::vector<Request>& requests) {
    std::vector<distrun_op> ops;
    ops.reserve(requests.size());
    for (const Request& request : requests) ops.push_back(request.op());
    return submit(ops.data(), ops.size());
  }
  // Takes `count` operations as in C, each with its struct_size. Copies everything that they refer to except the
  // tensors' memory.
  [[nodiscard]] Operation submit(const distrun_op& op) {
    distrun_handle* handle = nullptr;
    detail::check(distrun_enqueue(session_, &op, 1, &handle));
    return Operation(handle, op.dtype, op.device_type);
  }
  [[nodiscard]] std::vector<Operation> submit(const distrun_op* ops, std::size_t count) {
    std::vector<distrun_handle*> handles(count);
    std::vector<Operation> operations;
    operations.reserve(count);  // nothing may throw when they are in flight
    detail::check(distrun_enqueue(session_, ops, count, handles.data()));
    for (std::size_t i = 0; i < count; ++i) operations.emplace_back(handles[i], ops[i].dtype, ops[i].device_type);
    return operations;
  }

  // data[i] becomes the reduction of data[i] over all ranks. In place.
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
  // data becomes the root's data on every rank. In place. `root` is a world rank.
  template <class T>
  Operation broadcast_async(const std::string& name, T* data, std::size_t count, int root, int process_set = 0) {
    return submit_in(process_set, Request::broadcast(name, data, row(count), root));
  }
  template <class T>
  void broadcast(const std::string& name, T* data, std::size_t count, int root, int process_set = 0) {
    broadcast_async(name, data, count, root, process_set).wait();
  }
  // Returns the elements of all ranks in rank order. `count` may differ between ranks. For the async form use
  // values<T>() and rows() of the Operation.
  template <class T>
  Operation allgather_async(const std::string& name, const T* data, std::size_t count, int process_set = 0) {
    return submit_in(process_set, Request::allgather(name, data, row(count)));
  }
  template <class T>
  std::vector<T> allgather(const std::string& name, const T* data, std::size_t count, int process_set = 0) {
    return values_of<T>(allgather_async(name, data, count, process_set));
  }
  // Sends splits[r] elements to rank r, or equal shares, in rank order. Returns the received blocks in rank order. For
  // the async form use values<T>(), and rows() for the number of elements from each rank.
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
  // Returns this member's share of the reduction: count / n elements for n members, and one more on the first count % n
  // members. The async form writes it to `share`, which has room for share_of(count) elements and must not overlap the
  // data.
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
      const std::unique_ptr<T[]> share(new T[mine]);  // elements of a vector<bool> have no address
      reducescatter_async(name, data, count, share.get(), reduce, process_set).wait();
      return std::vector<T>(share.get(), share.get() + mine);  // no braces: two pointers would be a list of two bools
    } catch (const std::bad_alloc&) {
      detail::refuse("reducescatter '" + name + "': no memory for the share of this rank, " + std::to_string(mine) +
                         " of " + std::to_string(count) + " elements of " + std::to_string(sizeof(T)) + " bytes",
                     name, DISTRUN_OUT_OF_MEMORY);
    }
  }
  // For a rank that has no more data (distrun_op in distrun.h). Returns the rank that joined last. For the async form
  // use rows().
  Operation join_async(int process_set = 0) { return submit_in(process_set, Request::join()); }
  int join(int process_set = 0) {
    Operation operation = join_async(process_set);
    operation.wait();
    return static_cast<int>(*operation.result().first_dims);
  }
  // If several threads may be in a barrier at the same time, each needs its own name.
  Operation barrier_async(int process_set = 0, const std::string& name = "barrier") {
    return submit_in(process_set, Request::barrier(name));
  }
  void barrier(int process_set = 0, const std::string& name = "barrier") { barrier_async(process_set, name).wait(); }

  // For the C API. This object keeps it.
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
