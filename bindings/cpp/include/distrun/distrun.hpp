// distrun for C++17 and newer: headers over the C API. distrun.h has the full contract of every call, and
// docs/reference/cpp.md has examples of all of it. Errors are exceptions (distrun::Error). Sessions and operations are
// move-only and free themselves.
//
//   Session    this process's membership in the job; all operations    session.hpp
//   Request    one operation with all its parameters                   request.hpp
//   Operation  an operation in flight; wait_all, wait_any              operation.hpp
//   Watch      completed operations, for a thread that takes them      watch.hpp
//   Error      the exception of a failed call                          error.hpp
#pragma once

#include "distrun/error.hpp"
#include "distrun/operation.hpp"
#include "distrun/request.hpp"
#include "distrun/session.hpp"
#include "distrun/watch.hpp"
