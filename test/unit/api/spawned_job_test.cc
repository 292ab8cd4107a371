#include "runtime/api/join/spawned_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/store/store_server.h"

namespace distrun::api {
namespace {

// A store that listens at once and begins to answer later.
class LateStore {
 public:
  explicit LateStore(double seconds) : server_(must(net::StoreServer::create(key_, {.job_id = "job", .size = 2}))) {
    thread_ = std::jthread([this, seconds](const std::stop_token& stop) {
      const TimePoint begins = deadline_after(seconds);
      while (Clock::now() < begins && !stop.stop_requested()) ::poll(nullptr, 0, 10);
      while (!stop.stop_requested()) {
        pollfd item{.fd = server_->fd(), .events = POLLIN, .revents = 0};
        ::poll(&item, 1, 10);
        server_->progress(Clock::now());
      }
    });
  }

  [[nodiscard]] net::StoreContact contact() const {
    return {
        .job_id = "job", .key = key_, .addresses = {"127.0.0.1"}, .port = net::parse_address(server_->address())->port};
  }

 private:
  static std::unique_ptr<net::StoreServer> must(Result<std::unique_ptr<net::StoreServer>> made) {
    REQUIRE(made.ok());
    return *std::move(made);
  }

  const net::JobKey key_ = net::JobKey::generate();
  std::unique_ptr<net::StoreServer> server_;
  std::jthread thread_;
};

TEST_CASE("a store that is silent at first is tried again, and that is told once", "[api]") {
  LateStore store(3.5);
  net::World world{.rank = 1, .size = 2};
  std::vector<std::string> lines;
  const Log log("warning", 1, [&](const std::string& line) { lines.push_back(line); });
  const auto job = reach_store(world, store.contact(), deadline_after(40), &log);
  REQUIRE(job.ok());
  CHECK(job->reached == "127.0.0.1");
  CHECK(job->channel->set("key", "value").ok());
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("rank 0 does not answer yet") != std::string::npos);
}

TEST_CASE("a store that stays silent is an error at the deadline, and one that is not there at once", "[api]") {
  std::optional<net::StoreContact> contact;
  {
    LateStore store(60);
    contact = store.contact();
    net::World world{.rank = 1, .size = 2};
    const auto job = reach_store(world, *contact, deadline_after(0.2), nullptr);
    REQUIRE_FALSE(job.ok());
    CHECK(job.status().code() == Errc::kRankLost);
  }
  net::World world{.rank = 1, .size = 2};
  const TimePoint begun = Clock::now();
  const auto job = reach_store(world, *contact, deadline_after(40), nullptr);
  REQUIRE_FALSE(job.ok());
  CHECK(job.status().message().find("rank 0 cannot be reached") != std::string::npos);
  CHECK(Clock::now() - begun < std::chrono::seconds(20));
}

// Two descriptors of the process below: for PMI, and for the news that the exchange has reached its barrier.
constexpr int kPmi = 50;
constexpr int kNews = 51;

// The test below runs this in a child process, which ends while one of its threads is in the exchange.
TEST_CASE("ends in the exchange", "[.]") {
  std::thread([] {
    net::World world{.rank = 1, .size = 2};
    const net::OtherLauncher launcher{
        .rank = 1, .size = 2, .exchange = net::OtherLauncher::Exchange::kPmi, .pmi_fd = kPmi};
    (void)join_spawned_job(world, launcher, deadline_after(40));
  }).detach();
  char news = 0;
  REQUIRE(::read(kNews, &news, 1) == 1);
  std::exit(0);
}

// The commands that the rank sends to a manager that never answers the barrier.
std::string commands_of_rank(int fd, int news) {
  std::string commands;
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    const std::string command = line.substr(4, line.find(' ') - 4);  // for instance "cmd=init ..."
    commands += command + " ";
    line.clear();
    std::string answer;
    if (command == "init") answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (command == "get_my_kvsname") answer = "cmd=my_kvsname kvsname=kvs_7_0\n";
    if (command == "barrier_in") REQUIRE(::write(news, "x", 1) == 1);
    if (!answer.empty()) REQUIRE(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) > 0);
  }
  return commands;
}

TEST_CASE("a process that ends while a thread is in the exchange leaves the exchange to that thread", "[api]") {
  int pmi[2];
  int news[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pmi) == 0);
  REQUIRE(::pipe2(news, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pmi[1], kPmi);
    ::dup2(news[0], kNews);
    ::execl("/proc/self/exe", "spawned_job_test", "ends in the exchange", nullptr);
    ::_exit(9);
  }
  ::close(pmi[1]);
  CHECK(commands_of_rank(pmi[0], news[1]) == "init get_my_kvsname barrier_in ");
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  for (const int fd : {pmi[0], news[0], news[1]}) ::close(fd);
}

}  // namespace
}  // namespace distrun::api
