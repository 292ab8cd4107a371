#pragma once

#include <memory>

#include "runtime/backend/factory.h"
#include "runtime/backend/hierarchical/layout.h"

namespace distrun::backend {

// Shared memory inside each host, and what the setting between_hosts names between them: for groups over several hosts
// of which one has several members.
std::unique_ptr<Factory> make_hierarchical_factory(std::size_t piece_bytes = hierarchical::kPieceBytes);

}  // namespace distrun::backend
