# The options for builders. `cmake -LH` shows them.
option(DISTRUN_TESTS "Build the tests (needs Catch2 3)" ON)
option(DISTRUN_BENCH_PEERS "Build the benchmark programs for Open MPI and Gloo where they are installed" ON)
option(DISTRUN_PLUGINS "Build the optional plug-ins that outside libraries are found for" ON)
option(DISTRUN_PRECOMPILE "Precompile the standard library's headers: quicker where one file is compiled at a time" OFF)
set(DISTRUN_SANITIZE "" CACHE STRING "Empty, 'address;undefined' or 'thread'")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Line numbers for backtraces and sanitizers. Debugging information about variables would take a quarter of the build's
# time; Debug has it.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
# Not CMake's -O3: all tests and figures are of -O2, and g++ 12 gives wrong warnings at -O3.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(DISTRUN_CCACHE ccache)
if(DISTRUN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DISTRUN_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${DISTRUN_CCACHE}")
endif()
find_package(Threads REQUIRED)
