// Rank 0 has two operations in flight, which the last rank never submits. A second thread waits for the first
// operation, with a time limit. On the main thread, the Error leaves the scope of both operations. It ends the job
// instead of waiting for the second one.
#include <cstdio>
#include <distrun/distrun.hpp>
#include <future>

int main() {
  distrun::Session session;
  float values[2] = {1, 1};
  try {
    if (session.rank() == 0) {
      distrun::Operation first = session.allreduce_async("first", &values[0], 1);
      const distrun::Operation second = session.allreduce_async("second", &values[1], 1);
      std::async(std::launch::async, [&first] { first.wait(0.3); }).get();
    }
    session.barrier();
  } catch (const distrun::Error& error) {
    std::printf("rank %d: %s\n", session.rank(), error.cause.empty() ? error.what() : error.cause.c_str());
    std::fflush(stdout);
    return session.rank() == 0 && error.code == DISTRUN_TIMEOUT ? 5 : 6;
  }
  return 9;
}
