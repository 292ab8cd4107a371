// Clang's thread-safety annotations and a mutex that carries them. g++ ignores the attributes.
#pragma once

#include <mutex>

#if defined(__clang__)
#define DISTRUN_TSA(x) __attribute__((x))
#else
#define DISTRUN_TSA(x)
#endif

#define DISTRUN_GUARDED_BY(x) DISTRUN_TSA(guarded_by(x))
#define DISTRUN_REQUIRES(...) DISTRUN_TSA(requires_capability(__VA_ARGS__))
#define DISTRUN_EXCLUDES(...) DISTRUN_TSA(locks_excluded(__VA_ARGS__))

namespace distrun {

class DISTRUN_TSA(capability("mutex")) Mutex {
 public:
  void lock() DISTRUN_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() DISTRUN_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() DISTRUN_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class DISTRUN_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DISTRUN_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() DISTRUN_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace distrun
