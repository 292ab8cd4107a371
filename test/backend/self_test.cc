// The conformance suite on the backend `self`.
#include "runtime/backend/self/self_backend.h"
#include "test/backend/conformance.h"

namespace distrun::test {
namespace {

class SelfGroup final : public GroupFixture {
 public:
  Result<std::unique_ptr<backend::Backend>> create(int, TimePoint deadline) override {
    return backend::make_self_factory()->create({.id = "self", .members = {0}, .index = 0}, {}, deadline);
  }
  net::WaitSet* wait_set(int) override { return nullptr; }
};

}  // namespace

const Subject& subject() {
  static const Subject self = {
      .name = "self", .sizes = {1}, .make = [](int) { return std::make_unique<SelfGroup>(); }, .boundaries = {4096}};
  return self;
}

}  // namespace distrun::test
