// Preloaded into every program of a host whose wall clock is wrong. Moves the wall clock by OFFSET_NS, and corrects the
// deadlines of waits on it. Monotonic clocks stay right, as on a real machine. So do the kernel's timestamps of files.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
// Every time on the wall clock is larger. Clocks that count from boot need 31 years to reach it.
#define WALL_CLOCK_SECONDS 1000000000LL

static struct timespec moved(const struct timespec* time, long long by) {
  long long ns = (time->tv_sec * SECOND + time->tv_nsec) + by;
  long long seconds = ns / SECOND - (ns % SECOND < 0);
  return (struct timespec){.tv_sec = seconds, .tv_nsec = ns - seconds * SECOND};
}

// dlsym() may return an old version of the condition variable's functions, which expects another layout.
static void* next(const char* name) {
  void* found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  return found ? found : dlsym(RTLD_NEXT, name);
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  if (syscall(SYS_clock_gettime, clock, out) != 0) return -1;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI) *out = moved(out, OFFSET_NS);
  return 0;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec* out, int base) {
  if (base != TIME_UTC) return 0;
  clock_gettime(CLOCK_REALTIME, out);
  return base;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* time, struct timespec* left) {
  struct timespec until = *time;
  if (clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME)) until = moved(time, -OFFSET_NS);
  return syscall(SYS_clock_nanosleep, clock, flags, &until, left) == 0 ? 0 : errno;
}

int sem_timedwait(sem_t* restrict semaphore, const struct timespec* restrict until) {
  int (*real)(sem_t*, const struct timespec*) = next("sem_timedwait");
  struct timespec right = moved(until, -OFFSET_NS);
  return real(semaphore, &right);
}

int pthread_mutex_timedlock(pthread_mutex_t* restrict mutex, const struct timespec* restrict until) {
  int (*real)(pthread_mutex_t*, const struct timespec*) = next("pthread_mutex_timedlock");
  struct timespec right = moved(until, -OFFSET_NS);
  return real(mutex, &right);
}

// The clock was chosen when the condition variable was created. The size of the time shows which clock it is.
int pthread_cond_timedwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict until) {
  int (*real)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*) = next("pthread_cond_timedwait");
  struct timespec right = until->tv_sec > WALL_CLOCK_SECONDS ? moved(until, -OFFSET_NS) : *until;
  return real(condition, mutex, &right);
}
