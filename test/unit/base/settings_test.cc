#include "runtime/base/settings.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <limits>

#include "runtime/base/setting_values.h"

namespace distrun {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("sizes are read with and without units and shown with the largest one") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("1048576") == 1ULL << 20);
  CHECK(parse_bytes("64MiB") == 64ULL << 20);
  CHECK(parse_bytes("64mb") == 64ULL << 20);
  CHECK(parse_bytes("128k") == 128ULL << 10);
  CHECK(parse_bytes("3G") == 3ULL << 30);
  CHECK(parse_bytes("100B") == 100);
  for (const char* bad : {"", "k", "-1", "1.5M", "1 M", "12x", "0x10", "99999999999999999999", "99999999999T"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_bytes(bad).has_value());
  }
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{1536},
                                    std::uint64_t{128} << 20, std::numeric_limits<std::uint64_t>::max()}) {
    CHECK(parse_bytes(show_bytes(value)) == value);
  }
  CHECK(show_bytes(128ULL << 20) == "128MiB");
}

TEST_CASE("times are read with and without units") {
  CHECK(parse_seconds("10") == 10.0);
  CHECK(parse_seconds("10s") == 10.0);
  CHECK(parse_seconds("500ms") == 0.5);
  CHECK(parse_seconds("0.25") == 0.25);
  CHECK(parse_seconds("2min") == 120.0);
  CHECK(parse_seconds("1h") == 3600.0);
  for (const char* bad : {"", "s", "ten", "1d", "nan", "inf", "1e999", "10 s", "5ss"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_seconds(bad).has_value());
  }
  CHECK(show_seconds(10) == "10s");
  CHECK(show_seconds(0) == "0");
  CHECK(parse_seconds(show_seconds(0.1)) == 0.1);
}

TEST_CASE("every default is allowed by its own row and survives being typed") {
  Settings settings;
  for (const SettingRow& row : setting_rows()) {
    CAPTURE(row.name);
    CHECK_FALSE(row.brief.empty());
    CHECK_FALSE(row.brief.ends_with('.'));
    CHECK_FALSE(row.more.empty());
    CHECK_FALSE(row.more.substr(row.more.rfind('\n') + 1).starts_with("- "));  // a list follows on the page
    CHECK(row.value.empty() == (row.type == "flag"));
    CHECK_FALSE(row.allowed.empty());
    CHECK(value_of(settings, row.name) == row.default_value);
    CHECK(set_by_name(settings, row.name, row.default_value, "test").ok());
    CHECK(value_of(settings, row.name) == row.default_value);
  }
}

TEST_CASE("the environment overrides the default and the caller overrides the environment") {
  const Environment environment = {{"DISTRUN_FUSION_THRESHOLD", "64MiB"},
                                   {"DISTRUN_LOG_LEVEL", "debug"},
                                   {"DISTRUN_TIMELINE", ""},
                                   {"PATH", "/bin"}};
  const auto report = read_settings(environment, {"log-level=error", "timeline=t.json"});
  REQUIRE(report.ok());
  CHECK(report->settings.fusion_threshold == 64ULL << 20);
  CHECK(report->settings.log_level == "error");
  CHECK(report->settings.timeline == "t.json");
  CHECK(report->settings.backend == "auto");
  CHECK(report->warnings.empty());
  const std::string line = start_up_line(*report);
  CHECK(contains(line, "backend=auto (default)"));
  CHECK(contains(line, "fusion_threshold=64MiB (env)"));
  CHECK(contains(line, "log_level=error (option)"));
}

TEST_CASE("levels of the log are taken as Horovod and Python write them too") {
  const auto level = [](const char* word) {
    const auto report = read_settings({{"DISTRUN_LOG_LEVEL", word}}, {});
    return report.ok() ? report->settings.log_level : report.status().message();
  };
  CHECK(level("INFO") == "info");
  CHECK(level("Warn") == "warning");
  CHECK(level("WARNING") == "warning");
  CHECK(level("fatal") == "error");
  CHECK(contains(level("loud"), "one of trace, debug, info, warning, error, off"));
}

TEST_CASE("a bad value names the variable, the value and what is allowed") {
  const auto report = read_settings({{"DISTRUN_FUSION_THRESHOLD", "lots"}}, {});
  REQUIRE_FALSE(report.ok());
  CHECK(report.status().code() == Errc::kInvalidArgument);
  for (const char* part : {"DISTRUN_FUSION_THRESHOLD", "\"lots\"", "0 to 4GiB", "4MiB"}) {
    CAPTURE(part, report.status().message());
    CHECK(contains(report.status().message(), part));
  }
  CHECK(contains(read_settings({{"DISTRUN_CONTROL", "udp"}}, {}).status().message(), "auto, shm, tcp"));
  CHECK_FALSE(read_settings({{"DISTRUN_STALL_WARNING_TIME", "-1"}}, {}).ok());
  CHECK_FALSE(read_settings({{"DISTRUN_CACHE_CAPACITY", "1024k"}}, {}).ok());
  CHECK_FALSE(read_settings({}, {"backend"}).ok());
  CHECK(contains(read_settings({}, {"bakend=tcp"}).status().message(), "did you mean backend?"));
}

TEST_CASE("the backend setting takes auto, a name, or one name per device") {
  for (const char* good : {"auto", "tcp", "my_plugin2", "cpu:tcp", "cpu:mpi,cuda:nccl"}) {
    CAPTURE(good);
    CHECK(read_settings({{"DISTRUN_BACKEND", good}}, {}).ok());
  }
  for (const char* bad : {"tcp,shm", "cpu:", "gpu:nccl", "cpu:tcp,", "cpu:tcp,cpu:shm", "TCP", "a b", "cpu:tcp,shm"}) {
    CAPTURE(bad);
    CHECK_FALSE(read_settings({{"DISTRUN_BACKEND", bad}}, {}).ok());
  }
}

TEST_CASE("an unknown DISTRUN_ variable is a warning with the nearest name") {
  const auto report = read_settings(
      {{"DISTRUN_FUSON_THRESHOLD", "1"}, {"DISTRUN_ZZZ", "1"}, {"DISTRUN_RANK", "0"}, {"DISTRUN_KEY_FD", "3"}}, {});
  REQUIRE(report.ok());
  REQUIRE(report->warnings.size() == 2);
  CHECK(contains(report->warnings[0], "DISTRUN_FUSON_THRESHOLD"));
  CHECK(contains(report->warnings[0], "did you mean DISTRUN_FUSION_THRESHOLD?"));
  CHECK(contains(report->warnings[1], "DISTRUN_ZZZ"));
  CHECK(contains(report->warnings[1], "distrun help options"));
  CHECK(report->unknown == std::vector<std::string>{"DISTRUN_FUSON_THRESHOLD", "DISTRUN_ZZZ"});
}

TEST_CASE("of what the launcher has warned nobody else does") {
  const auto report =
      read_settings({{"DISTRUN_ONE", "1"}, {"DISTRUN_TWO", "1"}, {"DISTRUN_WARNED", "DISTRUN_ONE DISTRUN_TEN"}}, {});
  REQUIRE(report.ok());
  CHECK(report->unknown == std::vector<std::string>{"DISTRUN_TWO"});
}

TEST_CASE("an option of init that the launcher goes by too is a warning where it does not hear of it") {
  const auto warnings = [](const Environment& environment) {
    return read_settings(environment, {"host-timeout=60", "preempt_signal=USR1", "timeline=t.json"})->warnings;
  };
  const Environment rank = {{"DISTRUN_RANK", "0"}, {"DISTRUN_ADDRESS", "10.0.0.1"}};
  const auto both = warnings(rank);
  REQUIRE(both.size() == 2);
  CHECK(contains(both[0], "the launcher does not see the option host_timeout=60s of init, and uses 30s"));
  CHECK(contains(both[0], "type distrun --host-timeout 60s"));
  CHECK(contains(both[1], "type distrun --preempt-signal USR1"));
  CHECK(warnings({{"DISTRUN_RANK", "0"}}).size() == 1);  // no other host
  Environment known = rank;
  known["DISTRUN_PREEMPT_SIGNAL"] = "USR1";
  known["DISTRUN_HOST_TIMEOUT"] = "60";
  CHECK(warnings(known).empty());
  CHECK(warnings({}).empty());  // ranks of another launcher
}

TEST_CASE("process_environment sees what is set, values with = included") {
  REQUIRE(setenv("DISTRUN_TEST_ONLY", "a=b", 1) == 0);
  CHECK(process_environment().at("DISTRUN_TEST_ONLY") == "a=b");
  REQUIRE(unsetenv("DISTRUN_TEST_ONLY") == 0);
  CHECK_FALSE(process_environment().contains("DISTRUN_TEST_ONLY"));
}

TEST_CASE("a path that no shell has expanded may begin with ~") {
  const Environment home = {{"HOME", "/home/me"}};
  CHECK(from_home("~", home) == "/home/me");
  CHECK(from_home("~/a/~b", home) == "/home/me/a/~b");
  CHECK(from_home("./~/a", home) == "./~/a");
  CHECK(from_home("/a~/b", home) == "/a~/b");
  CHECK(from_home("", home).empty());
  CHECK(from_home("~root/a", home) == "/root/a");
  CHECK(from_home("~no-such-account/a", home) == "~no-such-account/a");
  const std::string account = from_home("~/a", {});
  CHECK(account.ends_with("/a"));
  CHECK(account.starts_with("/"));
  CHECK(from_home("~/a", {{"HOME", ""}}) == account);
  CHECK(each_from_home("~/a:/b:~/c", home) == "/home/me/a:/b:/home/me/c");
  CHECK(each_from_home("", home).empty());
}

TEST_CASE("a path in the home of an account that does not exist is a fault") {
  const Environment home = {{"HOME", "/home/me"}};
  for (const char* path : {"~", "~/a", "~root/a", "./~gone", "/~gone", "", "a~gone"}) {
    CHECK(fault_of_home(path, home).empty());
  }
  CHECK(fault_of_home("~no-such-account/a", home) ==
        "no account on this machine has the home ~no-such-account. For a file of that name, write ./~no-such-account");
  CHECK_FALSE(fault_of_home("~no-such-account", home).empty());
  const auto refused = [&home](const std::string& name, const std::string& value) {
    Environment set = home;
    set[name] = value;
    const auto report = read_settings(set, {});
    REQUIRE_FALSE(report.ok());
    return report.status().message();
  };
  CHECK(refused("DISTRUN_TIMELINE", "~no-such-account/t").find("timeline ~no-such-account/t: no account") !=
        std::string::npos);
  CHECK(refused("DISTRUN_PLUGINS", "/a.so:~no-such-account/b.so").find("no account") != std::string::npos);
}

TEST_CASE("settings that are paths are in the home of the process that reads them, however they were given") {
  const Environment home = {
      {"HOME", "/home/me"}, {"DISTRUN_TIMELINE", "~/t.json"}, {"DISTRUN_PLUGINS", "~/a.so:/b.so"}};
  const auto report = read_settings(home, {});
  REQUIRE(report.ok());
  CHECK(report->settings.timeline == "/home/me/t.json");
  CHECK(report->settings.plugins == "/home/me/a.so:/b.so");
  CHECK(read_settings({{"HOME", "/h"}}, {"timeline=~/t"})->settings.timeline == "/h/t");
}

TEST_CASE("flags are words for yes and no") {
  const auto check = flag();
  CHECK(check.parse("On") == true);
  CHECK(check.parse("0") == false);
  CHECK_FALSE(check.parse("maybe").has_value());
}

TEST_CASE("the page has every row with its three names") {
  const std::string page = settings_page();
  CHECK(contains(page, "## fusion_threshold"));
  CHECK(contains(page, "`--fusion-threshold`"));
  CHECK(contains(page, "`DISTRUN_FUSION_THRESHOLD`"));
  CHECK(contains(page, "`128MiB`"));
}

TEST_CASE("the key file is the user's: known, and not listed among what the launcher sets") {
  CHECK(read_settings({{"DISTRUN_KEY_FILE", "/key"}}, {})->unknown.empty());
  const std::string page = settings_page();
  CHECK_FALSE(contains(page, "- `DISTRUN_KEY_FILE`"));
  CHECK(contains(page, "## DISTRUN_KEY_FILE\n\nThis variable is yours"));
}

}  // namespace
}  // namespace distrun
