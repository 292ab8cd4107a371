// One rank of host_link_process_test.cc, in its own process. Arguments: the task, and the seconds that the set-up may
// take. It prints one line: "lost RANK NANOSECONDS", "done", or "error CODE TEXT".
// A rank with workers first prints a line when it is about to sleep.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "runtime/base/environment.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/control/shm_control.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/store/store_client.h"

namespace distrun::net {
namespace {

// From now on `system_call` fails with EPERM, as under the seccomp profile of a container.
void refuse(unsigned system_call) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = 4, .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::abort();
}

void limit(__rlimit_resource resource, rlim_t value) {
  const rlimit limits{.rlim_cur = value, .rlim_max = value};
  if (::setrlimit(resource, &limits) != 0) std::abort();
}

// Forks a process like a DataLoader's worker. It lives until the test closes its standard input.
void fork_worker() {
  if (::fork() != 0) return;
  ::close(STDOUT_FILENO);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  ::_exit(0);
}

class Rank {
 public:
  Status start(double seconds) {
    const Environment environment = process_environment();
    auto world = world_from_environment(environment);
    if (!world.ok()) return world.status();
    world_ = *std::move(world);
    auto key = JobKey::from_environment(environment);
    if (!key.ok()) return key.status();
    const TimePoint deadline = deadline_after(seconds);
    auto store = StoreClient::connect(world_, *key, deadline);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    auto wait_set = WaitSet::create();
    if (!wait_set.ok()) return wait_set.status();
    wait_set_ = *std::move(wait_set);
    auto link = connect_host(
        {.world = &world_, .key = &*key, .store = store_.get(), .wait_set = wait_set_.get(), .deadline = deadline});
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
    return {};
  }

  // Exchanges messages until a rank dies.
  Status talk(double seconds) {
    auto window = link_->share("window", link_->ranks(), std::size_t{1} << 20, deadline_after(seconds));
    if (!window.ok()) return window.status();
    auto plane = connect_shm_control(*link_, world_, deadline_after(seconds));
    if (!plane.ok()) return plane.status();
    Received message;
    std::minstd_rand random(static_cast<unsigned>(world_.rank) + 1);
    int waiting_for = 0;
    while (!link_->lost()) {
      const auto look = [&] {
        bool moved = (*plane)->progress();
        if (world_.rank == 0 && waiting_for == 0) {
          waiting_for = world_.size - 1;
          (void)(*plane)->broadcast(std::vector<std::byte>(random() % 100'000));
        }
        while ((*plane)->receive(message)) {
          moved = true;
          --waiting_for;
          if (world_.rank != 0) (void)(*plane)->send(0, std::vector<std::byte>(random() % 1000));
        }
        return moved;
      };
      const bool moved = look();
      auto polled = wait_set_->poll(moved ? TimePoint{} : deadline_after(60), look);
      if (!polled.ok() && polled.status().code() != Errc::kInterrupted) return polled.status();
    }
    return {};
  }

  // Sleeps until a rank dies.
  Status sleep() {
    while (!link_->lost()) {
      auto polled = wait_set_->poll(TimePoint::max());
      if (!polled.ok() && polled.status().code() != Errc::kInterrupted) return polled.status();
    }
    return {};
  }

  // Rank `limiter` limits itself, and all ranks wait for it without using a descriptor.
  Status limit_one(int limiter, const std::function<void()>& limit_now) {
    auto gate = link_->share("gate", link_->ranks(), sizeof(int), deadline_after(30));
    if (!gate.ok()) return gate.status();
    gate_ = *std::move(gate);
    if (world_.rank == limiter) limit_now();
    meet();
    return {};
  }

  // A barrier without mail: no rank reads mail until all ranks are here.
  void meet() {
    std::atomic_ref<int> arrived(*reinterpret_cast<int*>(gate_.bytes.data()));
    const int round = arrived.fetch_add(1) / world_.size;
    while (arrived.load() < (round + 1) * world_.size) std::this_thread::yield();
  }

  Status share(std::size_t bytes) {
    auto memory = link_->share("window", link_->ranks(), bytes, deadline_after(30));
    if (!memory.ok()) return memory.status();
    for (std::byte& b : memory->bytes) b = std::byte{1};  // raises SIGBUS if the memory is not reserved
    return {};
  }

  // Shares that some rank cannot have, one after another. Each is refused at once and for the same reason.
  Status refused_shares(int shares, std::size_t bytes, const std::string& reason) {
    for (int nth = 0; nth < shares; ++nth) {
      const TimePoint deadline = deadline_after(30);
      const auto memory = link_->share("window " + std::to_string(nth), link_->ranks(), bytes, deadline);
      const std::string which = "share " + std::to_string(nth) + " of " + std::to_string(shares);
      if (memory.ok()) return {Errc::kInternal, which + " was not refused"};
      if (memory.status().message().find(reason) == std::string::npos) return memory.status().with_context(which);
      if (Clock::now() > deadline - std::chrono::seconds(5)) return {Errc::kInternal, which + " was refused late"};
    }
    return {};
  }

  [[nodiscard]] int number() const { return world_.rank; }
  [[nodiscard]] std::optional<int> lost() const { return link_ ? link_->lost() : std::nullopt; }

 private:
  World world_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<WaitSet> wait_set_;
  std::unique_ptr<HostLink> link_;
  SharedBytes gate_;
};

Status run(Rank& rank, const std::string& task, double seconds) {
  const std::string number = process_environment()["DISTRUN_RANK"];
  if (task == "no-memfd" && number == "0") refuse(SYS_memfd_create);
  if (task == "no-socketpair" && number == "1") refuse(SYS_socketpair);
  DISTRUN_RETURN_IF_ERROR(rank.start(seconds));
  if (task == "talk") return rank.talk(seconds);
  if (task == "workers") {
    fork_worker();
    std::printf("about to sleep\n");
    std::fflush(stdout);
    return rank.sleep();
  }
  if (task == "small-files") DISTRUN_RETURN_IF_ERROR(rank.limit_one(0, [] { limit(RLIMIT_FSIZE, 100'000); }));
  if (task == "few-descriptors") DISTRUN_RETURN_IF_ERROR(rank.limit_one(1, [] { limit(RLIMIT_NOFILE, 3); }));
  if (task == "refused-by-maker") {  // so many times that unread answers would fill the maker's inbox
    DISTRUN_RETURN_IF_ERROR(rank.limit_one(0, [] { limit(RLIMIT_FSIZE, 100'000); }));
    const Status refused = rank.refused_shares(100, std::size_t{4} << 20, "ulimit -f");
    rank.meet();
    DISTRUN_RETURN_IF_ERROR(refused);
    return rank.share(4096);
  }
  if (task == "refused-by-member") {  // so many times that the ranks could not keep all the answers
    DISTRUN_RETURN_IF_ERROR(rank.limit_one(1, [] { refuse(SYS_fcntl); }));
    return rank.refused_shares(620, 4096, "another rank is not the");
  }
  if (task == "no-fallocate") DISTRUN_RETURN_IF_ERROR(rank.limit_one(0, [] { refuse(SYS_fallocate); }));
  return rank.share(std::size_t{4} << 20);
}

int main_of_rank(const std::string& task, double seconds) {
  Rank rank;
  const Status status = run(rank, task, seconds);
  if (!status.ok()) {
    std::printf("error %d %s\n", static_cast<int>(status.code()), status.message().c_str());
  } else if (rank.lost()) {
    std::printf("lost %d %lld\n", *rank.lost(), static_cast<long long>(Clock::now().time_since_epoch().count()));
  } else {
    std::printf("done\n");
  }
  return 0;
}

}  // namespace
}  // namespace distrun::net

int main(int argc, char** argv) { return argc == 3 ? distrun::net::main_of_rank(argv[1], std::atof(argv[2])) : 64; }
