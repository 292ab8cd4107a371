// distrun-bench: latency and bandwidth of distrun through its C API, and the cost of an idle job.
//   distrun -np 2 distrun-bench --sizes 4,1048576 --model resnet50
#include <distrun/distrun.hpp>

#include "bench/measure.h"

namespace {

using distrun::bench::Options;

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  void run() {
    for (const std::size_t bytes : options_.sizes) run_size(bytes);
    if (options_.model) run_model();
    if (options_.idle_seconds > 0) run_idle();
  }

 private:
  long agree(long value) {
    std::int64_t number = value;
    session_.broadcast("bench.agree", &number, 1, 0);
    return static_cast<long>(number);
  }

  double measure(const std::function<void()>& once) {
    return distrun::bench::measure(options_.seconds, once, [this](long value) { return agree(value); });
  }

  void print(const std::string& what, double value, const char* unit = "s") const {
    if (session_.rank() == 0) distrun::bench::print_result("distrun", what, value, unit);
  }

  distrun_op make_op(const char* name, const float* input, float* output, const std::int64_t* shape) const {
    distrun_op op = {};
    op.struct_size = sizeof(op);
    op.kind = DISTRUN_ALLREDUCE;
    op.name = name;
    op.dtype = DISTRUN_FLOAT32;
    op.reduce = DISTRUN_SUM;
    op.shape = shape;
    op.ndim = 1;
    op.input = input;
    op.output = output;
    op.prescale = op.postscale = 1.0;
    op.group = -1;
    return op;
  }

  void run_size(std::size_t bytes) {
    const std::int64_t count = static_cast<std::int64_t>(bytes / sizeof(float));
    std::vector<float> input(static_cast<std::size_t>(count), 0.0F);
    std::vector<float> output(options_.out_of_place ? input.size() : 0, 0.0F);
    const distrun_op op = make_op("bench", input.data(), options_.out_of_place ? output.data() : input.data(), &count);
    const double seconds = measure([&] {
      distrun_handle* handle = nullptr;
      distrun::detail::check(distrun_enqueue(session_.get(), &op, 1, &handle));
      distrun::Operation(handle).wait();
    });
    print(distrun::bench::size_case(bytes, options_.out_of_place), seconds);
  }

  // One enqueue per tensor, as a framework's hooks do, then one wait for all.
  void run_model() {
    const std::vector<std::size_t> counts = distrun::bench::resnet50_tensors();
    std::vector<std::vector<float>> tensors;
    std::vector<std::string> names;
    std::vector<std::int64_t> shapes;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      tensors.emplace_back(counts[i], 0.0F);
      names.push_back("grad." + std::to_string(i));
      shapes.push_back(static_cast<std::int64_t>(counts[i]));
    }
    std::vector<distrun_handle*> handles(counts.size());
    const double seconds = measure([&] {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const distrun_op op = make_op(names[i].c_str(), tensors[i].data(), tensors[i].data(), &shapes[i]);
        distrun::detail::check(distrun_enqueue(session_.get(), &op, 1, &handles[i]));
      }
      distrun::detail::check(distrun_wait_all(handles.data(), handles.size(), -1.0, nullptr));
      for (distrun_handle* handle : handles) distrun_release(handle);
    });
    print("resnet50 161 tensors", seconds);
  }

  void run_idle() {
    session_.barrier();
    const distrun::bench::Idle mine = distrun::bench::measure_idle(options_.idle_seconds);
    const double values[] = {static_cast<double>(mine.context_switches), mine.cpu_seconds};
    const std::vector<double> all = session_.allgather("bench.idle", values, 2);
    distrun::bench::Idle worst = {};
    for (std::size_t i = 0; i < all.size(); i += 2) {
      worst.context_switches = std::max(worst.context_switches, static_cast<long>(all[i]));
      worst.cpu_seconds = std::max(worst.cpu_seconds, all[i + 1]);
    }
    if (session_.rank() == 0) distrun::bench::print_idle("distrun", worst);
  }

  Options options_;
  distrun::Session session_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = distrun::bench::parse_options(argc, argv);
  try {
    Bench(options).run();
  } catch (const distrun::Error& error) {
    std::fprintf(stderr, "distrun-bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
