# One function per kind of target. Lists of files are explicit. Each header is compiled alone (target
# all_verify_interface_header_sets).

add_library(distrun_flags INTERFACE)
target_include_directories(distrun_flags INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/runtime/api/include")
target_compile_options(distrun_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wconversion -Wsign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual> -Werror -fno-math-errno)
target_link_libraries(distrun_flags INTERFACE Threads::Threads)
if(DISTRUN_SANITIZE)
  list(JOIN DISTRUN_SANITIZE "," _sanitizers)
  # g++ 12 takes its own instrumentation for uses of uninitialized memory. clang's instrumentation prevents the
  # vectorization of loops that request it.
  target_compile_options(distrun_flags INTERFACE "-fsanitize=${_sanitizers}" -fno-omit-frame-pointer -g1
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized> $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-pass-failed>)
  target_link_options(distrun_flags INTERFACE "-fsanitize=${_sanitizers}")
endif()

# distrun_precompiled(TARGET [headers ...]): in the preset `edit`, which compiles one file at a time, the target uses
# precompiled headers of the standard library. g++ requires the same options for them as for the file. Libraries share
# those of base, tests those of test/support.
function(distrun_precompiled TARGET)
  cmake_parse_arguments(ARG "" "FROM" "" ${ARGN})
  if(NOT DISTRUN_PRECOMPILE)
    return()
  endif()
  if(ARG_FROM)
    target_precompile_headers(${TARGET} REUSE_FROM ${ARG_FROM})
  else()
    target_precompile_headers(${TARGET} PRIVATE <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable> <cstdint>
      <deque> <filesystem> <fstream> <functional> <future> <map> <memory> <mutex> <optional> <random> <set> <span> <sstream>
      <string> <string_view> <thread> <unordered_map> <variant> <vector> ${ARG_UNPARSED_ARGUMENTS})
  endif()
endfunction()

# distrun_floor(NAME SOURCES a b ... HEADERS c ... LINKS base net ...): a floor of the runtime or the launcher. A source
# x is x.cc, and x.h if it exists. HEADERS have no .cc file.
function(distrun_floor NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINKS" ${ARGN})
  set(sources "")
  set(headers "")
  foreach(item IN LISTS ARG_SOURCES)
    list(APPEND sources "${item}.cc")
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${item}.h")
      list(APPEND headers "${item}.h")
    endif()
  endforeach()
  foreach(item IN LISTS ARG_HEADERS)
    list(APPEND headers "${item}.h")
  endforeach()
  if(sources)
    add_library(distrun_${NAME} STATIC ${sources})
    set(scope PUBLIC)
    if(NAME STREQUAL "base")
      distrun_precompiled(distrun_base)
    else()
      distrun_precompiled(distrun_${NAME} FROM distrun_base)
    endif()
  else()
    add_library(distrun_${NAME} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_sources(distrun_${NAME} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers})
  target_link_libraries(distrun_${NAME} ${scope} distrun_flags)
  foreach(floor IN LISTS ARG_LINKS)
    target_link_libraries(distrun_${NAME} ${scope} distrun_${floor})
  endforeach()
  set_target_properties(distrun_${NAME} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# distrun_plugin(NAME SOURCES a b ... LINKS library ...): this project's backend plug-in NAME, in the folder where
# libdistrun.so looks for it. It has its own copy of the code of the floors, and exports one function.
set(DISTRUN_PLUGIN_FOLDER "${PROJECT_BINARY_DIR}/runtime/api/plugins")
function(distrun_plugin NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  list(TRANSFORM ARG_SOURCES APPEND ".cc")
  set(map "${PROJECT_SOURCE_DIR}/runtime/backend/plugin/plugin.map")
  add_library(distrun_backend_${NAME} MODULE ${ARG_SOURCES})
  target_link_libraries(distrun_backend_${NAME} PRIVATE distrun_backend ${ARG_LINKS})
  target_link_options(distrun_backend_${NAME} PRIVATE "-Wl,--version-script=${map}" -Wl,-z,defs -Wl,--as-needed)
  set_target_properties(distrun_backend_${NAME} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${DISTRUN_PLUGIN_FOLDER}" LINK_DEPENDS "${map}")
  set_property(GLOBAL APPEND PROPERTY DISTRUN_PLUGIN_TARGETS distrun_backend_${NAME})
endfunction()

# distrun_test_paths(TARGET NAME path ...): constants with absolute paths, which a test declares `extern`. They are in a
# separate file. As macros they would be part of the command, and ccache would not find the files of another clone.
function(distrun_test_paths TARGET)
  set(text "")
  while(ARGN)
    list(POP_FRONT ARGN name path)
    string(APPEND text "extern const char* const ${name};\nconst char* const ${name} = \"${path}\";\n")
  endwhile()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${TARGET}_paths.cc")
  file(GENERATE OUTPUT "${file}" CONTENT "${text}")
  set_source_files_properties("${file}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${TARGET} PRIVATE "${file}")
endfunction()

# unit_tests: tests whose ranks are threads, which the sanitizers build. core_tests: those of the runtime's own parts
# (engine, net, shm), which scripts/test runs under ThreadSanitizer; --full runs all.
add_custom_target(unit_tests)
add_custom_target(core_tests)
set(DISTRUN_BESIDE_THE_CORE "^(launcher|nccl|hierarchical_nccl|mpi|plugin)_")

# distrun_test(NAME FILES a_test.cc ... LINKS floor ... [RANKS 1 2 4] [TIMEOUT s] [LABELS l ...])
# Without RANKS: one process, and the ranks are threads. With RANKS: runs under `distrun -np R`, one ctest entry per R.
# The label one_thread excludes a test from ThreadSanitizer, which finds nothing in it and makes it many times slower.
# The tag [one_thread] does so for a case.
function(distrun_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "FILES;LINKS;RANKS;LABELS;ARGUMENTS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(DISTRUN_SANITIZE)  # tests are up to 20 times slower, and the suites of two sanitizers run at the same time
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${NAME} ${ARG_FILES})
  target_link_libraries(${NAME} PRIVATE distrun_test_support)
  distrun_precompiled(${NAME} FROM distrun_test_headers)
  foreach(floor IN LISTS ARG_LINKS)
    target_link_libraries(${NAME} PRIVATE distrun_${floor})
  endforeach()
  if(ARG_RANKS)
    foreach(ranks IN LISTS ARG_RANKS)
      add_test(NAME ${NAME}.${ranks}ranks COMMAND distrun -np ${ranks} --oversubscribe $<TARGET_FILE:${NAME}>)
      set_tests_properties(${NAME}.${ranks}ranks PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "multi;${ARG_LABELS}")
    endforeach()
  else()
    if("thread" IN_LIST DISTRUN_SANITIZE)
      list(APPEND ARG_ARGUMENTS "~[one_thread]")
    endif()
    add_test(NAME ${NAME} COMMAND ${NAME} ${ARG_ARGUMENTS})
    if(NOT (DISTRUN_SANITIZE MATCHES "thread" AND "one_thread" IN_LIST ARG_LABELS))
      add_dependencies(unit_tests ${NAME})
      if(NOT NAME MATCHES "${DISTRUN_BESIDE_THE_CORE}")
        add_dependencies(core_tests ${NAME})
        list(APPEND ARG_LABELS core)
      endif()
    endif()
    # For executables whose cases are all skipped. Their exit code 4 is ambiguous: an older Catch2 uses it for four
    # failures.
    set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}"
      SKIP_REGULAR_EXPRESSION "test cases: +[0-9]+ [|] +[0-9]+ skipped")
  endif()
endfunction()
