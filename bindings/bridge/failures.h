// The last failures of operations, with all details from the runtime. A failure is found by its message: an error of
// XLA carries only a message and a code, and JAX's exception shows only the message. TensorFlow could carry a payload,
// but that would be a second mechanism.
#pragma once

#include <string_view>

#include "distrun/distrun.h"

namespace distrun::bridge {

// Does nothing if there is no memory for it. The framework reports the failure anyway.
void remember_failure(const distrun_error& error) noexcept;

// Returns the error for the exception that is being handled. It allocates no memory, so it can also report that no
// memory is left.
distrun_error failure_of_exception() noexcept;

// Fills `error` with the last failure whose message occurs in `text`. Returns false if there is none. The pointers stay
// valid until the next call on this thread.
bool find_failure(std::string_view text, distrun_error& error) noexcept;

}  // namespace distrun::bridge
