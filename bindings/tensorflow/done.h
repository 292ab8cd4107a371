// TensorFlow's "this kernel has finished" callback, kept beyond the call that brought it.
//
// TensorFlow hands over the address of a std::function<void()> that is a parameter of its own and dies when the kernel
// returns, so the pointer cannot be kept. The function object is taken out of it instead: libstdc++'s layout of it (16
// bytes, a manager, an invoker) is the same since GCC 4 and for every TensorFlow wheel.
#pragma once

#include "bindings/tensorflow/tf_api.h"

namespace distrun::tensorflow {

class Done {
 public:
  // False if what TensorFlow gives does not look like that; then kernels must not return before they have finished.
  static bool can_be_kept(const TF_AsyncOpKernelDoneCallback* callback);

  // Takes the function object; the original is left empty.
  static Done take(TF_AsyncOpKernelDoneCallback* callback);
  // Only for a kernel that runs it before it returns.
  static Done borrow(TF_AsyncOpKernelDoneCallback* callback);

  // Once. The kernel's context is TensorFlow's again from here on.
  void run();

 private:
  struct Function {
    alignas(8) char functor[16];
    bool (*manager)(void* target, const void* source, int operation);
    void (*invoker)(const void*);
  };

  Function function_ = {};
  TF_AsyncOpKernelDoneCallback* borrowed_ = nullptr;
};

}  // namespace distrun::tensorflow
