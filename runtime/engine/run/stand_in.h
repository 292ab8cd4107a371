// The tensor that a joined rank contributes to operations of the other ranks.
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

// Makes the contribution of a joined rank: the neutral element for a reduction, no rows for an allgather, a place to
// receive for a broadcast. fill_stand_in() gives it memory.
TensorPtr make_stand_in(int set, std::string_view name, Signature signature, int gpu);
// Gives the tensor memory of the backend that it runs on. kOutOfMemory.
Status fill_stand_in(Tensor& tensor, backend::Backend& backend);

// The element that leaves every other unchanged under `op`, as its bytes in memory. Tests use it too.
std::vector<std::byte> neutral_element(ReduceOp op, DType dtype);

}  // namespace distrun::engine
