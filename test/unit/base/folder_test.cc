#include "runtime/base/system/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "test/support/temporary_file.h"

namespace distrun {
namespace {

using test::slurp;

class Place {
 public:
  explicit Place(mode_t mode) {
    std::string name = (std::filesystem::temp_directory_path() / "distrun-test-folder-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    above_ = name;
    path_ = name + "/in";
    REQUIRE(::mkdir(path_.c_str(), 0700) == 0);
    REQUIRE(::chmod(path_.c_str(), mode) == 0);
  }
  ~Place() { std::filesystem::remove_all(above_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string above(const std::string& name) const { return above_ + "/" + name; }

 private:
  std::string above_;
  std::string path_;
};

void put_text(const Fd& file) { REQUIRE(::write(file.get(), "new", 3) == 3); }

TEST_CASE("a link and a pipe are written through where nobody else may have made them") {
  const Place place(0755);
  std::ofstream(place.above("target")) << "old text";
  std::filesystem::create_symlink(place.above("target"), place.path() + "/link");
  const Folder::Opened opened = Folder(place.path()).open_to_write("link", O_TRUNC);
  REQUIRE(opened.file.valid());
  put_text(opened.file);
  CHECK(slurp(place.above("target")) == "new");
}

TEST_CASE("where others may write, a link, a pipe and a directory are refused, and what a link leads to stays") {
  const mode_t mode = GENERATE(mode_t{0777}, mode_t{01777}, mode_t{0770});
  const Place place(mode);
  std::ofstream(place.above("target")) << "old text";
  std::filesystem::create_symlink(place.above("target"), place.path() + "/link");
  REQUIRE(::mkfifo((place.path() + "/pipe").c_str(), 0600) == 0);
  const Folder folder(place.path());
  for (const char* name : {"link", "pipe"}) {
    const Folder::Opened opened = folder.open_to_write(name, O_TRUNC);
    CHECK(opened.refused);
    CHECK_FALSE(opened.file.valid());
  }
  CHECK(slurp(place.above("target")) == "old text");
  std::ofstream(place.path() + "/plain") << "old text";
  const Folder::Opened cut = folder.open_to_write("plain", O_TRUNC);
  REQUIRE(cut.file.valid());
  put_text(cut.file);
  CHECK(slurp(place.path() + "/plain") == "new");
  const Folder::Opened more = folder.open_to_write("plain", O_APPEND);
  REQUIRE(more.file.valid());
  put_text(more.file);
  CHECK(slurp(place.path() + "/plain") == "newnew");
}

TEST_CASE("a folder whose name is another's meanwhile is still the one that was judged") {
  const Place place(0755);
  const Folder folder(place.path());
  REQUIRE(folder.valid());
  REQUIRE(::rename(place.path().c_str(), place.above("away").c_str()) == 0);
  REQUIRE(::mkdir(place.path().c_str(), 0777) == 0);
  const Folder::Opened opened = folder.open_to_write("file", O_APPEND);
  REQUIRE(opened.file.valid());
  CHECK(std::filesystem::exists(place.above("away") + "/file"));
  CHECK_FALSE(std::filesystem::exists(place.path() + "/file"));
}

TEST_CASE("what cannot be opened has errno") {
  const Place place(0755);
  CHECK_FALSE(Folder(place.path() + "/none").valid());
  const Folder::Opened opened = Folder(place.path()).open_to_write("none/file", 0);
  CHECK(opened.error == ENOENT);
  CHECK_FALSE(opened.refused);
}

}  // namespace
}  // namespace distrun
