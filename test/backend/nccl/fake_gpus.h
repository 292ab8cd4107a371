// A fake of CUDA's driver and of NCCL, which implements both tables of functions and records the calls. Device memory
// is the process's own. Streams are queues of work that runs in order. A collective runs when its last member has
// reached it. Ranks may be threads of one process, each with a different GPU.
//
// Thread-safe (one lock). faults() lists mistakes that a real driver would not forgive: no current context, a stream of
// another GPU, a destroyed object, or a call that may wait for a GPU which itself waits for peers.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/nccl/libraries.h"

namespace distrun::test::fake_gpus {

constexpr int kNewNccl = 23203;

// Returns the libraries as if libcuda.so.1 and libnccl.so.2 had been loaded.
backend::nccl_plugin::Libraries libraries(int nccl_version = kNewNccl);

// Clears all state. No object of the code under test may be left.
void reset();

// While held, work on streams runs only in run(). Initially work runs at once.
void hold(bool held);
void run();
// NCCL answers "in progress" this many times after each call before it accepts the call. 0: it accepts at once.
void lag(int times);
// After `skip` successful calls of this symbol, the next `times` calls return `code`.
void fail(const std::string& symbol, int code, int skip = 0, int times = 1);
// Sets the result of ncclCommGetAsyncError for every communicator.
void break_communicators(int code);
// Sets whether every stream of the callers is being captured into a graph.
void capture_streams(bool capturing);

// The index of the calling thread's current GPU; -1: none.
int current_gpu();

// All calls in order, with their streams: "cuEventRecord s1", "ncclAllReduce 4 float32 sum".
std::vector<std::string> calls();
// The calls that start with one of the names, as one text: "a; b; c".
std::string calls_of(const std::vector<std::string>& symbols);
void forget_calls();
std::vector<std::string> faults();
void forget_faults();

}  // namespace distrun::test::fake_gpus
