// Access to the fake inside a loaded plug-in. The plug-in has its own copy of the fake, and its calls reach only that
// one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/cuda/cuda_api.h"

namespace distrun::test {

struct FakeRemote {
  const backend::cuda_parts::CudaApi* cuda;
  // Functions of the driver that the plug-ins do not use.
  int (*context_of)(void* stream, void** context);
  int (*current_device)(int* device);
  int (*synchronize)(void* stream);
  // The functions of fake_gpus.h.
  void (*fail)(const std::string& symbol, int code, int skip, int times);
  void (*capture_streams)(bool capturing);
  std::string (*calls_of)(const std::vector<std::string>& symbols);
  void (*forget_calls)();
  std::vector<std::string> (*faults)();
  // Later work on `stream` waits until the returned value is true and run() is called.
  std::shared_ptr<bool> (*close_gate)(void* stream);
  void (*open_gate)(const std::shared_ptr<bool>& gate);
  // For instance "s3".
  std::string (*name_of)(void* stream);
};

}  // namespace distrun::test

extern "C" const distrun::test::FakeRemote* distrun_fake_remote();
