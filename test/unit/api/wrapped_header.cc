// The C header inside an `extern "C"` block of the program, as C++ programs often include C headers.
extern "C" {
#include "distrun/distrun.h"
}

namespace distrun::api {

distrun_op made_below_a_wrapped_header() { return DISTRUN_INIT(distrun_op); }

}  // namespace distrun::api
