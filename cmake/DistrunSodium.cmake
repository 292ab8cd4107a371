# distrun_sodium: libsodium, linked statically if libsodium.a can be linked into a shared library. The wheel may need
# only libc, libm and the compiler's libraries, and a site may have no libsodium.so. Debian's archive is compiled for
# executables (PIE). The linker accepts it in a shared library only if its symbols are hidden, by --exclude-libs.
# distrun must not export them in any case.
find_path(DISTRUN_SODIUM_INCLUDE sodium.h)
find_library(DISTRUN_SODIUM_STATIC NAMES libsodium.a)
find_library(DISTRUN_SODIUM_SHARED NAMES sodium)

if(DISTRUN_SODIUM_INCLUDE AND DISTRUN_SODIUM_STATIC AND NOT DEFINED DISTRUN_SODIUM_STATIC_LINKS)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES "${DISTRUN_SODIUM_INCLUDE}")
  set(CMAKE_REQUIRED_LIBRARIES "${DISTRUN_SODIUM_STATIC}" Threads::Threads)
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared -Wl,--exclude-libs,libsodium.a)
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  check_cxx_source_compiles("#include <sodium.h>
    int start() { return sodium_init(); }" DISTRUN_SODIUM_STATIC_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  unset(CMAKE_REQUIRED_FLAGS)
endif()

if(NOT DISTRUN_SODIUM_INCLUDE OR NOT (DISTRUN_SODIUM_STATIC_LINKS OR DISTRUN_SODIUM_SHARED))
  message(FATAL_ERROR "libsodium was not found; install libsodium-dev (scripts/quickstart does)")
endif()

add_library(distrun_sodium INTERFACE)
target_include_directories(distrun_sodium SYSTEM INTERFACE "${DISTRUN_SODIUM_INCLUDE}")
if(DISTRUN_SODIUM_STATIC AND DISTRUN_SODIUM_STATIC_LINKS)
  target_compile_definitions(distrun_sodium INTERFACE SODIUM_STATIC)
  target_link_libraries(distrun_sodium INTERFACE "${DISTRUN_SODIUM_STATIC}")
  target_link_options(distrun_sodium INTERFACE -Wl,--exclude-libs,libsodium.a)
else()
  message(STATUS "libsodium: only the shared library can be linked; the wheel check will refuse this build")
  target_link_libraries(distrun_sodium INTERFACE "${DISTRUN_SODIUM_SHARED}")
endif()
