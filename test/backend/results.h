// What a run of the suite has seen to work, for docs/backends.md (scripts/backends_page).
#pragma once

#include "runtime/base/types.h"

namespace distrun::test {

// Any thread: an operation has run as it must. Written to a file when the whole run has ended well.
void record_success(OpKind kind, DType dtype);

}  // namespace distrun::test
