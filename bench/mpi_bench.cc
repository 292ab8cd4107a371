// The same measurements with MPI_Allreduce, for bench/compare.py.
#include <mpi.h>

#include "bench/measure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const distrun::bench::Options options = distrun::bench::parse_options(argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto agree = [](long value) {
    MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return value;
  };
  const auto print = [&](const std::string& what, double seconds) {
    if (rank == 0) distrun::bench::print_result("openmpi", what, seconds);
  };
  for (const std::size_t bytes : options.sizes) {
    std::vector<float> input(bytes / sizeof(float), 0.0F);
    std::vector<float> output(options.out_of_place ? input.size() : 0, 0.0F);
    const int count = static_cast<int>(input.size());
    const double seconds = distrun::bench::measure(
        options.seconds,
        [&] {
          if (options.out_of_place) {
            MPI_Allreduce(input.data(), output.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          } else {
            MPI_Allreduce(MPI_IN_PLACE, input.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          }
        },
        agree);
    print(distrun::bench::size_case(bytes, options.out_of_place), seconds);
  }
  if (options.model) {
    std::vector<std::vector<float>> tensors;
    for (const std::size_t count : distrun::bench::resnet50_tensors()) tensors.emplace_back(count, 0.0F);
    const double seconds = distrun::bench::measure(
        options.seconds,
        [&] {
          for (std::vector<float>& tensor : tensors) {
            MPI_Allreduce(MPI_IN_PLACE, tensor.data(), static_cast<int>(tensor.size()), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
          }
        },
        agree);
    print("resnet50 161 tensors", seconds);
  }
  if (options.idle_seconds > 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    const distrun::bench::Idle mine = distrun::bench::measure_idle(options.idle_seconds);
    double worst[] = {static_cast<double>(mine.context_switches), mine.cpu_seconds};
    MPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) distrun::bench::print_idle("openmpi", {static_cast<long>(worst[0]), worst[1]});
  }
  MPI_Finalize();
  return 0;
}
