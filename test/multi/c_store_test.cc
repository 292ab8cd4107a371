// The C API of the job's store, with the number of ranks that the launcher starts.
#include <distrun/distrun.h>

#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <distrun/distrun.hpp>
#include <string>

namespace {
distrun::Session* g_session = nullptr;  // main opens and closes it
}  // namespace

TEST_CASE("all ranks share the job's store") {
  distrun_session* session = g_session->get();
  char value[8] = {};
  int64_t size = 0;
  int64_t sum = 0;
  CHECK(distrun_store_set(nullptr, "k", "v", 1) == DISTRUN_NOT_INITIALIZED);
  CHECK(distrun_store_count(session, nullptr, &sum) == DISTRUN_INVALID_ARGUMENT);
  if (g_session->size() == 1) {
    CHECK(distrun_store_set(session, "k", "v", 1) == DISTRUN_UNSUPPORTED);
    return;
  }
  CHECK(distrun_store_get(session, "nobody", 0.01, value, sizeof(value), &size) == DISTRUN_TIMEOUT);
  if (g_session->rank() == 0) CHECK(distrun_store_set(session, "store/k", "0123456789", 10) == DISTRUN_OK);
  CHECK(distrun_store_get(session, "store/k", 60, value, sizeof(value), &size) == DISTRUN_OK);
  CHECK(size == 10);
  CHECK(std::string(value, sizeof(value)) == "01234567");
  CHECK(distrun_store_add(session, "store/n", 2, &sum) == DISTRUN_OK);
  g_session->barrier();
  CHECK(distrun_store_add(session, "store/n", 0, &sum) == DISTRUN_OK);
  CHECK(sum == 2 * g_session->size());
  CHECK(distrun_store_count(session, "store/", &sum) == DISTRUN_OK);
  CHECK(sum == 2);
  const std::string own = "own/" + std::to_string(g_session->rank());
  CHECK(distrun_store_swap(session, own.c_str(), nullptr, 0, "v", 1, value, sizeof(value), &size) == DISTRUN_OK);
  CHECK(size == -1);
  CHECK(distrun_store_swap(session, own.c_str(), "v", 1, nullptr, 0, value, sizeof(value), &size) == DISTRUN_OK);
  CHECK((size == 1 && value[0] == 'v'));
  CHECK(distrun_store_get(session, own.c_str(), 0, value, sizeof(value), &size) == DISTRUN_TIMEOUT);
  CHECK(distrun_store_set(session, std::string(2000, 'k').c_str(), "v", 1) == DISTRUN_INVALID_ARGUMENT);
  g_session->barrier();
}

int main(int argc, char** argv) {
  distrun::Session session;
  g_session = &session;
  const int failures = Catch::Session().run(argc, argv);
  session.shutdown();
  return failures;
}
