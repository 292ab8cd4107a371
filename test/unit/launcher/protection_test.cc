#include "launcher/plan/protection.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

struct Asked {
  Options options{};
  Settings settings{.encrypt = true};
};

Asked named() {
  Asked asked;
  asked.options.hosts.list = "a,b";
  return asked;
}

Errc code_of(const Asked& asked, std::size_t hosts = 2) {
  const Status status = check_protection(asked.options, asked.settings, hosts);
  return status.ok() ? Errc::kOk : status.code();
}

}  // namespace

TEST_CASE("protection: what the command shows to be unable is refused on several hosts alone") {
  CHECK(code_of(named()) == Errc::kOk);
  for (const char* backend : {"gloo", "mpi", "nccl", "own", "cpu:gloo", "cpu:tcp,cuda:nccl", "tcp,cuda:mpi"}) {
    CAPTURE(backend);
    Asked asked = named();
    asked.settings.backend = backend;
    CHECK(code_of(asked) == Errc::kInvalidArgument);
    CHECK(code_of(asked, 1) == Errc::kOk);
    // The hosts come from an allocation.
    asked.options.hosts.list.clear();
    CHECK(code_of(asked) == Errc::kUnsupported);
    asked.options.hosts.agents = 2;
    CHECK(code_of(asked) == Errc::kInvalidArgument);
    asked.settings.encrypt = false;
    CHECK(code_of(asked) == Errc::kOk);
    asked.settings.checksum = true;
    CHECK(code_of(asked) == Errc::kInvalidArgument);
  }
  for (const char* backend : {"auto", "tcp", "hierarchical", "shm", "cpu:tcp", "cpu:tcp,cuda:auto"}) {
    CAPTURE(backend);
    Asked asked = named();
    asked.settings.backend = backend;
    CHECK(code_of(asked) == Errc::kOk);
  }
}

TEST_CASE("protection: what goes between hosts by other ways is refused too, with the option that is wrong") {
  Asked tf = named();
  tf.options.frameworks.tf = true;
  CHECK(code_of(tf) == Errc::kInvalidArgument);
  CHECK(check_protection(tf.options, tf.settings, 2).message() ==
        "--encrypt is not possible on 2 hosts: TensorFlow opens connections of its own with --tf.\nLeave out one of "
        "the two options.");
  Asked roles = named();
  roles.options.frameworks.tf_roles = "ps=1,worker=1";
  CHECK(code_of(roles) == Errc::kInvalidArgument);
  Asked between = named();
  between.settings.between_hosts = "gloo";
  CHECK(code_of(between) == Errc::kInvalidArgument);
  CHECK(check_protection(between.options, between.settings, 3).message() ==
        "--encrypt is not possible on 3 hosts: gloo cannot protect tensors between hosts.\nLeave out --between-hosts.");
  Asked checked = between;
  checked.settings.encrypt = false;
  checked.settings.checksum = true;
  CHECK(check_protection(checked.options, checked.settings, 2).message().starts_with("--checksum is not possible"));
}

}  // namespace distrun::launcher
