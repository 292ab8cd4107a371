// Checks which kind of TensorFlow this is, and its callback. The TensorFlow here has almost nothing
// (fake_tensorflow.c).
#include <dlfcn.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "bindings/tensorflow/done.h"
#include "bindings/tensorflow/tf_api.h"

extern const char* const kFakeTensorflow;

namespace distrun::tensorflow {
namespace {

TF_AsyncOpKernelDoneCallback* as_callback(void* memory) {
  return reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(memory);
}

// Does the same as TensorFlow's own function.
void run_callback(TF_AsyncOpKernelDoneCallback* callback) { (*reinterpret_cast<std::function<void()>*>(callback))(); }

}  // namespace

TEST_CASE("tensorflow: a callback is kept beyond its call, run once and destroyed") {
  tf.TF_RunAsyncOpKernelDoneCallback = run_callback;
  const auto counted = std::make_shared<int>(0);
  // A callable that std::function stores inside itself, and one that it stores on the heap.
  std::array<char, 64> large{};
  const std::array<std::function<void()>, 2> callbacks = {[counted] { ++*counted; },
                                                          [counted, large] { *counted += 1 + large[0]; }};
  for (const auto& given : callbacks) {
    *counted = 0;
    const auto users = counted.use_count();
    auto original = std::make_unique<std::function<void()>>(given);
    REQUIRE(Done::can_be_kept(as_callback(original.get())));
    Done done = Done::take(as_callback(original.get()));
    CHECK_FALSE(*original);
    original.reset();
    CHECK(counted.use_count() == users + 1);
    done.run();
    CHECK(*counted == 1);
    CHECK(counted.use_count() == users);
  }
}

TEST_CASE("tensorflow: what does not look like its callback is only run where it lies") {
  struct Other {
    std::array<std::uintptr_t, 4> words;
  };
  Other empty{};
  CHECK_FALSE(Done::can_be_kept(as_callback(&empty)));
  Other data{{1, 2, reinterpret_cast<std::uintptr_t>(&empty), reinterpret_cast<std::uintptr_t>(&data)}};
  CHECK_FALSE(Done::can_be_kept(as_callback(&data)));

  static void* ran = nullptr;
  tf.TF_RunAsyncOpKernelDoneCallback = [](TF_AsyncOpKernelDoneCallback* callback) { ran = callback; };
  Done::borrow(as_callback(&data)).run();
  CHECK(ran == &data);
  CHECK(data.words[0] == 1);
}

TEST_CASE("tensorflow: one that is not there or lacks functions is refused with their names") {
  CHECK(resolve_tf_api() == "TensorFlow was not loaded when this library was");
  REQUIRE(dlopen(kFakeTensorflow, RTLD_NOW | RTLD_LOCAL) != nullptr);
  const std::string why = resolve_tf_api();
  CHECK(why.starts_with("this TensorFlow's C API lacks TF_DeleteStatus, TF_SetStatus, "));
  CHECK(why.find("TF_NewStatus") == std::string::npos);
}

}  // namespace distrun::tensorflow
