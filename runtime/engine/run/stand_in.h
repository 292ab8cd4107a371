// The tensor that a joined rank contributes to an operation of the others.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/status.h"
#include "runtime/base/types.h"
#include "runtime/engine/protocol/signature.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

// What a joined rank contributes: the neutral element of the reduction, no rows to an allgather, a place for what is
// broadcast. Its memory is fill_stand_in's.
TensorPtr make_stand_in(int set, std::string_view name, Signature signature, int gpu);
// Gives it memory of the backend that it runs on. kOutOfMemory.
Status fill_stand_in(Tensor& tensor, backend::Backend& backend);

// Element that changes no other under `op`, as its bytes in memory; for tests too.
std::vector<std::byte> neutral_element(ReduceOp op, DType dtype);

}  // namespace distrun::engine
