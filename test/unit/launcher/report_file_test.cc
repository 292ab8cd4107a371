// --report: the contents of the file, and how it is written.
#include "launcher/report/report_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace distrun::launcher {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    char name[] = "/tmp/distrun-test-report-XXXXXX";
    path = ::mkdtemp(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("the report of a good job has no cause") {
  CHECK(
      report_json(std::nullopt, 0) ==
      "{\"format\": 1, \"exit_code\": 0, \"cause\": null, \"rank\": null, \"host\": null, \"hosts\": [], \"pid\": "
      "null, \"tensor\": "
      "null, \"place\": null, \"cure\": null, \"last_lines\": [], \"followers\": [], \"waits\": [], \"stacks\": []}\n");
}

TEST_CASE("the report of a broken network has both ends as values") {
  FailureReport failure{.host = "h1", .exit_code = 75};
  failure.cause = {.kind = CauseKind::kNetworkBroken,
                   .link = BrokenLink{.from = {.rank = 1, .host = "h2", .number = 1, .address = "10.0.0.2"},
                                      .to = {.host = "h1"},
                                      .end = LinkEnd::kLargeSilent,
                                      .silent = 30,
                                      .host = "h1",
                                      .others = {"h2", "h3"},
                                      .why = "no answer"}};
  const std::string json = report_json(failure, 75);
  CHECK(json.find("\"kind\": \"network_broken\"") != std::string::npos);
  CHECK(
      json.find("\"link\": {\"end\": \"large_silent\", \"from\": {\"rank\": 1, \"host\": \"h2\", \"address\": "
                "\"10.0.0.2\"}, \"to\": {\"rank\": null, \"host\": \"h1\", \"address\": null}, \"silent_seconds\": 30, "
                "\"host\": \"h1\", \"others\": [\"h2\", \"h3\"], \"why\": \"no answer\"}") != std::string::npos);
  const Cause stopped{.kind = CauseKind::kStalled, .state = 'T', .text = "no answer"};
  CHECK(report_json(FailureReport{.rank = 4, .host = "h", .cause = stopped}, 1).find("\"process_state\": \"T\"") !=
        std::string::npos);
  const Cause raised{.kind = CauseKind::kStalled, .exception = "ValueError: bad (train.py:3)", .text = "no answer"};
  const std::string waited = report_json(FailureReport{.rank = 4, .host = "h", .cause = raised}, 1);
  CHECK(waited.find("\"exception\": \"ValueError: bad (train.py:3)\"") != std::string::npos);
  CHECK(waited.find("\"rank\": 4") != std::string::npos);
}

TEST_CASE("the report of a failure has every field of it") {
  FailureReport failure{.rank = 3, .host = "node2", .pid = 42, .cause = cause_of_end(SIGKILL, 0, true)};
  failure.tensor = "layer.1";
  failure.place = {.file = "train.py", .line = 88};
  failure.last_lines = {"say \"hi\"\n"};
  failure.followers = {{.rank = 0, .cause = cause_of_end(0, 1), .last_line = "RankLost"},
                       {.rank = 1, .cause = cause_of_end(SIGTERM, 0), .ended_by_us = true}};
  CHECK(
      report_json(failure, 137) ==
      "{\"format\": 1, \"exit_code\": 137, \"cause\": {\"kind\": \"killed\", \"text\": \"killed by signal 9 (SIGKILL), "
      "because the memory of its machine or container was used up (the kernel's OOM killer)\", \"exit_code\": null, "
      "\"signal\": 9, \"signal_name\": \"SIGKILL\", \"out_of_memory\": true, \"by_other\": false, \"exception\": null, "
      "\"process_state\": null, \"link\": null}, \"rank\": 3, \"host\": \"node2\", \"hosts\": [], \"pid\": 42, "
      "\"tensor\": \"layer.1\", "
      "\"place\": {\"file\": "
      "\"train.py\", \"line\": 88}, "
      "\"cure\": \"use less memory for each rank, or fewer ranks on each host (-H HOST:SLOTS)\", \"last_lines\": "
      "[\"say \\\"hi\\\"\\u000a\"], \"followers\": [{\"rank\": 0, \"cause\": {\"kind\": \"exited\", \"text\": "
      "\"exited with code 1\", \"exit_code\": 1, \"signal\": null, \"signal_name\": null, \"out_of_memory\": false, "
      "\"by_other\": false, \"exception\": null, \"process_state\": null, \"link\": null}, \"last_line\": "
      "\"RankLost\", "
      "\"ended_by_distrun\": false}, {\"rank\": 1, \"cause\": "
      "{\"kind\": \"killed\", \"text\": \"killed by signal 15 (SIGTERM)\", \"exit_code\": null, \"signal\": 15, "
      "\"signal_name\": \"SIGTERM\", \"out_of_memory\": false, \"by_other\": false, \"exception\": null, "
      "\"process_state\": null, \"link\": null}, \"last_line\": null, "
      "\"ended_by_distrun\": true}], \"waits\": [], \"stacks\": []}\n");
}

TEST_CASE("a report takes the place of an older one whole, and leaves nothing beside it") {
  const Folder folder;
  const fs::path file = folder.path / "report.json";
  REQUIRE(write_report(file, "a longer old one").ok());
  REQUIRE(write_report(file, "new").ok());
  CHECK(content_of(file) == "new");
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a report that cannot be written says why, and leaves nothing behind") {
  const Folder folder;
  const Status missing = write_report(folder.path / "none" / "report.json", "x");
  CHECK_FALSE(missing.ok());
  CHECK(missing.message().find("No such file") != std::string::npos);
  fs::create_directory(folder.path / "in the way");
  CHECK_FALSE(write_report(folder.path / "in the way", "x").ok());
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("bytes that are no text are replaced, as not every reader of JSON takes them") {
  FailureReport report{.rank = 1, .last_lines = {"bad \377\376 \303\244"}};
  CHECK(report_json(report, 1).find("[\"bad \ufffd\ufffd \u00e4\"]") != std::string::npos);
}

TEST_CASE("a path that cannot be a report is refused before the job starts") {
  const Folder folder;
  CHECK(check_report_path("report.json").ok());
  CHECK(check_report_path(folder.path / "report.json").ok());
  CHECK(check_report_path(folder.path).message() ==
        "--report " + folder.path.string() + ": it is a folder; name a file in it");
  const Status missing = check_report_path(folder.path / "none" / "report.json");
  CHECK(missing.code() == Errc::kInvalidArgument);
  CHECK(missing.message().find("none: No such file or directory") != std::string::npos);
  REQUIRE(::mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  CHECK(check_report_path(folder.path / "pipe").message().find("a device, a pipe or a socket") != std::string::npos);
  CHECK(check_report_path("/dev/null").code() == Errc::kInvalidArgument);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);  // the failed tries leave nothing
  REQUIRE(write_report(folder.path / "file", "x").ok());
  CHECK(check_report_path(folder.path / "file" / "report.json").code() == Errc::kInvalidArgument);
}

TEST_CASE("the report of an earlier job goes, and a link stays one") {
  const Folder folder;
  REQUIRE(write_report(folder.path / "file", "old").ok());
  fs::create_symlink(folder.path / "file", folder.path / "link");
  CHECK(check_report_path(folder.path / "link").ok());
  CHECK(content_of(folder.path / "file") == "old");
  remove_report(folder.path / "link");
  CHECK_FALSE(fs::exists(folder.path / "file"));
  REQUIRE(write_report(folder.path / "link", "new").ok());
  CHECK(fs::is_symlink(folder.path / "link"));
  CHECK(content_of(folder.path / "file") == "new");
  remove_report(folder.path / "none");
}

}  // namespace
}  // namespace distrun::launcher
