// The NCCL part of the fake: collectives of members in one process, in non-blocking mode.
#include <map>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "runtime/backend/kernels/kernels.h"
#include "runtime/base/clock.h"
#include "test/backend/nccl/fake_world.h"

namespace distrun::test::fake_gpus {
namespace {

using namespace backend::nccl_plugin;  // NOLINT(google-build-using-namespace): this file is that interface

constexpr NcclResult kInvalidUsage = 5;

struct TypeInfo {
  DType dtype;
  const char* name;
};
const std::map<int, TypeInfo> kTypes = {
    {kNcclInt8, {DType::kI8, "int8"}},        {kNcclUint8, {DType::kU8, "uint8"}},
    {kNcclInt32, {DType::kI32, "int32"}},     {kNcclInt64, {DType::kI64, "int64"}},
    {kNcclUint32, {DType::kU32, "uint32"}},   {kNcclUint64, {DType::kU64, "uint64"}},
    {kNcclFloat16, {DType::kF16, "float16"}}, {kNcclFloat32, {DType::kF32, "float32"}},
    {kNcclFloat64, {DType::kF64, "float64"}}, {kNcclBfloat16, {DType::kBF16, "bfloat16"}}};
const std::map<int, std::pair<ReduceOp, const char*>> kOps = {{kNcclSum, {ReduceOp::kSum, "sum"}},
                                                              {kNcclProduct, {ReduceOp::kProduct, "product"}},
                                                              {kNcclMax, {ReduceOp::kMax, "max"}},
                                                              {kNcclMin, {ReduceOp::kMin, "min"}},
                                                              {kNcclAverage, {ReduceOp::kAverage, "average"}}};

std::size_t bytes_of(int type) { return size_of(kTypes.at(type).dtype); }

// Computes the outputs of all members of one round.
using Meet = std::function<void(std::map<int, Fabric::Part>& parts)>;

thread_local int group_depth = 0;
thread_local std::vector<Comm*> group_comms;
thread_local std::vector<Comm*> group_aborts;

// Waits until no live collective is on the GPU. Only then may the resources of an aborted communicator be freed.
void rest(std::unique_lock<std::recursive_mutex>& lock, const Comm& comm) {
  World& it = world();
  const TimePoint limit = deadline_after(2);
  while (it.stands_still(comm.device) && Clock::now() < limit) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (it.stands_still(comm.device)) it.fault(std::string("ncclCommAbort") + kTooEarly);
}

// NCCL accepts the calls and puts them on their streams.
void take(Comm& comm) {
  for (auto& [on, work] : comm.untaken) {
    ++on->collectives;
    ++comm.on_device;
    world().put(on, [stream = on, member = &comm, work = std::move(work)] {
      const bool over = work();
      if (over) --stream->collectives;
      if (over) --member->on_device;
      return over;
    });
  }
  comm.untaken.clear();
}

NcclResult issued(Comm& comm) {
  if (group_depth > 0) {
    group_comms.push_back(&comm);
    return kNcclSuccess;
  }
  comm.pending = world().lag;
  if (comm.pending > 0) return kNcclInProgress;
  take(comm);
  return kNcclSuccess;
}

NcclResult collective(const char* symbol, const std::string& details, NcclComm given, CuStream stream,
                      Fabric::Part part, Meet meet) {
  World& it = world();
  const Lock lock(it.mutex);
  if (const int code = it.note(symbol, details); code != 0) return code;
  auto* comm = static_cast<Comm*>(given);
  if (comm == nullptr || comm->aborted) {
    it.fault(std::string(symbol) + " on a communicator that is gone");
    return kInvalidUsage;
  }
  if (comm->pending > 0) it.fault(std::string(symbol) + " while NCCL has not taken the call before");
  const std::uint64_t number = comm->next_round++;
  comm->untaken.emplace_back(static_cast<Stream*>(stream), [comm, number, part, meet] {
    if (comm->aborted) return true;
    Fabric& fabric = *comm->fabric;
    Fabric::Round& round = fabric.rounds[number];
    round.parts.emplace(comm->index, part);
    if (!round.done && round.parts.size() == static_cast<std::size_t>(fabric.members)) {
      meet(round.parts);
      round.done = true;
    }
    if (!round.done) return false;
    if (++round.left == fabric.members) fabric.rounds.erase(number);
    return true;
  });
  return issued(*comm);
}

std::string reduction(std::size_t count, int type, int op) {
  return std::to_string(count) + " " + kTypes.at(type).name + " " + kOps.at(op).second;
}

// Elements [first, first + count) of all inputs, reduced.
std::vector<std::byte> reduced(const std::map<int, Fabric::Part>& parts, int type, int op, std::size_t first,
                               std::size_t count) {
  std::vector<const std::byte*> sources;
  for (const auto& [member, part] : parts) {
    sources.push_back(static_cast<const std::byte*>(part.in) + first * bytes_of(type));
  }
  const ReduceOp how = kOps.at(op).first;
  std::vector<std::byte> result(count * bytes_of(type));
  backend::kernels::reduce(
      {.dtype = kTypes.at(type).dtype, .op = how, .finish = backend::kernels::finish_of(how, 1.0, parts.size())},
      sources, result.data(), count);
  return result;
}

void fill_communicators(NcclApi& api) {
  api.get_version = [](int* version) {
    *version = world().nccl_version;
    return kNcclSuccess;
  };
  api.get_unique_id = [](NcclUniqueId* id) {
    const Lock lock(world().mutex);
    const std::string text = "id" + std::to_string(world().next_id++);
    std::memcpy(id->bytes, text.c_str(), text.size() + 1);
    return world().note("ncclGetUniqueId", "");
  };
  api.init = [](NcclComm* out, int members, NcclUniqueId id, int index, NcclConfig* config) -> NcclResult {
    World& it = world();
    const Lock lock(it.mutex);
    const std::string details =
        std::to_string(index) + " of " + std::to_string(members) + (config->blocking == 0 ? "" : " blocking");
    if (const int code = it.note("ncclCommInitRankConfig", details); code != 0) return code;
    Device* const device = it.stream_of(nullptr)->device;
    if (it.stands_still(device)) it.fault(std::string("ncclCommInitRankConfig") + kTooEarly);
    auto& fabric = it.fabrics[id.bytes];
    if (!fabric) fabric = std::make_unique<Fabric>();
    fabric->members = members;
    ++fabric->joined;
    it.comms.push_back(std::make_unique<Comm>());
    it.comms.back()->fabric = fabric.get();
    it.comms.back()->index = index;
    it.comms.back()->device = device;
    *out = it.comms.back().get();
    return kNcclInProgress;
  };
  api.async_error = [](NcclComm given, NcclResult* error) {
    World& it = world();
    const Lock lock(it.mutex);
    auto* comm = static_cast<Comm*>(given);
    *error = kNcclSuccess;
    if (comm->aborted) it.fault("ncclCommGetAsyncError on a communicator that is gone");
    if (it.broken != 0) {
      *error = it.broken;
    } else if (comm->fabric->joined < comm->fabric->members) {
      *error = kNcclInProgress;
    } else if (comm->finalized && comm->fabric->closed < comm->fabric->members) {
      *error = kNcclInProgress;
    } else if (comm->pending > 0) {
      --comm->pending;
      *error = kNcclInProgress;
    } else {
      take(*comm);
    }
    return it.note("ncclCommGetAsyncError", "");
  };
}

void fill_ends(NcclApi& api) {
  api.finalize = [](NcclComm given) -> NcclResult {
    const Lock lock(world().mutex);
    auto* comm = static_cast<Comm*>(given);
    comm->finalized = true;
    ++comm->fabric->closed;
    const int code = world().note("ncclCommFinalize", "");
    return code != 0 ? code : kNcclInProgress;
  };
  api.destroy = [](NcclComm given) {
    World& it = world();
    const Lock lock(it.mutex);
    if (it.stands_still(static_cast<Comm*>(given)->device)) it.fault(std::string("ncclCommDestroy") + kTooEarly);
    return it.note("ncclCommDestroy", "");
  };
  api.abort = [](NcclComm given) {
    World& it = world();
    std::unique_lock lock(it.mutex);
    auto* comm = static_cast<Comm*>(given);
    if (comm->aborted) it.fault("ncclCommAbort twice");
    comm->aborted = true;
    comm->untaken.clear();
    // Rounds that are not complete never will be. Their members own their memory again.
    for (auto& [number, round] : comm->fabric->rounds) {
      if (!round.done) round.parts.erase(comm->index);
    }
    it.moved();
    const int code = it.note("ncclCommAbort", "");
    if (group_depth > 0) {
      if (it.nccl_version < 22200) it.fault("ncclCommAbort in a group, before NCCL 2.22");
      group_aborts.push_back(comm);
    } else {
      rest(lock, *comm);
    }
    return code;
  };
  api.error_string = [](NcclResult) { return "unhandled cuda error"; };
  api.last_error = [](NcclComm) { return "the last warning"; };
}

void fill_groups(NcclApi& api) {
  api.group_start = [] {
    ++group_depth;
    const Lock lock(world().mutex);
    return world().note("ncclGroupStart", "");
  };
  api.group_end = []() -> NcclResult {
    std::unique_lock lock(world().mutex);
    if (--group_depth > 0) return kNcclSuccess;
    for (const Comm* comm : std::exchange(group_aborts, {})) rest(lock, *comm);
    if (const int code = world().note("ncclGroupEnd", ""); code != 0) {
      for (Comm* comm : group_comms) comm->untaken.clear();
      group_comms.clear();
      return code;
    }
    NcclResult result = kNcclSuccess;
    if (!group_comms.empty()) result = issued(*group_comms.front());
    group_comms.clear();
    return result;
  };
}

void fill_reductions(NcclApi& api) {
  api.all_reduce = [](const void* in, void* out, std::size_t count, int type, int op, NcclComm comm, CuStream stream) {
    return collective("ncclAllReduce", reduction(count, type, op), comm, stream, {.in = in, .out = out},
                      [=](std::map<int, Fabric::Part>& parts) {
                        const auto result = reduced(parts, type, op, 0, count);
                        for (auto& [member, part] : parts) std::memcpy(part.out, result.data(), result.size());
                      });
  };
  api.reduce = [](const void* in, void* out, std::size_t count, int type, int op, int root, NcclComm comm,
                  CuStream stream) {
    return collective("ncclReduce", reduction(count, type, op) + " to " + std::to_string(root), comm, stream,
                      {.in = in, .out = out}, [=](std::map<int, Fabric::Part>& parts) {
                        const auto result = reduced(parts, type, op, 0, count);
                        std::memcpy(parts.at(root).out, result.data(), result.size());
                      });
  };
  api.reduce_scatter = [](const void* in, void* out, std::size_t count, int type, int op, NcclComm comm,
                          CuStream stream) {
    return collective("ncclReduceScatter", reduction(count, type, op), comm, stream, {.in = in, .out = out},
                      [=](std::map<int, Fabric::Part>& parts) {
                        for (auto& [member, part] : parts) {
                          const auto first = static_cast<std::size_t>(member) * count;
                          const auto result = reduced(parts, type, op, first, count);
                          std::memcpy(part.out, result.data(), result.size());
                        }
                      });
  };
}

void fill_moves(NcclApi& api) {
  api.broadcast = [](const void* in, void* out, std::size_t count, int type, int root, NcclComm comm, CuStream stream) {
    const std::string details = std::to_string(count) + " from " + std::to_string(root);
    return collective("ncclBroadcast", details, comm, stream, {.in = in, .out = out},
                      [=](std::map<int, Fabric::Part>& parts) {
                        for (auto& [member, part] : parts) {
                          std::memmove(part.out, parts.at(root).in, count * bytes_of(type));
                        }
                      });
  };
  api.all_gather = [](const void* in, void* out, std::size_t count, int type, NcclComm comm, CuStream stream) {
    return collective("ncclAllGather", std::to_string(count), comm, stream, {.in = in, .out = out},
                      [=](std::map<int, Fabric::Part>& parts) {
                        const std::size_t bytes = count * bytes_of(type);
                        for (auto& [to, target] : parts) {
                          for (auto& [from, source] : parts) {
                            std::memmove(static_cast<char*>(target.out) + static_cast<std::size_t>(from) * bytes,
                                         source.in, bytes);
                          }
                        }
                      });
  };
  api.send = [](const void* in, std::size_t count, int type, int peer, NcclComm given, CuStream stream) -> NcclResult {
    const Lock lock(world().mutex);
    if (const int code = world().note("ncclSend", std::to_string(count) + " to " + std::to_string(peer)); code != 0) {
      return code;
    }
    auto* comm = static_cast<Comm*>(given);
    const auto* data = static_cast<const char*>(in);
    // Sends run before all receives of the group. Otherwise the receives could wait for each other.
    comm->untaken.insert(comm->untaken.begin(),
                         {static_cast<Stream*>(stream), [comm, data, bytes = count * bytes_of(type), peer] {
                            if (comm->aborted) return true;
                            comm->fabric->sent[{comm->index, peer}].emplace_back(data, data + bytes);
                            return true;
                          }});
    return issued(*comm);
  };
  api.recv = [](void* out, std::size_t count, int type, int peer, NcclComm given, CuStream stream) -> NcclResult {
    const Lock lock(world().mutex);
    if (const int code = world().note("ncclRecv", std::to_string(count) + " from " + std::to_string(peer)); code != 0) {
      return code;
    }
    auto* comm = static_cast<Comm*>(given);
    comm->untaken.emplace_back(static_cast<Stream*>(stream), [comm, out, bytes = count * bytes_of(type), peer] {
      if (comm->aborted) return true;
      auto& queue = comm->fabric->sent[{peer, comm->index}];
      if (queue.empty()) return false;
      if (queue.front().size() != bytes) world().fault("ncclRecv of another size than what was sent");
      std::memcpy(out, queue.front().data(), bytes);
      queue.pop_front();
      return true;
    });
    return issued(*comm);
  };
}

}  // namespace

void fill_nccl(NcclApi& api) {
  fill_communicators(api);
  fill_ends(api);
  fill_groups(api);
  fill_reductions(api);
  fill_moves(api);
}

}  // namespace distrun::test::fake_gpus
