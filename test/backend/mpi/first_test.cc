// `mpi` in a program that has initialised MPI itself and calls it. It is linked with launched_test.cc, for its ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <numeric>
#include <stdexcept>

#include "runtime/backend/mpi/library/library.h"
#include "test/backend/ranks.h"

namespace distrun::test {
namespace {

namespace mpi = backend::mpi_plugin;

const mpi::Library& library() {
  static const auto found = mpi::load_library({mpi::Abi::kOpenMpi});
  if (!found.ok()) throw std::runtime_error(found.status().message());
  return *found;
}

class Program final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    int level = library().is.thread_multiple;
    if (library().call.Init_thread(nullptr, nullptr, level, &level) != mpi::kSuccess ||
        level < library().is.thread_multiple) {
      throw std::runtime_error("this MPI has no MPI_THREAD_MULTIPLE");
    }
  }
  void testRunEnded(const Catch::TestRunStats&) override { library().call.Finalize(); }
};
CATCH_REGISTER_LISTENER(Program)

// MPI calls of the program itself, by all ranks. While MPI waits, it moves all messages that it has.
bool call_mpi(int times) {
  for (int i = 0; i < times; ++i) {
    mpi::Handle request = library().is.no_request;
    if (library().call.Ibarrier(library().is.world, &request) != mpi::kSuccess) return false;
    for (int done = 0; done == 0;) {
      if (library().call.Test(&request, &done, nullptr) != mpi::kSuccess) return false;
    }
  }
  return true;
}

// One operation for each path of the plug-in: pairs of messages, MPI's own collective, and the ring.
struct Given {
  explicit Given(int ranks) : size(static_cast<std::size_t>(ranks)), counts(size * size, kBlock) {
    for (std::vector<float>* one : {&sent, &arrived}) one->assign(size * kBlock, 1.0F);
    small.assign(1000, 1.0F);
    large.assign(1000000, 1.0F);
    segments = {{.in = bytes(sent), .out = bytes(arrived), .count = sent.size()},
                {.in = bytes(small), .out = bytes(small), .count = small.size()},
                {.in = bytes(large), .out = bytes(large), .count = large.size()}};
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  void start(Rank& rank) const {
    const std::span<const backend::Segment> all = segments;
    rank.start({.kind = OpKind::kAlltoall, .segments = all.subspan(0, 1), .counts = counts});
    rank.start({.segments = all.subspan(1, 1)});
    rank.start({.segments = all.subspan(2, 1)});
  }
  std::vector<std::vector<float>*> outputs() { return {&arrived, &small, &large}; }

 private:
  static constexpr std::size_t kBlock = 500;
  static std::byte* bytes(std::vector<float>& of) { return reinterpret_cast<std::byte*>(of.data()); }

  std::size_t size;
  std::vector<std::size_t> counts;
  std::vector<float> sent, arrived, small, large;
  std::vector<backend::Segment> segments;
};

void abort_and_finish(Rank& rank) {
  for (int i = 0; i < 5; ++i) rank.look();
  rank.backend().abort({Errc::kAborted, "enough"});
  rank.finish();
}

}  // namespace

// Rank 0 gives up its operations before the other ranks send it anything.
TEST_CASE("given up: the program's own calls of MPI write nothing into the tensors' memory") {
  for_all_sizes([](Rank& rank) {
    constexpr float kMine = 77.0F;
    Given given(rank.size);
    if (rank.index == 0) {
      given.start(rank);
      abort_and_finish(rank);
      for (std::vector<float>* one : given.outputs()) std::ranges::fill(*one, kMine);
    }
    subject().gather("rank 0 has given up");
    if (rank.index != 0) {
      given.start(rank);
      abort_and_finish(rank);
    }
    rank.expect(call_mpi(20), "the program cannot call MPI");
    if (rank.index != 0) return;
    for (std::vector<float>* one : given.outputs()) {
      const bool untouched = std::ranges::all_of(*one, [](float value) { return value == kMine; });
      rank.expect(untouched, "memory was written after its operation had completed");
    }
  });
}

}  // namespace distrun::test
