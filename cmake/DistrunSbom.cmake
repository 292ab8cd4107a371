# Writes the list of foreign code in the wheel's files (CycloneDX 1.6; PEP 770 defines its place in a wheel). Versions
# are those of the compiled headers. Each library that is compiled in needs a component here and a file in licenses/;
# scripts/check_wheel.py compares the two.
function(distrun_version_of OUT HEADER PATTERN)
  file(STRINGS "${HEADER}" line REGEX "${PATTERN}")
  if(NOT line MATCHES "\"([0-9.]+)\"")
    message(FATAL_ERROR "${HEADER} does not say which version it is of")
  endif()
  set(${OUT} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

if(SKBUILD)
  distrun_version_of(DISTRUN_SODIUM_VERSION "${DISTRUN_SODIUM_INCLUDE}/sodium/version.h" "define SODIUM_VERSION_STRING ")
  distrun_version_of(DISTRUN_CLI11_VERSION "${DISTRUN_CLI11_INCLUDE}/CLI/Version.hpp" "define CLI11_VERSION ")
  # In the template, CMake would take "@v@" for the name of a variable.
  set(DISTRUN_CLI11_TAG "v${DISTRUN_CLI11_VERSION}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/sbom.cdx.json.in" "${PROJECT_BINARY_DIR}/distrun.cdx.json" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/distrun.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
endif()
