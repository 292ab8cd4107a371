#include <stdexcept>
#include <string>

#include "test/fuzz/targets.h"

namespace distrun::fuzz {

void require(bool holds, const char* invariant) {
  if (!holds) throw std::logic_error(std::string("a fuzz target's invariant does not hold: ") + invariant);
}

}  // namespace distrun::fuzz
