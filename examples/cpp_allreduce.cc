// Averages a vector over all ranks and gathers one number of each.
//   c++ -std=c++17 cpp_allreduce.cc $(distrun --cflags --libs) -o cpp_allreduce && distrun -np 4 ./cpp_allreduce
#include <cstdio>
#include <distrun/distrun.hpp>
#include <vector>

int main() {
  distrun::Session session;
  std::vector<float> weights(1000, static_cast<float>(session.rank()));
  session.allreduce("weights", weights.data(), weights.size());

  const int mine = session.rank() * session.rank();
  const std::vector<int> squares = session.allgather("squares", &mine, 1);
  if (session.rank() == 0) {
    std::printf("average of the ranks: %g\nsquares:", static_cast<double>(weights[0]));
    for (const int square : squares) std::printf(" %d", square);
    std::printf("\n");
  }
  return 0;
}
