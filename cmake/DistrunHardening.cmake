# For all that is compiled and linked: mistakes in memory are found or are harder to use, and no path of the machine
# that builds is in the result, so that two clones make the same files. scripts/check_wheel.py checks the wheel for both.
include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported()

# Sanitizers have their own checks, and the fortified functions hide mistakes from them.
if(NOT DISTRUN_SANITIZE)
  check_cxx_compiler_flag(-fcf-protection DISTRUN_HAS_CF_PROTECTION)  # x86 alone
  add_compile_options(-fstack-protector-strong -fstack-clash-protection
    $<$<BOOL:${DISTRUN_HAS_CF_PROTECTION}>:-fcf-protection>
    $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=3>)
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

# ccache hands the compiler paths that are relative to the build folder. It knows this option, so a file that another
# clone has compiled is still found.
file(RELATIVE_PATH _to_root "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${_to_root}=")
# The linker would make its id of the debugging information too, which has the folder and which is stripped afterwards.
if(SKBUILD)
  add_link_options(-Wl,--build-id=none)
endif()
