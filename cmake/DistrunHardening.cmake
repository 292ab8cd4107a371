# Options for everything that is compiled and linked. They detect memory errors or make them harder to exploit. They
# also keep paths of the building machine out of the files, so that two clones build the same files.
# scripts/check_wheel.py checks both in the wheel.
include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported()

# Sanitizers have their own checks, and fortified functions would hide errors from them.
if(NOT DISTRUN_SANITIZE)
  check_cxx_compiler_flag(-fcf-protection DISTRUN_HAS_CF_PROTECTION)  # only x86 has it
  add_compile_options(-fstack-protector-strong -fstack-clash-protection
    $<$<BOOL:${DISTRUN_HAS_CF_PROTECTION}>:-fcf-protection>
    $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=3>)
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

# ccache passes the compiler paths relative to the build folder. It knows this option, so it still finds a file that
# another clone has compiled.
file(RELATIVE_PATH _to_root "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${_to_root}=")
# The linker's build id would include the debugging information, which has the folder and is stripped afterwards.
if(SKBUILD)
  add_link_options(-Wl,--build-id=none)
endif()
