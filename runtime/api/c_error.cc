#include "runtime/api/c_error.h"

namespace distrun::api {
namespace {

thread_local Status t_last_error;

}  // namespace

std::int32_t report(const Status& status) {
  if (!status.ok()) t_last_error = status;
  return static_cast<std::int32_t>(status.code());
}

const Status& last_error() { return t_last_error; }

void fill_error(const Status& status, distrun_error* error) {
  distrun_error filled = {};
  filled.code = static_cast<std::int32_t>(status.code());
  filled.message = filled.tensor = filled.host = filled.cause = "";
  filled.usable = 1;
  if (!status.ok()) {
    const ErrorInfo& info = status.info();
    filled.message = info.message.c_str();
    filled.tensor = info.tensor.c_str();
    filled.host = info.host.c_str();
    filled.cause = info.cause.c_str();
    filled.ranks = info.ranks.data();
    filled.num_ranks = info.ranks.size();
    filled.usable = info.usable ? 1 : 0;
  }
  copy_sized(error, filled);
}

}  // namespace distrun::api
