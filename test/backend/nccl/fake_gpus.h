// CUDA's driver and NCCL without either: a recording fake of both tables of functions. Device memory is the process's;
// streams are queues of work that runs in order, when it may; collective operations take place when the last member has
// come to them. Ranks may be threads of one process, each with a GPU of its own.
//
// Calls come on any thread (one lock). What is wrong in a way that a real driver would not forgive (no current context,
// a stream of another GPU, an object that is gone, a call that may wait for a GPU which waits for peers) is kept in
// faults().
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/nccl/libraries.h"

namespace distrun::test::fake_gpus {

constexpr int kNewNccl = 23203;

// As libcuda.so.1 and libnccl.so.2 would be loaded.
backend::nccl_plugin::Libraries libraries(int nccl_version = kNewNccl);

// Forgets everything; nothing of the code under test may be left.
void reset();

// While held, no stream moves but by run(); at first they move at once.
void hold(bool held);
void run();
// NCCL says "in progress" this often after each call before it takes it. 0: taken at once.
void lag(int times);
// The call of this symbol after `skip` others returns `code`, so many times.
void fail(const std::string& symbol, int code, int skip = 0, int times = 1);
// What ncclCommGetAsyncError has to say of every communicator from now on.
void break_communicators(int code);
// Whether every caller's stream is being captured into a graph.
void capture_streams(bool capturing);

// The index of the calling thread's current GPU; -1: none.
int current_gpu();

// "cuEventRecord s1", "ncclAllReduce 4 float32 sum": calls in order, with the stream they were put on.
std::vector<std::string> calls();
// Those that start with one of the names, as one text: "a; b; c".
std::string calls_of(const std::vector<std::string>& symbols);
void forget_calls();
std::vector<std::string> faults();
void forget_faults();

}  // namespace distrun::test::fake_gpus
