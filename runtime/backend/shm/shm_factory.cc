#include "runtime/backend/shm/shm_factory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "runtime/backend/shm/shm_backend.h"
#include "runtime/backend/shm/transfer.h"
#include "runtime/backend/shm/window.h"
#include "runtime/base/fd.h"
#include "runtime/base/settings.h"

namespace distrun::backend {
namespace {

constexpr int kShmScore = 80;
// At most this many ranks are named in the reason. In a job with many hosts, every rank would otherwise list all
// others.
constexpr std::size_t kNamed = 4;

// Empty if shm can serve the group.
std::string obstacle(const GroupSpec& group, const Services& services) {
  if (services.host_link == nullptr) {
    return services.host_link_error.empty() ? "this rank shares no memory with others" : services.host_link_error;
  }
  const std::vector<int>& here = services.host_link->ranks();
  std::vector<int> elsewhere;
  for (const int rank : group.members) {
    if (std::find(here.begin(), here.end(), rank) == here.end()) elsewhere.push_back(rank);
  }
  if (elsewhere.empty()) return {};
  const std::size_t named = elsewhere.size() <= kNamed ? elsewhere.size() : kNamed / 2;
  std::string text;
  for (std::size_t i = 0; i < named; ++i) text += (i == 0 ? "" : ", ") + std::to_string(elsewhere[i]);
  if (named < elsewhere.size()) text += " and " + std::to_string(elsewhere.size() - named) + " more";
  return (elsewhere.size() == 1 ? "rank " : "ranks ") + text + (elsewhere.size() == 1 ? " is" : " are") +
         " not on this host";
}

class ShmFactory final : public Factory {
 public:
  explicit ShmFactory(std::size_t large_output) : large_output_(large_output) {}

  [[nodiscard]] std::string_view name() const override { return "shm"; }

  [[nodiscard]] Offer offer(const GroupSpec& group, const Services& services) const override {
    const std::string why_not = obstacle(group, services);
    return {.backend = "shm",
            .available = why_not.empty(),
            .reason = why_not.empty() ? "all ranks share this host's memory" : why_not,
            .score = why_not.empty() ? kShmScore : 0,
            .capabilities = shm::shm_capabilities()};
  }

  [[nodiscard]] Status usable() const override {
    const Fd probe(::memfd_create("distrun-check", MFD_CLOEXEC));
    if (!probe.valid()) return errno_status("memfd_create", errno);
    const int error =
        ::posix_fallocate(probe.get(), 0, static_cast<off_t>(shm::Window::bytes_for(2, shm::slot_bytes_of(0, 2))));
    return error == 0 ? Status() : errno_status("reserving shared memory", error);
  }

  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                        TimePoint deadline) const override {
    if (const std::string why_not = obstacle(group, services); !why_not.empty()) {
      return Status(Errc::kUnsupported, "the backend shm cannot be used for group " + group.id + ": " + why_not);
    }
    const Settings settings = services.settings != nullptr ? *services.settings : Settings{};
    const std::size_t slot = shm::slot_bytes_of(settings.shm_window, group.members.size());
    const std::size_t bytes = shm::Window::bytes_for(group.members.size(), slot);
    auto memory = services.host_link->share("shm/" + group.id, group.members, bytes, deadline);
    if (!memory.ok()) return memory.status().with_context("shared memory of group " + group.id);
    return std::unique_ptr<Backend>(
        std::make_unique<shm::ShmBackend>(shm::ShmOptions{.link = services.host_link,
                                                          .members = group.members,
                                                          .self = static_cast<std::size_t>(group.index),
                                                          .memory = *std::move(memory),
                                                          .slot_bytes = slot,
                                                          .large_output = large_output_,
                                                          .crowded = services.host_link->oversubscribed()}));
  }

 private:
  const std::size_t large_output_;
};

}  // namespace

std::unique_ptr<Factory> make_shm_factory(std::size_t large_output) {
  return std::make_unique<ShmFactory>(large_output);
}

}  // namespace distrun::backend
