// The machine's own limit: an in-place `x *= a` over float32 on all cores at once. No all-reduce can be faster than one
// such sweep over its data. Small data is swept several times between two barriers, so that their time does not count.
#include <atomic>
#include <barrier>
#include <thread>

#include "bench/measure.h"

int main(int argc, char** argv) {
  const distrun::bench::Options options = distrun::bench::parse_options(argc, argv);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  for (const std::size_t bytes : options.sizes) {
    std::barrier together(static_cast<std::ptrdiff_t>(cores));
    std::vector<double> times;
    const auto repeats = std::max<std::size_t>(7, (std::size_t{1} << 30) / std::max<std::size_t>(bytes, 1 << 20));
    const std::size_t at_once = std::max<std::size_t>(1, (std::size_t{1} << 20) / bytes);
    const auto work = [&](unsigned core) {
      std::vector<float> data(bytes / sizeof(float), 1.0F);
      for (std::size_t i = 0; i < repeats; ++i) {
        together.arrive_and_wait();
        const double begin = distrun::bench::now();
        for (std::size_t sweep = 0; sweep < at_once; ++sweep) {
          const float factor = (i + sweep) % 2 == 0 ? 2.0F : 0.5F;
          for (float& value : data) value *= factor;
        }
        together.arrive_and_wait();
        if (core == 0) times.push_back((distrun::bench::now() - begin) / static_cast<double>(at_once));
      }
    };
    std::vector<std::thread> threads;
    for (unsigned core = 0; core < cores; ++core) threads.emplace_back(work, core);
    for (std::thread& thread : threads) thread.join();
    distrun::bench::print_result("sweep", distrun::bench::size_case(bytes, false), distrun::bench::median(times));
  }
  return 0;
}
