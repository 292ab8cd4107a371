#include "runtime/backend/hierarchical/hierarchical_factory.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/backend/agree.h"
#include "runtime/backend/hierarchical/hierarchical_backend.h"
#include "runtime/backend/protection.h"
#include "runtime/backend/self/self_backend.h"
#include "runtime/backend/shm/shm_factory.h"
#include "runtime/backend/tcp/tcp_factory.h"
#include "runtime/base/settings.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::backend {
namespace {

using hierarchical::Layout;

constexpr int kHierarchicalScore = 60;  // above tcp's, below nccl's

constexpr const char* kOneHost = "all ranks are on one host";
constexpr const char* kNoPair = "no host has two of the ranks";

// Factor for the size of pieces on a device, where each piece has the extra cost of calls to CUDA and NCCL.
constexpr std::size_t kOnDevice = 4;

// The id of this group with its device, so that groups for other devices have other ids. Its subgroups extend this id.
std::string id_of(const GroupSpec& group) { return group.id + "/" + std::string(name_of(group.device)); }

std::string keys_of(const std::string& group) { return "hierarchical/" + group + "/"; }

std::string key_of(const GroupSpec& group, const std::string& what) { return keys_of(id_of(group)) + what; }

std::string pack(const std::vector<int>& ranks) { return net::as_string(net::WireWriter().i32s(ranks)); }

Result<std::vector<int>> unpack(const std::string& bytes, std::size_t expected) {
  net::WireReader reader(net::as_bytes(bytes));
  std::vector<int> ranks = reader.i32s(expected);
  if (ranks.size() != expected) reader.fail("not one entry for each member");
  DISTRUN_RETURN_IF_ERROR(reader.finish("the members' hosts"));
  return ranks;
}

// For each member, the lowest world rank on its host. The first member collects and publishes them.
Result<std::vector<int>> exchange_hosts(const GroupSpec& group, const Services& services, TimePoint deadline) {
  const int mine = ranks_here(group, services).front();
  if (group.index > 0) {
    DISTRUN_RETURN_IF_ERROR(services.store->set(key_of(group, std::to_string(group.index)), pack({mine})));
    const auto all = services.store->get(key_of(group, "all"), deadline);
    return all.ok() ? unpack(*all, group.members.size()) : Result<std::vector<int>>(all.status());
  }
  std::vector<int> first = {mine};
  for (std::size_t i = 1; i < group.members.size(); ++i) {
    const auto blob = services.store->get(key_of(group, std::to_string(i)), deadline);
    if (!blob.ok()) return blob.status().with_context("waiting for rank " + std::to_string(group.members[i]));
    const auto one = unpack(*blob, 1);
    if (!one.ok()) return one.status();
    first.push_back(one->front());
  }
  DISTRUN_RETURN_IF_ERROR(services.store->set(key_of(group, "all"), pack(first)));
  return first;
}

Result<Layout> find_layout(const GroupSpec& group, const Services& services, TimePoint deadline) {
  auto first = exchange_hosts(group, services, deadline);
  if (!first.ok()) return first.status();
  std::vector<std::size_t> members;
  for (const int rank : *first) {
    const auto found = std::ranges::lower_bound(group.members, rank);
    if (found == group.members.end() || *found != rank) {
      return Status(Errc::kProtocol, "rank " + std::to_string(rank) + " is not a member of group " + group.id);
    }
    members.push_back(static_cast<std::size_t>(found - group.members.begin()));
  }
  Layout layout = hierarchical::layout_of(members, static_cast<std::size_t>(group.index));
  if (layout.hosts.size() == 1) return Status(Errc::kUnsupported, kOneHost);
  if (layout.hosts.size() == group.members.size()) {
    return Status(Errc::kUnsupported, kNoPair);
  }
  return layout;
}

GroupSpec subgroup(const GroupSpec& group, const std::string& name, const std::vector<std::size_t>& positions) {
  GroupSpec made{.id = id_of(group) + "/" + name, .members = {}, .index = 0, .device = group.device};
  for (const std::size_t position : positions) {
    if (position == static_cast<std::size_t>(group.index)) made.index = static_cast<int>(made.members.size());
    made.members.push_back(group.members[position]);
  }
  return made;
}

std::string name_between(const Services& services) {
  return services.settings == nullptr ? "tcp" : services.settings->between_hosts;
}

bool has(std::uint32_t mask, auto bit) { return (mask >> static_cast<unsigned>(bit) & 1U) != 0; }

// Why the backend of this offer cannot be used between hosts; empty if it can.
std::string obstacle(const Offer& offer) {
  if (!offer.available) return offer.reason;
  if (!has(offer.capabilities.devices, DeviceType::kCpu)) return "it moves no cpu tensors";
  return has(offer.capabilities.ops, OpKind::kAllreduce) ? "" : "it has no allreduce";
}

class HierarchicalFactory final : public Factory {
 public:
  explicit HierarchicalFactory(std::size_t piece_bytes) : piece_bytes_(piece_bytes) {}
  [[nodiscard]] std::string_view name() const override { return "hierarchical"; }

  [[nodiscard]] Offer offer(const GroupSpec& group, const Services& services) const override {
    const Factory* between = factory_between(services);
    const std::string name = name_between(services);
    Offer offer{.backend = "hierarchical", .capabilities = hierarchical::hierarchical_capabilities({})};
    const std::size_t here = ranks_here(group, services).size();
    if (here == 1) offer.nothing_to_do = kNoPair;
    if (here == group.members.size()) {
      offer.nothing_to_do = offer.reason = kOneHost;
    } else if (between == nullptr) {
      offer.absence = Absence::kUnmetSetting;
      offer.reason = "--between-hosts " + name + ": this backend does not exist here";
    } else {
      const Offer theirs = between->offer(group, services);
      offer.capabilities = hierarchical::hierarchical_capabilities(theirs.capabilities);
      offer.reason = obstacle(theirs);
      const std::string asked = asked_protection(services);
      if (offer.reason.empty() && !asked.empty() && !between->protects(services)) {
        offer.reason = "it cannot protect tensors between hosts, as " + asked + " demands";
      }
      offer.available = offer.reason.empty();
      offer.absence = Absence::kUnmetSetting;
      offer.score = offer.available ? kHierarchicalScore : 0;
      const bool has_gpus = offer.available && moves_gpus(group, services);
      if (has_gpus) offer.capabilities.devices |= 1U << static_cast<unsigned>(DeviceType::kCuda);
      const std::string inside = has_gpus ? "shared memory (for tensors on GPUs nccl)" : "shared memory";
      offer.reason = offer.available ? inside + " inside the hosts, " + name + " between them"
                                     : "--between-hosts " + name + " is not available: " + offer.reason;
    }
    return offer;
  }

  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                        TimePoint deadline) const override {
    auto layout = find_layout(group, services, deadline);
    if (!layout.ok())
      return layout.status().with_context("the backend hierarchical cannot be used for group " + group.id);
    hierarchical::Parts parts{.device = group.device, .layout = *std::move(layout), .members = group.members.size()};
    parts.across = chosen_between(services).offer(group, services).capabilities;
    parts.piece_bytes = group.device == DeviceType::kCpu ? piece_bytes_ : kOnDevice * piece_bytes_;
    // Agree before the next step. Otherwise a member that waits for a failed one would wait until the deadline and
    // would not learn the cause.
    const Status local = make_inside(parts, group, services, deadline);
    DISTRUN_RETURN_IF_ERROR(agree(key_of(group, "inside"), local, group, *services.store, deadline));
    // Make a group of all members before the lanes, because MPI can start only with all of them, also those without a
    // lane. For GPUs this group moves no data. It then exists only until all members have their lanes.
    std::unique_ptr<Backend> together;
    DISTRUN_RETURN_IF_ERROR(
        make(together, chosen_between(services), subgroup_of_all(group, DeviceType::kCpu), services, deadline));
    if (group.device == DeviceType::kCpu) {
      parts.flat = std::move(together);
    } else {
      const GroupSpec all = subgroup_of_all(group, group.device);
      DISTRUN_RETURN_IF_ERROR(make(parts.flat, inside(group, services), all, services, deadline));
    }
    const Status lane = make_lane(parts, group, services, deadline);
    DISTRUN_RETURN_IF_ERROR(agree(key_of(group, "between"), lane, group, *services.store, deadline));
    return std::unique_ptr<Backend>(std::make_unique<hierarchical::HierarchicalBackend>(std::move(parts)));
  }

  [[nodiscard]] Result<std::shared_ptr<void>> mark(Device device, void* stream) const override {
    const Factory* gpus = gpus_.load();
    return gpus == nullptr ? Factory::mark(device, stream) : gpus->mark(device, stream);
  }

  [[nodiscard]] std::string set_up_keys(const std::string& group) const override { return keys_of(group); }

  [[nodiscard]] bool protects(const Services& services) const override {
    const Factory* between = factory_between(services);
    return between != nullptr && between->protects(services);
  }

 private:
  static const Factory* find_nccl(const Services& services) {
    return services.factories == nullptr ? nullptr : find_factory(*services.factories, "nccl");
  }

  // For tensors on GPUs, nccl also sends data between hosts, in all operations except allreduce. It cannot protect it.
  static bool moves_gpus(const GroupSpec& group, const Services& services) {
    if (!asked_protection(services).empty()) return false;
    const Factory* nccl = find_nccl(services);
    return nccl != nullptr && nccl->offer(group, services).available;
  }

  // The factory for groups inside a host, and for GPUs also for the flat group.
  const Factory& inside(const GroupSpec& here, const Services& services) const {
    if (here.device == DeviceType::kCpu) return here.members.size() == 1 ? *self_ : *shm_;
    const Factory* nccl = find_nccl(services);
    DISTRUN_CHECK(nccl != nullptr, "what was not offered is not chosen");
    gpus_.store(nccl);
    return *nccl;
  }

  Status make_inside(hierarchical::Parts& parts, const GroupSpec& group, const Services& services,
                     TimePoint deadline) const {
    const Layout& layout = parts.layout;
    const GroupSpec here = subgroup(group, "scatter." + std::to_string(layout.host), layout.here());
    const GroupSpec again = subgroup(group, "gather." + std::to_string(layout.host), layout.here());
    const Factory& local = inside(here, services);
    DISTRUN_RETURN_IF_ERROR(make(parts.scatter, local, here, services, deadline));
    return make(parts.gather, local, again, services, deadline);
  }

  Status make_lane(hierarchical::Parts& parts, const GroupSpec& group, const Services& services,
                   TimePoint deadline) const {
    const Layout& layout = parts.layout;
    if (!layout.carries()) return {};
    GroupSpec lane = subgroup(group, "lane." + std::to_string(layout.local), layout.lane(layout.local));
    lane.device = DeviceType::kCpu;
    return make(parts.between, chosen_between(services), lane, services, deadline);
  }

  // tcp is built in, so it needs no list of factories. The hierarchical backend itself is excluded, because it would
  // call itself.
  [[nodiscard]] const Factory* factory_between(const Services& services) const {
    const std::string between = name_between(services);
    if (between == tcp_->name()) return tcp_.get();
    return between == name() || services.factories == nullptr ? nullptr : find_factory(*services.factories, between);
  }

  [[nodiscard]] const Factory& chosen_between(const Services& services) const {
    const Factory* between = factory_between(services);
    DISTRUN_CHECK(between != nullptr, "what was not offered is not chosen");
    return *between;
  }

  static GroupSpec subgroup_of_all(const GroupSpec& group, DeviceType device) {
    GroupSpec made = group;
    made.id = id_of(group) + "/flat";
    made.device = device;
    return made;
  }

  static Status make(std::unique_ptr<Backend>& into, const Factory& factory, const GroupSpec& group,
                     const Services& services, TimePoint deadline) {
    auto made = factory.create(group, services, deadline);
    if (!made.ok()) return made.status();
    into = *std::move(made);
    return {};
  }

  const std::size_t piece_bytes_;
  const std::unique_ptr<Factory> self_ = make_self_factory();
  const std::unique_ptr<Factory> shm_ = make_shm_factory();
  const std::unique_ptr<Factory> tcp_ = make_tcp_factory();
  mutable std::atomic<const Factory*> gpus_{nullptr};  // set when a group for GPUs has been made
};

}  // namespace

std::unique_ptr<Factory> make_hierarchical_factory(std::size_t piece_bytes) {
  return std::make_unique<HierarchicalFactory>(piece_bytes);
}

}  // namespace distrun::backend
