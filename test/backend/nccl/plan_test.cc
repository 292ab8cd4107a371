// How an operation is expressed in NCCL's terms, and the errors for missing libraries. Pure functions.
#include "runtime/backend/nccl/plan.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "runtime/backend/nccl/libraries.h"
#include "test/backend/nccl/fake_gpus.h"

namespace distrun::backend::nccl_plugin {
namespace {

struct Question {
  std::int32_t kind = DISTRUN_BACKEND_ALLREDUCE;
  std::int32_t dtype = DISTRUN_BACKEND_FLOAT32;
  std::int32_t reduce = DISTRUN_BACKEND_SUM;
  std::uint64_t segments = 1;
  double prescale = 1.0;
  double postscale = 1.0;
};

ReducePlan plan(const Question& question) {
  const std::vector<distrun_backend_segment> segments(question.segments, {nullptr, nullptr, 10});
  const std::uint64_t counts[] = {6, 4};
  distrun_backend_operation operation{};
  operation.kind = question.kind;
  operation.dtype = question.dtype;
  operation.reduce = question.reduce;
  operation.segments = segments.data();
  operation.num_segments = segments.size();
  operation.counts = counts;
  operation.prescale = question.prescale;
  operation.postscale = question.postscale;
  return plan_reduce(operation, 2, 0);
}

TEST_CASE("nccl: one tensor without scales is reduced where it lies", "[nccl]") {
  const ReducePlan sum = plan({});
  CHECK_FALSE(sum.packs);
  CHECK_FALSE(sum.unpacks);
  CHECK(sum.buffer_bytes == 0);
  const ReducePlan average = plan({.reduce = DISTRUN_BACKEND_AVERAGE});
  CHECK(average.op == kNcclAverage);
  CHECK_FALSE(average.unpacks);
}

TEST_CASE("nccl: scales, several tensors and types that NCCL has not go through the buffer", "[nccl]") {
  CHECK(plan({.prescale = 2}).packs);
  CHECK(plan({.segments = 3}).buffer_bytes == 120);
  const ReducePlan fused = plan({.reduce = DISTRUN_BACKEND_AVERAGE, .segments = 3, .postscale = 5});
  CHECK(fused.op == kNcclSum);
  CHECK(fused.finish.divisor == 2);
  CHECK(fused.finish.factor == 5);
  const ReducePlan small = plan({.dtype = DISTRUN_BACKEND_INT16});
  CHECK(small.packs);
  CHECK(small.type == kNcclInt32);
  CHECK(small.buffer_bytes == 40);
  CHECK(plan({.dtype = DISTRUN_BACKEND_UINT16}).type == kNcclUint32);
  CHECK(plan({.dtype = DISTRUN_BACKEND_UINT16}).packs);
  CHECK(plan({.dtype = DISTRUN_BACKEND_UINT32}).type == kNcclUint32);
  CHECK_FALSE(plan({.dtype = DISTRUN_BACKEND_UINT64}).packs);
  const ReducePlan post = plan({.postscale = 3});
  CHECK_FALSE(post.packs);
  CHECK(post.unpacks);  // in-place
}

TEST_CASE("nccl: integers are divided by our kernels, which truncate toward zero", "[nccl]") {
  const ReducePlan average = plan({.dtype = DISTRUN_BACKEND_INT32, .reduce = DISTRUN_BACKEND_AVERAGE});
  CHECK(average.op == kNcclSum);
  CHECK(average.unpacks);
  CHECK(average.finish.divisor == 2);
}

TEST_CASE("nccl: booleans are any or all, and are never scaled", "[nccl]") {
  const std::int32_t boolean = DISTRUN_BACKEND_BOOL;
  for (const std::int32_t any : {DISTRUN_BACKEND_SUM, DISTRUN_BACKEND_AVERAGE, DISTRUN_BACKEND_MAX}) {
    CHECK(plan({.dtype = boolean, .reduce = any}).op == kNcclMax);
  }
  for (const std::int32_t all : {DISTRUN_BACKEND_MIN, DISTRUN_BACKEND_PRODUCT}) {
    CHECK(plan({.dtype = boolean, .reduce = all}).op == kNcclMin);
  }
  const ReducePlan scaled = plan({.dtype = boolean, .prescale = 0, .postscale = 9});
  CHECK(scaled.prescale == 1);
  CHECK(scaled.finish.factor == 1);
}

TEST_CASE("nccl: a reducescatter's share has a place in the buffer only where it is converted", "[nccl]") {
  const std::int32_t kind = DISTRUN_BACKEND_REDUCESCATTER;
  CHECK(plan({.kind = kind}).buffer_bytes == 0);
  const ReducePlan scaled = plan({.kind = kind, .prescale = 2});
  CHECK(scaled.buffer_bytes == 40);
  CHECK_FALSE(scaled.unpacks);
  CHECK(plan({.kind = kind, .dtype = DISTRUN_BACKEND_INT16}).buffer_bytes == 64);
}

// --- libraries ---

const std::string kPlugin = "/e/lib/python3.11/site-packages/distrun/lib/plugins/libdistrun_backend_nccl.so";
const std::string kPackaged = "/e/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";

struct Files {
  std::set<std::string> there = {"/dev/nvidiactl", "libcuda.so.1", "libnccl.so.2"};
  std::string without;  // name of a symbol that is missing
  int version = 22003;
  int packaged_version = 22703;
  std::vector<std::string> asked;
  std::set<std::string> broken;  // files that exist but cannot be opened
  std::string why;               // error of the last open()
};

Status load(Files& files) {
  static int version = 0;
  const Loader loader = {.exists = [&](const char* path) { return files.there.contains(path); },
                         .open = [&](const std::string& name, bool loaded) -> void* {
                           files.asked.push_back(name + (loaded ? " loaded" : ""));
                           files.why = (files.there.contains(name) ? "truncated: " : "not there: ") + name;
                           if (files.broken.contains(name)) return nullptr;
                           version = name == kPackaged ? files.packaged_version : files.version;
                           return !loaded && files.there.contains(name) ? &version : nullptr;
                         },
                         .find = [&](void*, const char* symbol) -> void* {
                           if (files.without == symbol) return nullptr;
                           if (std::string(symbol) != "ncclGetVersion") return &version;
                           return reinterpret_cast<void*>(+[](int* out) -> NcclResult {
                             *out = version;
                             return kNcclSuccess;
                           });
                         },
                         .why = [&] { return files.why; },
                         .plugin_file = kPlugin};
  return load_libraries(loader).status();
}

bool says(const Status& status, const std::string& text) {
  return !status.ok() && status.code() == Errc::kUnsupported && status.message().find(text) != std::string::npos;
}

TEST_CASE("nccl: what is missing is named, with the cure", "[nccl]") {
  Files all;
  CHECK(load(all).ok());
  CHECK(all.asked ==
        std::vector<std::string>{"libcuda.so.1 loaded", "libcuda.so.1", "libnccl.so.2 loaded", "libnccl.so.2"});
  Files no_gpu{.there = {"libcuda.so.1", "libnccl.so.2"}};
  CHECK(says(load(no_gpu), "no NVIDIA GPU: /dev/nvidiactl does not exist. Install the NVIDIA driver"));
  CHECK(no_gpu.asked.empty());
  Files no_driver{.there = {"/dev/dxg", "libnccl.so.2"}};
  CHECK(says(load(no_driver), "not there: libcuda.so.1; install the NVIDIA driver"));
  Files no_nccl{.there = {"/dev/nvidiactl", "libcuda.so.1"}};
  CHECK(says(load(no_nccl), "not there: libnccl.so.2; install the package nvidia-nccl-cu12"));
  Files broken{.there = {"/dev/nvidiactl", "libcuda.so.1", kPackaged}, .broken = {kPackaged}};
  CHECK(says(load(broken), "truncated: " + kPackaged + "; install the package nvidia-nccl-cu12"));
  Files old_driver{.without = "cuMemAllocAsync"};
  CHECK(says(load(old_driver), "has no cuMemAllocAsync. Install a driver of CUDA 11.2 or newer"));
  Files old_nccl{.without = "ncclCommInitRankConfig", .version = 21210};
  CHECK(says(load(old_nccl), "NCCL 2.12.10, and distrun needs 2.14"));
}

TEST_CASE("nccl: what a framework of this environment will load goes before the system's", "[nccl]") {
  Files old_system{.version = 21210};
  old_system.there.insert(kPackaged);
  CHECK(load(old_system).ok());
  CHECK(old_system.asked ==
        std::vector<std::string>{"libcuda.so.1 loaded", "libcuda.so.1", "libnccl.so.2 loaded", kPackaged});
}

TEST_CASE("nccl: the packages of PyPI are looked for in the environment that the plug-in is in", "[nccl]") {
  const auto paths = package_paths(kPlugin, "libnccl.so.2");
  REQUIRE_FALSE(paths.empty());
  CHECK(paths.front() == kPackaged);
  CHECK(paths.back() == "/e/lib/libnccl.so.2");  // from Conda
  CHECK(package_paths("/build/plugins/libdistrun_backend_nccl.so", "libnccl.so.2").empty());
}

}  // namespace
}  // namespace distrun::backend::nccl_plugin
