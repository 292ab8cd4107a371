# The folders of the installation. In a wheel (SKBUILD) all native files are inside the Python package `distrun`, so
# that one rule finds them: <package>/lib, <package>/include, <package>/cmake. Programs go into the environment's bin.
if(SKBUILD)
  set(DISTRUN_LIB_DIR "distrun/lib")
  set(DISTRUN_INCLUDE_DIR "distrun/include")
  set(DISTRUN_CMAKE_DIR "distrun/cmake")
  set(DISTRUN_BIN_DIR "${SKBUILD_SCRIPTS_DIR}")
else()
  include(GNUInstallDirs)
  set(DISTRUN_LIB_DIR "${CMAKE_INSTALL_LIBDIR}")
  set(DISTRUN_INCLUDE_DIR "${CMAKE_INSTALL_INCLUDEDIR}")
  set(DISTRUN_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/distrun")
  set(DISTRUN_BIN_DIR "${CMAKE_INSTALL_BINDIR}")
endif()

if(TARGET distrun_shared)
  install(TARGETS distrun_shared distrun_tensorflow distrun_jax LIBRARY DESTINATION "${DISTRUN_LIB_DIR}")
  get_property(plugins GLOBAL PROPERTY DISTRUN_PLUGIN_TARGETS)
  if(plugins)
    install(TARGETS ${plugins} LIBRARY DESTINATION "${DISTRUN_LIB_DIR}/plugins")
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/api/include/distrun" "${PROJECT_SOURCE_DIR}/bindings/cpp/include/distrun"
          "${PROJECT_SOURCE_DIR}/runtime/backend/plugin/include/distrun"
          DESTINATION "${DISTRUN_INCLUDE_DIR}")
  include(CMakePackageConfigHelpers)
  configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/distrun-config.cmake.in"
    "${PROJECT_BINARY_DIR}/distrun-config.cmake" INSTALL_DESTINATION "${DISTRUN_CMAKE_DIR}"
    PATH_VARS DISTRUN_LIB_DIR DISTRUN_INCLUDE_DIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/distrun-config-version.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/distrun-config.cmake" "${PROJECT_BINARY_DIR}/distrun-config-version.cmake"
          DESTINATION "${DISTRUN_CMAKE_DIR}")
endif()
if(TARGET distrun)
  install(TARGETS distrun RUNTIME DESTINATION "${DISTRUN_BIN_DIR}")
endif()
# Python runs this line of site-packages at its start. It protects programs that the launcher does not start by itself.
if(SKBUILD AND TARGET distrun_shared)
  install(FILES "${PROJECT_SOURCE_DIR}/bindings/python/site/distrun_protected.pth" DESTINATION "${SKBUILD_PLATLIB_DIR}")
endif()
