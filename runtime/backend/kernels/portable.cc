#include "runtime/backend/kernels/loops.h"

namespace distrun::backend::kernels {

namespace {
constexpr Table kTable = make_table();
}

const Table& portable_table() { return kTable; }

}  // namespace distrun::backend::kernels
