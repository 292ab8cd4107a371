#include "runtime/backend/builtin/builtin.h"

#include "runtime/backend/hierarchical/hierarchical_factory.h"
#include "runtime/backend/self/self_backend.h"
#include "runtime/backend/shm/shm_factory.h"
#include "runtime/backend/tcp/tcp_factory.h"

namespace distrun::backend {

std::vector<std::unique_ptr<Factory>> builtin_factories() {
  std::vector<std::unique_ptr<Factory>> factories;
  factories.push_back(make_self_factory());
  factories.push_back(make_shm_factory());
  factories.push_back(make_tcp_factory());
  factories.push_back(make_hierarchical_factory());
  return factories;
}

}  // namespace distrun::backend
