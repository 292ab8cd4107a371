// The last failures of operations with everything the runtime knows of them. A failure is found by its message, because
// an error of XLA can carry only a message and a code, and JAX's exception shows only the message. TensorFlow could
// carry a payload, but that would be a second mechanism.
#pragma once

#include <string_view>

#include "distrun/distrun.h"

namespace distrun::bridge {

// Not where there is no memory for it: the framework tells of the failure anyway.
void remember_failure(const distrun_error& error) noexcept;

// What the exception that is being handled means for an operation; needs no memory to say that there is none.
distrun_error failure_of_exception() noexcept;

// Fills `error` with the last failure whose message occurs in `text`; false if there is none. The pointers stay valid
// until the next call on this thread.
bool find_failure(std::string_view text, distrun_error& error) noexcept;

}  // namespace distrun::bridge
