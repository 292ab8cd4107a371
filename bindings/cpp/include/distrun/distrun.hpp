// distrun for C++17 and newer: headers over the C API (distrun.h has the full contract of every call; docs/cpp.md has
// all of it by examples). Errors are exceptions (distrun::Error); sessions and operations are move-only and free
// themselves.
//
//   Session    this process's membership in the job; every operation     session.hpp
//   Request    one operation that is asked for, with all it may have     request.hpp
//   Operation  one in flight; wait_all, wait_any                         operation.hpp
//   Watch      what has completed, for a thread of its own               watch.hpp
//   Error      what a failed call throws                                 error.hpp
#pragma once

#include "distrun/error.hpp"
#include "distrun/operation.hpp"
#include "distrun/request.hpp"
#include "distrun/session.hpp"
#include "distrun/watch.hpp"
