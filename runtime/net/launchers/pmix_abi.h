// The part of the PMIx standard's C interface that distrun calls in a library opened at run time. The layouts have not
// changed since PMIx 2. The union of a value may grow; distrun reads only values that the library made, and writes only
// small ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distrun::net::pmix {

struct Process {
  char name_space[256];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    bool boolean;
    const char* string;
    std::uint32_t number;
    int integer;
    void* largest[3];
  } data;
};

struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

using DoneFunction = void (*)(int status, void* context);
using ValueFunction = void (*)(int status, Value* value, void* context);

struct Functions {
  int (*init)(Process* self, Info* infos, std::size_t count) = nullptr;
  int (*finalize)(const Info* infos, std::size_t count) = nullptr;
  int (*put)(std::uint8_t scope, const char* key, Value* value) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process* processes, std::size_t processes_count, const Info* infos, std::size_t count,
               DoneFunction done, void* context) = nullptr;
  int (*get)(const Process* of, const char* key, const Info* infos, std::size_t count, ValueFunction done,
             void* context) = nullptr;
  const char* (*error_text)(int status) = nullptr;
};

inline constexpr std::uint16_t kBoolean = 1;
inline constexpr std::uint16_t kString = 3;
inline constexpr std::uint16_t kInteger = 6;
inline constexpr std::uint16_t kNumber = 14;
inline constexpr std::uint8_t kGlobal = 3;  // visible to ranks of this host and of others
inline constexpr std::uint32_t kWildcard = 0xfffffffe;
inline constexpr int kSuccess = 0;
inline constexpr int kTimedOut = -24;
inline constexpr int kDoneAlready = -157;  // the callback will not be called
inline constexpr const char* kJobSize = "pmix.job.size";
inline constexpr const char* kCollect = "pmix.collect";
inline constexpr const char* kTimeout = "pmix.timeout";

}  // namespace distrun::net::pmix
