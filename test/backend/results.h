// The operations that work according to a run of the suite, for the page of backends (scripts/backends_page).
#pragma once

#include "runtime/base/types.h"

namespace distrun::test {

// Thread-safe. Records that an operation gave the right result. The records are written to a file if the whole run
// passes.
void record_success(OpKind kind, DType dtype);

}  // namespace distrun::test
