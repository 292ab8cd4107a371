// One plug-in file. Loads it, gets its table and checks the table.
#pragma once

#include <memory>
#include <string>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/status.h"

namespace distrun::backend::plugin {

class Library {
 public:
  // `path` is a file named libdistrun_backend_NAME.so. An error says what is wrong and how to fix it.
  static Result<std::shared_ptr<const Library>> load(const std::string& path);
  // Returns "mpi" for ".../libdistrun_backend_mpi.so", and "" if the file's name has another form.
  static std::string name_of_file(const std::string& path);

  // Everyone who calls the table's functions holds a shared_ptr to this object.
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const distrun_backend_table& table() const { return *table_; }
  [[nodiscard]] const distrun_backend_device* device() const;              // null: CPU tensors only
  [[nodiscard]] decltype(distrun_backend_table::try_now) try_now() const;  // may be null

 private:
  explicit Library(std::string path) : path_(std::move(path)) {}
  Status open(const std::string& name);

  std::string path_;
  void* handle_ = nullptr;
  const distrun_backend_table* table_ = nullptr;
};

}  // namespace distrun::backend::plugin
