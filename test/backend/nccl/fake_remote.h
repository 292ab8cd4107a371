// The fake inside the plug-in, for a test that has loaded it: the plug-in's copy is the one that its calls come to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/cuda/cuda_api.h"

namespace distrun::test {

struct FakeRemote {
  const backend::cuda_parts::CudaApi* cuda;
  // Of the driver, beside those of the plug-ins.
  int (*context_of)(void* stream, void** context);
  int (*current_device)(int* device);
  int (*synchronize)(void* stream);
  // fake_gpus.h
  void (*fail)(const std::string& symbol, int code, int skip, int times);
  void (*capture_streams)(bool capturing);
  std::string (*calls_of)(const std::vector<std::string>& symbols);
  void (*forget_calls)();
  std::vector<std::string> (*faults)();
  // What comes on `stream` from now on waits until the result is true, and run() is called.
  std::shared_ptr<bool> (*close_gate)(void* stream);
  void (*open_gate)(const std::shared_ptr<bool>& gate);
  // "s3"
  std::string (*name_of)(void* stream);
};

}  // namespace distrun::test

extern "C" const distrun::test::FakeRemote* distrun_fake_remote();
