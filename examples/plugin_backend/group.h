// One group of the demo backend. Every operation is a few values in distrun's store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "distrun/distrun_backend.h"

namespace demo {

class Group {
 public:
  Group(const distrun_backend_group_spec& spec, const distrun_backend_host* host,
        distrun_backend_host_group* host_group)
      : index_(static_cast<std::size_t>(spec.index)),
        size_(static_cast<std::size_t>(spec.num_members)),
        store_(spec.store),
        host_(host),
        host_group_(host_group) {}

  // Runs the whole operation and completes the token. Called on the group's own thread.
  void run(const distrun_backend_operation& operation, std::uint64_t token);
  void abort(std::int32_t code, const char* cause);  // any thread

 private:
  using Bytes = std::vector<char>;

  void allreduce(const distrun_backend_operation& operation);
  void allgather(const distrun_backend_operation& operation);
  void broadcast(const distrun_backend_operation& operation);

  void publish(const void* data, std::size_t size);
  Bytes fetch(std::size_t member, std::size_t size);
  void forget_what_all_have_read();
  void throw_if_aborted();
  std::string key(std::size_t member, std::size_t piece) const;

  const std::size_t index_, size_;
  const distrun_backend_store* store_;
  const distrun_backend_host* host_;
  distrun_backend_host_group* host_group_;

  std::uint64_t sequence_ = 0;           // operations that all members have started, including this one
  std::vector<std::string> published_;   // this member's keys that hold data
  std::vector<std::string> superseded_;  // keys of earlier operations

  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::int32_t code_ = 0;  // guarded by mutex_, as is cause_
  std::string cause_;
};

}  // namespace demo
