// What a Python script imports, as far as it matters to how it is started. Pure.
#pragma once

#include <string_view>

namespace distrun::launcher {

struct Imports {
  bool mpi4py = false;
  bool horovod = false;
  bool jax_job = false;  // imports jax and starts what its processes form: by default each sees all GPUs without it
  bool distrun = false;
};
Imports imports_in(std::string_view script);

}  // namespace distrun::launcher
