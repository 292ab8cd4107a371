#include "runtime/engine/monitoring/program_probe.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/thread.h"

namespace distrun::engine {
namespace {

// If its Python threads run, a program answers within a few milliseconds.
constexpr std::chrono::milliseconds kFrontEndLimit{1000};

std::string read_small(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  const ssize_t n = fd.valid() ? ::read(fd.get(), text.data(), text.size()) : 0;
  return n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : std::string();
}

}  // namespace

std::string kernel_place() {
  const std::string text = read_small("/proc/self/task/" + std::to_string(::getpid()) + "/wchan");
  return text == "0" ? std::string() : text;
}

// Shared by the thread that asks the front end and the thread that waits for the answer. The last one frees it.
struct ProgramProbe::Question {
  explicit Question(std::shared_ptr<const Describe> by) : describe(std::move(by)) {}

  const std::shared_ptr<const Describe> describe;
  Mutex mutex;
  std::condition_variable_any answered;
  net::ProgramState state DISTRUN_GUARDED_BY(mutex);
  bool done DISTRUN_GUARDED_BY(mutex) = false;

  static void* run(void* given);
  static bool start(const std::shared_ptr<Question>& question);
  bool wait();
  bool is_done() {
    const MutexLock lock(mutex);
    return done;
  }
};

// Not a std::thread: an interpreter that shuts down ends the thread inside the call. A std::thread would treat that as
// an uncaught exception.
void* ProgramProbe::Question::run(void* given) {
  const std::unique_ptr<std::shared_ptr<Question>> held(static_cast<std::shared_ptr<Question>*>(given));
  Question& question = **held;
  net::ProgramState seen;
  (*question.describe)(seen);
  const MutexLock lock(question.mutex);
  question.state = std::move(seen);
  question.done = true;
  question.answered.notify_all();
  return nullptr;
}

bool ProgramProbe::Question::start(const std::shared_ptr<Question>& question) {
  const SignalsBlocked blocked;
  auto held = std::make_unique<std::shared_ptr<Question>>(question);
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, &Question::run, held.get()) != 0) return false;
  [[maybe_unused]] auto* const owned_by_thread = held.release();
  ::pthread_detach(thread);
  return true;
}

bool ProgramProbe::Question::wait() {
  const MutexLock lock(mutex);
  const auto until = std::chrono::steady_clock::now() + kFrontEndLimit;
  while (!done) {
    if (answered.wait_until(mutex, until) == std::cv_status::timeout) break;
  }
  return done;
}

ProgramProbe::~ProgramProbe() = default;

void ProgramProbe::describe_by(Describe describe) {
  const MutexLock lock(mutex_);
  describe_ = describe ? std::make_shared<const Describe>(std::move(describe)) : nullptr;
}

// Adds the front end's answer to what is known.
net::ProgramState ProgramProbe::answer(net::ProgramState known, const std::shared_ptr<Question>& question) {
  if (!Question::start(question) || !question->wait()) {
    known.view = net::ProgramState::View::kBusy;
    known.wait = net::MainWait::kOutside;
    return known;
  }
  const MutexLock lock(question->mutex);
  known.view = net::ProgramState::View::kSeen;
  known.wait = question->state.wait;
  known.exception = std::move(question->state.exception);
  known.raised_at = std::move(question->state.raised_at);
  known.threads = std::move(question->state.threads);
  return known;
}

void ProgramProbe::ask(net::ProgramState known, Done done) {
  const MutexLock lock(mutex_);
  // Joins old threads, which have normally ended. More than this number are hardly ever open at a time.
  constexpr std::size_t kMostKept = 4;
  while (answering_.size() >= kMostKept) answering_.pop_front();
  // While the front end has not answered a question, no other is started.
  const bool stuck = open_ && !open_->is_done();
  if (describe_ && !stuck) open_ = std::make_shared<Question>(describe_);
  auto work = [known = std::move(known), done = std::move(done), question = open_, asks = describe_ != nullptr,
               stuck]() mutable {
    known.kernel = kernel_place();
    if (stuck) {
      known.view = net::ProgramState::View::kBusy;
      known.wait = net::MainWait::kOutside;
    }
    done(asks && !stuck ? answer(std::move(known), question) : std::move(known));
  };
  auto thread = named_thread("distrun-probe", std::move(work));
  if (thread.ok()) answering_.push_back(*std::move(thread));
}

}  // namespace distrun::engine
