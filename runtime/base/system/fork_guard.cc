#include "runtime/base/system/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "runtime/base/annotations.h"

namespace distrun {
namespace {

// Never destroyed: a process can fork after main has returned.
struct Registry {
  Mutex mutex;  // held during fork, so that the child finds the set consistent
  std::set<int> fds DISTRUN_GUARDED_BY(mutex);
  // A page that the kernel replaces with zeros in a child (MADV_WIPEONFORK): it holds 1 here and 0 in a child. Null
  // before arm_fork_guard(), and if the kernel refuses the advice.
  std::atomic<const int*> page = nullptr;
  // Set by the fork handlers, for kernels that refuse such a page. A bare clone() does not run these handlers.
  std::atomic<bool> forked = false;
};

Registry& registry() {
  static Registry* const instance = std::make_unique<Registry>().release();
  return *instance;
}

// One of these three functions locks the mutex and another one unlocks it. The thread-safety analysis cannot follow
// that.
void before_fork() DISTRUN_TSA(no_thread_safety_analysis) { registry().mutex.lock(); }
void after_fork_in_parent() DISTRUN_TSA(no_thread_safety_analysis) { registry().mutex.unlock(); }
void after_fork_in_child() DISTRUN_TSA(no_thread_safety_analysis) {
  Registry& all = registry();
  all.forked.store(true, std::memory_order_relaxed);
  for (const int fd : all.fds) ::close(fd);
  all.fds.clear();
  all.mutex.unlock();
}

const int* make_page(Advise advise) {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (advise(memory, size, MADV_WIPEONFORK) != 0) {
    ::munmap(memory, size);
    return nullptr;
  }
  auto* const alive = static_cast<int*>(memory);
  *alive = 1;
  return alive;
}

}  // namespace

bool in_forked_child() {
  if (registry().forked.load(std::memory_order_relaxed)) return true;
  const int* const page = registry().page.load(std::memory_order_acquire);
  return page != nullptr && *page == 0;
}

void arm_fork_guard(Advise advise) {
  static std::once_flag armed;
  std::call_once(armed, [advise] {
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    registry().page.store(make_page(advise == nullptr ? ::madvise : advise), std::memory_order_release);
  });
}

void close_in_child(int fd) {
  arm_fork_guard();
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.fds.insert(fd);
}

void forget_in_child(int fd) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.fds.erase(fd);
}

}  // namespace distrun
