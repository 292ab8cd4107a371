// One plug-in file: loaded, checked and asked for its table.
#pragma once

#include <memory>
#include <string>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/status.h"

namespace distrun::backend::plugin {

class Library {
 public:
  // `path` is a file named libdistrun_backend_NAME.so. An error says what is wrong with it and what to do.
  static Result<std::shared_ptr<const Library>> load(const std::string& path);
  // "mpi" of ".../libdistrun_backend_mpi.so", "" if the file's name is not of this form.
  static std::string name_of_file(const std::string& path);

  // Whoever calls the table's functions shares the ownership.
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const distrun_backend_table& table() const { return *table_; }
  [[nodiscard]] const distrun_backend_device* device() const;              // null: tensors on the cpu only
  [[nodiscard]] decltype(distrun_backend_table::try_now) try_now() const;  // may be null

 private:
  explicit Library(std::string path) : path_(std::move(path)) {}
  Status open(const std::string& name);

  std::string path_;
  void* handle_ = nullptr;
  const distrun_backend_table* table_ = nullptr;
};

}  // namespace distrun::backend::plugin
