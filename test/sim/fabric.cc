#include "test/sim/fabric.h"

#include <algorithm>
#include <bit>

namespace distrun::sim {
namespace {

class Digest {
 public:
  void add(std::uint64_t value) { value_ = (value_ ^ value) * 0x100000001B3ULL; }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

// A digest of the fields that must be equal on all members.
std::uint64_t digest_of(const backend::Operation& operation) {
  Digest digest;
  digest.add(static_cast<std::uint64_t>(operation.kind));
  digest.add(static_cast<std::uint64_t>(operation.dtype));
  digest.add(static_cast<std::uint64_t>(operation.reduce));
  digest.add(std::bit_cast<std::uint64_t>(operation.prescale));
  digest.add(std::bit_cast<std::uint64_t>(operation.postscale));
  digest.add(static_cast<std::uint64_t>(operation.root));
  // Members may pass different counts to these operations.
  const bool uneven = operation.kind == OpKind::kAllgather || operation.kind == OpKind::kAlltoall;
  for (const backend::Segment& one : operation.segments) digest.add(uneven ? 0 : one.count);
  for (const std::size_t count : operation.counts) digest.add(count);
  return digest.value();
}

std::string text_of(const backend::Operation& operation) {
  return std::string(name_of(operation.kind)) + " of " + std::to_string(operation.segments.size()) + " tensors, " +
         std::string(name_of(operation.dtype));
}

}  // namespace

class SimBackend final : public backend::Backend {
 public:
  SimBackend(Fabric& fabric, int set, std::shared_ptr<Fabric::Endpoint> endpoint)
      : fabric_(fabric), set_(set), endpoint_(std::move(endpoint)) {
    capabilities_ = {.ops = ~0U, .dtypes = ~0U, .devices = 1, .scatter_gather = fabric_.options_.scatter_gather};
    capabilities_.revocable = true;
  }

  [[nodiscard]] std::string_view name() const override { return "sim"; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }
  Status start(const backend::Operation& operation, std::uint64_t token) override {
    if (!endpoint_->aborted.ok()) return endpoint_->aborted;
    return fabric_.start(set_, endpoint_, operation, token);
  }
  bool progress() override {
    Fabric::Endpoint& self = *endpoint_;
    const auto& from = self.aborted.ok() ? self.arrived : self.moving;
    for (const std::uint64_t token : from) done_.push_back({.token = token, .status = self.aborted});
    for (const backend::Completed& one : done_) std::erase(self.moving, one.token);
    self.arrived.clear();
    return !done_.empty();
  }
  void completed(std::vector<backend::Completed>& out) override {
    out.insert(out.end(), done_.begin(), done_.end());
    done_.clear();
  }
  void abort(const Status& why) override {
    if (endpoint_->aborted.ok()) endpoint_->aborted = why;
  }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override {
    return endpoint_->lost < 0 ? std::nullopt : std::optional(EndedLink{.peer = endpoint_->lost});
  }

 private:
  Fabric& fabric_;
  const int set_;
  std::shared_ptr<Fabric::Endpoint> endpoint_;
  backend::Capabilities capabilities_;
  std::vector<backend::Completed> done_;
};

std::unique_ptr<backend::Backend> Fabric::backend(int set, const std::vector<int>& members, int rank) {
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->rank = rank;
  Group& group = groups_[set];
  group.size = members.size();
  group.members.push_back(endpoint);
  return std::make_unique<SimBackend>(*this, set, std::move(endpoint));
}

// One tensor has the same memory on all virtual ranks, so its address identifies it. Returns 0 (unknown) if the tensor
// was packed, or if this rank has joined and passes substitute memory.
std::uint64_t Fabric::tensors_of(const backend::Operation& operation) const {
  Digest digest;
  for (const backend::Segment& one : operation.segments) {
    const auto place = std::bit_cast<std::uintptr_t>(one.in) - std::bit_cast<std::uintptr_t>(options_.memory.data());
    if (place >= options_.memory.size()) return 0;
    digest.add(place);
  }
  return digest.value();
}

Status Fabric::start(int set, const std::shared_ptr<Endpoint>& endpoint, const backend::Operation& operation,
                     std::uint64_t token) {
  if (fails_ == endpoint->rank) {
    fails_ = -1;
    endpoint->failed = {Errc::kSystem, "the simulated device failed"};
  }
  if (!endpoint->failed.ok()) return endpoint->failed;
  Group& group = groups_[set];
  const std::size_t number = endpoint->next++;
  if (number == group.operations.size()) group.operations.emplace_back();
  Started& started = group.operations[number];
  const std::uint64_t digest = digest_of(operation);
  const std::uint64_t tensors = tensors_of(operation);
  if (started.members.empty()) {
    started.digest = digest;
    started.text = text_of(operation);
  }
  if (started.tensors == 0) started.tensors = tensors;
  if (started.digest != digest || (tensors != 0 && started.tensors != tensors)) {
    findings_.add("operation " + std::to_string(number) + " of set " + std::to_string(set) + " is " +
                  text_of(operation) + " on rank " + std::to_string(endpoint->rank) + ", and " + started.text +
                  " on rank " + std::to_string(started.members.front().first->rank));
  }
  endpoint->moving.push_back(token);
  started.members.emplace_back(endpoint, token);
  if (started.members.size() < group.size) return {};
  for (const auto& [member, its_token] : std::exchange(started.members, {})) {
    scheduler_.after(random_.up_to(options_.most_time), [this, to = member, done = its_token] {
      if (std::find(to->moving.begin(), to->moving.end(), done) == to->moving.end()) return;  // aborted in between
      to->arrived.push_back(done);
      wake_(to->rank);
    });
  }
  return {};
}

void Fabric::end(int rank, bool in_good_order) {
  if (!options_.sees_ends) return;
  for (auto& [set, group] : groups_) {
    const bool ours = std::any_of(group.members.begin(), group.members.end(),
                                  [rank](const auto& member) { return member->rank == rank; });
    if (!ours || (in_good_order && std::exchange(group.seen_to_go, true))) continue;
    for (const auto& member : group.members) {
      scheduler_.after(random_.up_to(options_.most_time), [this, rank, to = member] {
        if (to->rank == rank) return;
        to->lost = rank;
        wake_(to->rank);
      });
    }
  }
}

}  // namespace distrun::sim
