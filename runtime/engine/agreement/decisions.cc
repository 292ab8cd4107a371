#include "runtime/engine/agreement/decisions.h"

#include <span>

#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {

void Decisions::protocol_error(int rank, const std::vector<std::string>& hosts, const std::string& what) {
  abort({.code = Errc::kProtocol,
         .message = describe_ranks(std::span(&rank, 1), hosts) + " sent " + what +
                    ". This is a bug in distrun, please report it",
         .ranks = {rank},
         .usable = false});
}

}  // namespace distrun::engine
