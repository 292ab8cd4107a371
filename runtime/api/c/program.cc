// The C API: how a front end reports where its program is, for reports of a hang.
#include <cstdint>
#include <string>
#include <utility>

#include "distrun/distrun.h"
#include "runtime/api/c/error.h"
#include "runtime/api/c/handles.h"
#include "runtime/net/store/program_state.h"

using distrun::Errc;
using distrun::Status;
using distrun::api::guarded;

// Exists during one call of a describer.
struct distrun_view {
  distrun::net::ProgramState& state;
};

namespace {

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

}  // namespace

extern "C" {

int32_t distrun_describe_by(distrun_session* session, distrun_describer describer) {
  return guarded([&]() -> Status {
    if (session == nullptr) return {Errc::kNotInitialized, "distrun is not initialized. Call init first"};
    distrun::engine::ProgramProbe::Describe describe;
    if (describer != nullptr) {
      describe = [describer](distrun::net::ProgramState& state) {
        distrun_view view{.state = state};
        describer(&view);
      };
    }
    session->session->engine().describe_by(std::move(describe));
    return {};
  });
}

void distrun_view_wait(distrun_view* view, int32_t limited) {
  using distrun::net::MainWait;
  view->state.wait = limited != 0 ? MainWait::kLimited : MainWait::kForever;
}

void distrun_view_exception(distrun_view* view, const char* text, const char* file, int32_t line) {
  view->state.exception = text_or_empty(text);
  view->state.raised_at = {.file = text_or_empty(file), .line = line};
}

void distrun_view_thread(distrun_view* view, const char* name) {
  auto& threads = view->state.threads;
  if (threads.size() < distrun::net::kMaxThreads) threads.push_back({.name = text_or_empty(name), .frames = {}});
}

void distrun_view_frame(distrun_view* view, const char* file, int32_t line, const char* function) {
  auto& threads = view->state.threads;
  if (threads.empty() || threads.back().frames.size() >= distrun::net::kMaxFrames) return;
  threads.back().frames.push_back(
      {.place = {.file = text_or_empty(file), .line = line}, .function = text_or_empty(function)});
}

}  // extern "C"
