// Compiled with -mavx512{f,bw,vl,dq} -mf16c. kernels.cc must check the processor before anything here runs.
#include "runtime/backend/kernels/loops.h"

namespace distrun::backend::kernels {

namespace {
constexpr Table kTable = make_table();
}

const Table* avx512_table() { return &kTable; }

}  // namespace distrun::backend::kernels
