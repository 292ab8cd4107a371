// TensorFlow's callback "this kernel has finished", stored after the call that passed it.
//
// TensorFlow passes the address of a std::function<void()>, which is its own parameter and dies when the kernel
// returns. So the pointer cannot be kept. This class moves the function object out of it instead. libstdc++ has had the
// same layout for it (16 bytes, a manager, an invoker) since GCC 4 and in every TensorFlow wheel.
#pragma once

#include "bindings/tensorflow/tf_api.h"

namespace distrun::tensorflow {

class Done {
 public:
  // False if TensorFlow's object does not look like that. Kernels must then finish before they return.
  static bool can_be_kept(const TF_AsyncOpKernelDoneCallback* callback);

  // Takes the function object and leaves the original empty.
  static Done take(TF_AsyncOpKernelDoneCallback* callback);
  // Only for a kernel that runs the callback before it returns.
  static Done borrow(TF_AsyncOpKernelDoneCallback* callback);

  // Call it once. From then on the kernel's context belongs to TensorFlow again.
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
