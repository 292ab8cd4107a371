// The state of a rank's program at one moment, and the waits between ranks: the facts for the report of a hang. Values
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace distrun::net {

// A line of the program, as the rank names it. An empty file means unknown.
struct CodePlace {
  std::string file;
  int line = 0;
};

struct CodeFrame {
  CodePlace place;
  std::string function;
};

struct ThreadStack {
  std::string name;               // empty: the main thread
  std::vector<CodeFrame> frames;  // innermost frame first
};

// Whether the main thread is inside a wait of distrun.
enum class MainWait : std::uint8_t {
  kOutside = 0,
  kLimited = 1,  // the wait ends by itself after some time
  kForever = 2,
};
inline constexpr int kMainWaits = 3;

struct ProgramState {
  enum class View : std::uint8_t {
    kNone = 0,  // no front end can see the program: it is in C++
    kSeen = 1,
    kBusy = 2,  // the front end did not answer: C code holds Python's GIL
  };
  static constexpr int kViews = 3;
  View view = View::kNone;
  MainWait wait = MainWait::kOutside;
  std::string operation;  // the longest one in flight here: "allreduce 'x'"; empty: none
  double waited = 0;      // seconds, of that operation
  std::string exception;  // which the main thread handles: "ValueError: bad"; empty: none
  CodePlace raised_at;
  std::vector<ThreadStack> threads;  // the main thread first
  std::string kernel;                // the kernel function where the main thread waits; empty: unknown, or it runs
};

// Limits. Entries beyond them are left out.
inline constexpr std::size_t kMaxWaits = 64;
inline constexpr std::size_t kMaxThreads = 16;
inline constexpr std::size_t kMaxFrames = 64;

// Ranks that wait for other ranks in one or several operations.
struct RankWait {
  std::string what;  // "allreduce 'a' and 3 more"
  std::vector<int> waiting;
  std::vector<int> missing;
};

}  // namespace distrun::net
