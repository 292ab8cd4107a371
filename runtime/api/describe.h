// Answers for people that need no session (distrun_query with a NULL session).
#pragma once

#include <string>

namespace distrun::api {

// "backends": one line each, name and `ok` or the reason; "settings": the defaults as the environment has them.
std::string describe_without_session(const std::string& what);

}  // namespace distrun::api
