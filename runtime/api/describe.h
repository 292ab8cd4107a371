// Text answers for people that need no session (distrun_query with a NULL session).
#pragma once

#include <string>

namespace distrun::api {

// "backends": one line for each, with its name and `ok` or the reason. "settings": the values that the environment
// gives.
std::string describe_without_session(const std::string& what);

}  // namespace distrun::api
