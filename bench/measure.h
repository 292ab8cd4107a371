// Shared by the benchmark programs: the command line, timing, and one JSON line per result. A header that uses no
// library, so that the programs for MPI and Gloo measure in exactly the same way.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace distrun::bench {

struct Options {
  std::vector<std::size_t> sizes = {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20};  // bytes
  bool out_of_place = false;
  bool model = false;       // the 161 gradient tensors of ResNet-50
  double seconds = 0.5;     // how long each case is repeated
  double idle_seconds = 0;  // stay idle so long, and measure what that costs
};

inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--out-of-place") {
      options.out_of_place = true;
    } else if (flag == "--model" && has_value && std::strcmp(argv[i + 1], "resnet50") == 0) {
      options.model = true;
      ++i;
    } else if (flag == "--seconds" && has_value) {
      options.seconds = std::atof(argv[++i]);
    } else if (flag == "--idle" && has_value) {
      options.idle_seconds = std::atof(argv[++i]);
    } else if (flag == "--sizes" && has_value) {
      options.sizes.clear();
      for (const char* text = argv[++i]; *text != '\0';) {
        char* end = nullptr;
        options.sizes.push_back(std::strtoull(text, &end, 10));
        if (end == text) break;
        text = *end == ',' ? end + 1 : end;
      }
    } else {
      std::fprintf(stderr,
                   "usage: %s [--sizes BYTES,...] [--out-of-place] [--model resnet50] [--seconds S] [--idle S]\n"
                   "unknown argument: %s\n",
                   argv[0], flag.c_str());
      std::exit(64);
    }
  }
  return options;
}

// Element counts of ResNet-50's parameters: 161 tensors, 25.6 M elements. The last layer comes first, as in the
// backward pass.
inline std::vector<std::size_t> resnet50_tensors() {
  std::vector<std::size_t> counts = {std::size_t{64} * 3 * 7 * 7, 64, 64};
  const auto conv = [&](std::size_t in, std::size_t out, std::size_t kernel) {
    counts.insert(counts.end(), {in * out * kernel * kernel, out, out});
  };
  const std::size_t blocks[4] = {3, 4, 6, 3};
  std::size_t in = 64;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t width = std::size_t{64} << stage;
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      conv(in, width, 1);
      conv(width, width, 3);
      conv(width, width * 4, 1);
      if (block == 0) conv(in, width * 4, 1);
      in = width * 4;
    }
  }
  counts.insert(counts.end(), {std::size_t{2048} * 1000, 1000});
  std::reverse(counts.begin(), counts.end());
  return counts;
}

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// `once` is a collective. Every rank calls it equally often, because `agree` gives rank 0's number to all ranks.
inline double measure(double seconds, const std::function<void()>& once, const std::function<long(long)>& agree) {
  constexpr int kWarmUps = 3;
  const double start = now();
  for (int i = 0; i < kWarmUps; ++i) once();
  const double each = std::max((now() - start) / kWarmUps, 1e-7);
  const long repeats = agree(std::clamp(static_cast<long>(seconds / each), 5L, 20000L));
  std::vector<double> times(static_cast<std::size_t>(repeats));
  for (double& time : times) {
    const double begin = now();
    once();
    time = now() - begin;
  }
  return median(std::move(times));
}

inline void print_result(const std::string& who, const std::string& what, double value, const char* unit = "s") {
  std::printf("{\"who\": \"%s\", \"case\": \"%s\", \"unit\": \"%s\", \"value\": %.9g}\n", who.c_str(), what.c_str(),
              unit, value);
  std::fflush(stdout);
}

inline std::string size_case(std::size_t bytes, bool out_of_place) {
  return std::to_string(bytes) + (out_of_place ? " B out of place" : " B in place");
}

// What a process costs that does nothing.
struct Idle {
  long context_switches;  // of all threads
  double cpu_seconds;     // for each second
};

// Context switches of all threads of this process. The counting thread counts only its voluntary ones, because a busy
// machine may take its core while it reads.
inline long context_switches() {
  const std::string self = std::to_string(::gettid());
  long total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      const bool forced = line.rfind("nonvoluntary_ctxt_switches:", 0) == 0;
      if (!forced && line.rfind("voluntary_ctxt_switches:", 0) != 0) continue;
      if (forced && task.path().filename() == self) continue;
      total += std::atol(line.c_str() + line.find(':') + 1);
    }
  }
  return total;
}

inline double cpu_seconds() {
  ::rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const ::timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The counting thread sleeps too. This one switch is known and is subtracted.
inline Idle measure_idle(double seconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const long before = context_switches();
  const double cpu = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double used = cpu_seconds() - cpu;  // without the time of counting
  return {std::max(0L, context_switches() - before - 1), used / seconds};
}

// `worst`: of all ranks.
inline void print_idle(const std::string& who, const Idle& worst) {
  print_result(who, "idle context switches, worst rank", static_cast<double>(worst.context_switches), "count");
  print_result(who, "idle CPU time per second, worst rank", worst.cpu_seconds);
}

}  // namespace distrun::bench
