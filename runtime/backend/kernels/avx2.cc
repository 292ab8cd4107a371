// Compiled with -mavx2 -mf16c: nothing here may run before kernels.cc has asked the processor.
#include "runtime/backend/kernels/loops.h"

namespace distrun::backend::kernels {

namespace {
constexpr Table kTable = make_table();
}

const Table* avx2_table() { return &kTable; }

}  // namespace distrun::backend::kernels
