// The C header in an `extern "C"` of the program's own, as C++ programs have it around headers of C.
extern "C" {
#include "distrun/distrun.h"
}

namespace distrun::api {

distrun_op made_below_a_wrapped_header() { return DISTRUN_INIT(distrun_op); }

}  // namespace distrun::api
