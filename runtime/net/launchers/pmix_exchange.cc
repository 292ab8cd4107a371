// PMIx, through the library of the launcher, because the protocol between the two is private. Rank 0 publishes its
// text. All ranks then pass a barrier, and after it the others get the text, as MPI does. So no rank asks too early.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/launchers/pmix_abi.h"
#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::net {
namespace {

constexpr const char* kLibrary = "libpmix.so.2";
constexpr const char* kPmixKey = "distrun.meeting";

template <class Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

// Never closed: its threads run until the process ends, and an MPI in this process may use it too.
void* open_library(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    void* library = ::dlopen((folder + "/" + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  return ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
}

Result<pmix::Functions> load(const std::vector<std::string>& folders) {
  void* library = open_library(folders);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Status(Errc::kUnsupported, std::string("the launcher of this rank uses PMIx (PMIX_RANK is set), but ") +
                                          kLibrary + " cannot be loaded: " + (why == nullptr ? "" : why) +
                                          ". Put the folder of the launcher's libpmix.so.2 into LD_LIBRARY_PATH, "
                                          "install libpmix2, or start the program with `distrun -np N program`");
  }
  pmix::Functions out;
  const bool complete = find(library, "PMIx_Init", out.init) && find(library, "PMIx_Finalize", out.finalize) &&
                        find(library, "PMIx_Put", out.put) && find(library, "PMIx_Commit", out.commit) &&
                        find(library, "PMIx_Get_nb", out.get) && find(library, "PMIx_Fence_nb", out.fence) &&
                        find(library, "PMIx_Error_string", out.error_text);
  if (complete) return out;
  return Status(Errc::kUnsupported, std::string(kLibrary) + " lacks functions of PMIx 2. Install a newer libpmix2");
}

// The state of one request. A thread of the library may answer after the caller has given up, so both own it.
struct Answer {
  std::mutex mutex;
  std::condition_variable come;
  std::optional<int> status;
  std::string text;
  std::uint32_t number = 0;
};

using Context = std::shared_ptr<Answer>;

void on_done(int status, void* context) {
  const std::unique_ptr<Context> answer(static_cast<Context*>(context));
  const std::lock_guard lock((*answer)->mutex);
  (*answer)->status = status;
  (*answer)->come.notify_all();
}

void on_value(int status, pmix::Value* value, void* context) {
  const std::unique_ptr<Context> answer(static_cast<Context*>(context));
  const std::lock_guard lock((*answer)->mutex);
  (*answer)->status = status;
  if (status == pmix::kSuccess && value != nullptr) {
    if (value->type == pmix::kString && value->data.string != nullptr) (*answer)->text = value->data.string;
    if (value->type == pmix::kNumber) (*answer)->number = value->data.number;
  }
  (*answer)->come.notify_all();
}

class Pmix final : public SpawnerExchange {
 public:
  explicit Pmix(const pmix::Functions& functions) : call_(functions) {}
  ~Pmix() override {
    // A rank that has called init and ends without finalize makes mpirun end the job.
    if (open_ && !in_forked_child()) call_.finalize(nullptr, 0);
  }
  Status open(int rank);
  Result<int> size(TimePoint deadline) override;
  Result<std::string> share(const std::string& text, TimePoint deadline) override;

 private:
  Status failed(const std::string& what, int status) const {
    return {Errc::kSystem, "PMIx: " + what + ": " + call_.error_text(status) + " (" + std::to_string(status) +
                               "). Start the program with `distrun -np N program`"};
  }
  Result<Context> wait(const std::string& what, TimePoint deadline, const std::function<int(Context*)>& ask) const;
  Result<Context> get(std::uint32_t rank, const char* key, TimePoint deadline) const;
  [[nodiscard]] Status fence(TimePoint deadline) const;
  static pmix::Info limit(TimePoint deadline);

  const pmix::Functions call_;
  pmix::Process self_{};
  bool open_ = false;
};

Status Pmix::open(int rank) {
  if (const int status = call_.init(&self_, nullptr, 0); status != pmix::kSuccess) {
    return failed("this process cannot join the launcher's job", status);
  }
  open_ = true;
  if (self_.rank == static_cast<std::uint32_t>(rank)) return {};
  return {Errc::kInvalidArgument, "this is rank " + std::to_string(self_.rank) + " for PMIx, but rank " +
                                      std::to_string(rank) +
                                      " in the variables: two launchers are mixed. Start the program with `distrun -np "
                                      "N program`"};
}

// `ask` passes its argument to the library as the callback's context, and returns the library's immediate status.
Result<Context> Pmix::wait(const std::string& what, TimePoint deadline, const std::function<int(Context*)>& ask) const {
  auto answer = std::make_shared<Answer>();
  auto context = std::make_unique<Context>(answer);
  const int asked = ask(context.get());
  if (asked == pmix::kDoneAlready) return answer;
  if (asked != pmix::kSuccess) return failed(what, asked);
  [[maybe_unused]] const auto* owned_by_library = context.release();
  std::unique_lock lock(answer->mutex);
  const bool come = answer->come.wait_until(lock, deadline, [&] { return answer->status.has_value(); });
  if (!come || answer->status == pmix::kTimedOut) {
    return Status(Errc::kTimeout,
                  "some ranks did not call init() in time; PMIx does not say which. Every rank that the launcher "
                  "starts must call it. To wait longer, set start_timeout");
  }
  if (*answer->status != pmix::kSuccess) return failed(what, *answer->status);
  return answer;
}

// The deadline in wait() ends the wait. This limit lets the launcher drop the request afterwards.
pmix::Info Pmix::limit(TimePoint deadline) {
  pmix::Info out{};
  std::strncpy(out.key, pmix::kTimeout, sizeof(out.key) - 1);
  out.value.type = pmix::kInteger;
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now());
  out.value.data.integer = static_cast<int>(std::max<long long>(left.count(), 0)) + 1;
  return out;
}

Result<Context> Pmix::get(std::uint32_t rank, const char* key, TimePoint deadline) const {
  pmix::Process of = self_;
  of.rank = rank;
  const pmix::Info info = limit(deadline);
  return wait(std::string("asking for ") + key, deadline,
              [&](Context* context) { return call_.get(&of, key, &info, 1, on_value, context); });
}

// A barrier. After it, every host knows the published values of all ranks.
Status Pmix::fence(TimePoint deadline) const {
  std::array<pmix::Info, 2> infos{limit(deadline), pmix::Info{}};
  std::strncpy(infos[1].key, pmix::kCollect, sizeof(infos[1].key) - 1);
  infos[1].value.type = pmix::kBoolean;
  infos[1].value.data.boolean = true;
  pmix::Process all = self_;
  all.rank = pmix::kWildcard;
  return wait("meeting the other ranks", deadline,
              [&](Context* context) { return call_.fence(&all, 1, infos.data(), infos.size(), on_done, context); })
      .status();
}

Result<int> Pmix::size(TimePoint deadline) {
  const auto answer = get(pmix::kWildcard, pmix::kJobSize, deadline);
  if (!answer.ok()) return answer.status();
  const std::uint32_t size = (*answer)->number;
  if (size > self_.rank) return static_cast<int>(size);
  return Status(Errc::kProtocol,
                "PMIx: the job has " + std::to_string(size) + " ranks, and this is rank " + std::to_string(self_.rank));
}

Result<std::string> Pmix::share(const std::string& text, TimePoint deadline) {
  if (self_.rank == 0) {
    pmix::Value value{.type = pmix::kString, .data = {.string = text.c_str()}};
    if (const int status = call_.put(pmix::kGlobal, kPmixKey, &value); status != pmix::kSuccess) {
      return failed("publishing", status);
    }
    if (const int status = call_.commit(); status != pmix::kSuccess) return failed("publishing", status);
  }
  DISTRUN_RETURN_IF_ERROR(fence(deadline));
  if (self_.rank == 0) return text;
  const auto answer = get(0, kPmixKey, deadline);
  if (!answer.ok()) return answer.status();
  return (*answer)->text;
}

}  // namespace

Result<std::unique_ptr<SpawnerExchange>> open_pmix(int rank, const std::vector<std::string>& folders) {
  const auto functions = load(folders);
  if (!functions.ok()) return functions.status();
  auto pmix = std::make_unique<Pmix>(*functions);
  DISTRUN_RETURN_IF_ERROR(pmix->open(rank));
  return std::unique_ptr<SpawnerExchange>(std::move(pmix));
}

}  // namespace distrun::net
