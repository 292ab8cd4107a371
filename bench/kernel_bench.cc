// The cost of the data plane alone, without engine and launcher: the kernels of each instruction set, and the shm
// backend between threads that are pinned to cores.
//     kernel_bench kernels
//     kernel_bench shm RANKS BYTES [ROUNDS [SLOT]]      in place, float32, sum
// Prints the median and, for shm, the ratio to the machine's own limit (in-place x *= a on all cores).
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/backend/kernels/kernels.h"
#include "runtime/backend/shm/shm_backend.h"
#include "runtime/backend/shm/window.h"
#include "runtime/base/clock.h"

namespace {

using namespace distrun;           // NOLINT(google-build-using-namespace)
using namespace distrun::backend;  // NOLINT(google-build-using-namespace)

double seconds_since(TimePoint start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// For threads of one process that never sleep. They share ordinary memory, and no thread needs to be woken.
class SpinningLink final : public net::HostLink {
 public:
  [[nodiscard]] const std::vector<int>& ranks() const override { return ranks_; }
  Result<net::SharedBytes> share(const std::string&, const std::vector<int>&, std::size_t, TimePoint) override {
    return Status(Errc::kUnsupported, "not used by this benchmark");
  }
  void ring(int) override {}
  void ring_all(std::span<const int>) override {}
  [[nodiscard]] std::optional<int> lost() const override { return std::nullopt; }
  [[nodiscard]] bool gone(int) const override { return false; }
  [[nodiscard]] bool oversubscribed() const override { return false; }

 private:
  std::vector<int> ranks_;
};

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core) % std::thread::hardware_concurrency(), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

struct Window {
  explicit Window(std::size_t bytes)
      : memory(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))), size(bytes) {
    std::memset(memory.get(), 0, bytes);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc)
  };
  std::unique_ptr<std::byte, Free> memory;
  std::size_t size;
};

struct Setup {
  int ranks = 2;
  std::size_t bytes = 4;
  int rounds = 0;  // 0: enough for about half a second
  std::size_t slot = 256 << 10;
};

void wait_for(Backend& backend, std::vector<Completed>& done) {
  int idle = 0;
  for (done.clear(); done.empty(); backend.completed(done)) {
    if (!backend.progress() && ++idle > 2000) std::this_thread::yield();
  }
}

struct Times {
  std::vector<double> allreduce;
  std::vector<double> sweep;
};

void run_rank(const Setup& setup, int rank, Window& window, std::barrier<>& all, Times& times) {
  pin_to_core(rank);
  SpinningLink link;
  std::vector<int> members;
  for (int i = 0; i < setup.ranks; ++i) members.push_back(i);
  shm::ShmBackend backend({.link = &link,
                           .members = members,
                           .self = static_cast<std::size_t>(rank),
                           .memory = {.bytes = {window.memory.get(), window.size}, .owner = nullptr},
                           .slot_bytes = setup.slot});
  std::vector<float> data(setup.bytes / sizeof(float), 1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
  const Operation operation = {.segments = {&segment, 1}, .postscale = 1.0 / setup.ranks};
  std::vector<Completed> done;
  // Small payloads run many operations per measurement, since reading the clock costs as much as one operation.
  const int batch = setup.bytes <= 4096 ? 200 : 1;
  for (int round = 0; round < setup.rounds; ++round) {
    all.arrive_and_wait();
    TimePoint start = Clock::now();
    for (int i = 0; i < batch; ++i) {
      if (!backend.start(operation, 1).ok()) std::abort();
      wait_for(backend, done);
    }
    if (rank == 0) times.allreduce.push_back(seconds_since(start) / batch);
    all.arrive_and_wait();
    const float factor = round % 2 == 0 ? 2.0F : 0.5F;
    start = Clock::now();
    for (float& value : data) value *= factor;
    if (rank == 0) times.sweep.push_back(seconds_since(start));
  }
}

void bench_shm(Setup setup) {
  if (setup.rounds == 0) setup.rounds = static_cast<int>(std::clamp<std::size_t>((256U << 20) / setup.bytes, 21, 500));
  Window window(shm::Window::bytes_for(static_cast<std::size_t>(setup.ranks), setup.slot));
  std::barrier all(setup.ranks);
  Times times;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(setup, rank, window, all, times); });
  }
  for (std::thread& thread : threads) thread.join();
  const double time = median(times.allreduce);
  const double sweep = median(times.sweep);
  std::printf("shm %d ranks %zu bytes slot %zu: %.3f us (best %.3f), %.2f GB/s; sweep %.3f us = %.0f%% of the limit\n",
              setup.ranks, setup.bytes, setup.slot, time * 1e6, quantile(times.allreduce, 0) * 1e6,
              static_cast<double>(setup.bytes) / time * 1e-9, sweep * 1e6, 100 * sweep / time);
}

void bench_kernels() {
  constexpr std::size_t kBytes = 128 << 10;
  std::vector<std::byte> a(kBytes), b(kBytes), out(kBytes);
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!can_reduce(dtype, ReduceOp::kSum)) continue;
    std::printf("%-9s", std::string(name_of(dtype)).c_str());
    for (const kernels::Level level : kernels::kLevels) {
      if (!kernels::supported(level)) continue;
      for (const double factor : {1.0, 0.5}) {
        const kernels::Reduction what = {.dtype = dtype, .finish = {.factor = factor}};
        const std::byte* sources[] = {a.data(), b.data()};
        std::vector<double> times;
        for (int round = 0; round < 200; ++round) {
          const TimePoint start = Clock::now();
          kernels::reduce_at(level, what, sources, out.data(), kBytes / size_of(dtype));
          times.push_back(seconds_since(start));
        }
        std::printf("  %s%s %6.1f GB/s", std::string(kernels::name_of(level)).c_str(), factor == 1.0 ? "" : " scaled",
                    static_cast<double>(kBytes) / median(times) * 1e-9);
      }
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() >= 3 && args[0] == "shm") {
    Setup setup = {.ranks = std::atoi(args[1].c_str()), .bytes = std::strtoull(args[2].c_str(), nullptr, 0)};
    if (args.size() > 3) setup.rounds = std::atoi(args[3].c_str());
    if (args.size() > 4) setup.slot = std::strtoull(args[4].c_str(), nullptr, 0);
    bench_shm(setup);
  } else if (args.size() == 1 && args[0] == "kernels") {
    bench_kernels();
  } else {
    std::fprintf(stderr, "usage: kernel_bench kernels | kernel_bench shm RANKS BYTES [ROUNDS [SLOT]]\n");
    return 64;
  }
  return 0;
}
