// The same measurements with Gloo's ring all-reduce over TCP, for bench/compare.py. Runs under distrun. The ranks meet
// in the folder of the environment variable BENCH_GLOO_STORE.
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/measure.h"

namespace {

int from_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

void run_idle(const std::shared_ptr<gloo::rendezvous::Context>& context, double seconds) {
  const distrun::bench::Idle mine = distrun::bench::measure_idle(seconds);
  double worst[] = {static_cast<double>(mine.context_switches), mine.cpu_seconds};
  const auto largest = [](void* out, const void* a, const void* b, std::size_t count) {
    gloo::max<double>(out, a, b, count);
  };
  gloo::AllreduceOptions allreduce(context);
  allreduce.setOutput(worst, 2);
  allreduce.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(largest));
  gloo::allreduce(allreduce);
  if (context->rank == 0) distrun::bench::print_idle("gloo", {static_cast<long>(worst[0]), worst[1]});
}

}  // namespace

int main(int argc, char** argv) {
  const distrun::bench::Options options = distrun::bench::parse_options(argc, argv);
  const int rank = from_environment("RANK");
  const int size = std::max(1, from_environment("WORLD_SIZE"));
  const char* folder = std::getenv("BENCH_GLOO_STORE");
  if (folder == nullptr) {
    std::fprintf(stderr, "gloo_bench: set BENCH_GLOO_STORE to an empty folder that all ranks see\n");
    return 64;
  }
  gloo::transport::tcp::attr attributes;
  // Between hosts, the launcher sets the interface.
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    attributes.iface = interface;
  } else {
    attributes.hostname = "127.0.0.1";
  }
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto store = gloo::rendezvous::FileStore(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);

  const auto agree = [&](long value) {
    gloo::BroadcastOptions broadcast(context);
    broadcast.setRoot(0);
    broadcast.setOutput(&value, 1);
    gloo::broadcast(broadcast);
    return value;
  };
  const auto sum = [](void* out, const void* a, const void* b, std::size_t count) {
    gloo::sum<float>(out, a, b, count);
  };
  const auto reduce = [&](float* input, float* output, std::size_t count) {
    gloo::AllreduceOptions allreduce(context);
    allreduce.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    if (input != output) allreduce.setInput(input, count);
    allreduce.setOutput(output, count);
    allreduce.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(sum));
    gloo::allreduce(allreduce);
  };
  for (const std::size_t bytes : options.sizes) {
    std::vector<float> input(bytes / sizeof(float), 0.0F);
    std::vector<float> output(options.out_of_place ? input.size() : 0, 0.0F);
    float* target = options.out_of_place ? output.data() : input.data();
    const double seconds = distrun::bench::measure(
        options.seconds, [&] { reduce(input.data(), target, input.size()); }, agree);
    if (rank == 0)
      distrun::bench::print_result("gloo", distrun::bench::size_case(bytes, options.out_of_place), seconds);
  }
  if (options.idle_seconds > 0) {
    agree(0);  // the ranks wait for rank 0
    run_idle(context, options.idle_seconds);
  }
  return 0;
}
