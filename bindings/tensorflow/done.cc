#include "bindings/tensorflow/done.h"

#include <dlfcn.h>

namespace distrun::tensorflow {
namespace {

constexpr int kDestroy = 3;  // std::_Manager_operation

template <class Pointer>
bool is_code(Pointer pointer) {
  Dl_info info;
  return pointer != nullptr && dladdr(reinterpret_cast<void*>(pointer), &info) != 0 && info.dli_fname != nullptr;
}

}  // namespace

bool Done::can_be_kept(const TF_AsyncOpKernelDoneCallback* callback) {
  static_assert(sizeof(Function) == 32);
  const auto* function = reinterpret_cast<const Function*>(callback);
  return is_code(function->manager) && is_code(function->invoker);
}

Done Done::take(TF_AsyncOpKernelDoneCallback* callback) {
  auto* original = reinterpret_cast<Function*>(callback);
  Done made;
  made.function_ = *original;
  original->manager = nullptr;
  return made;
}

Done Done::borrow(TF_AsyncOpKernelDoneCallback* callback) {
  Done made;
  made.borrowed_ = callback;
  return made;
}

void Done::run() {
  if (borrowed_ != nullptr) return tf.TF_RunAsyncOpKernelDoneCallback(borrowed_);
  tf.TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&function_));
  function_.manager(&function_, &function_, kDestroy);
}

}  // namespace distrun::tensorflow
