# cmake -DROOT=folder -DTO=file.cc -P: writes the function build_id(), a hash of all sources under ROOT/runtime. The
# hash does not include their folder and the compiler, so wheels and builds of the same sources have the same hash.
file(GLOB_RECURSE sources RELATIVE "${ROOT}" "${ROOT}/runtime/*.cc" "${ROOT}/runtime/*.h" "${ROOT}/runtime/*.def" "${ROOT}/runtime/*.cu")
set(all "")
foreach(source IN LISTS sources)
  file(SHA256 "${ROOT}/${source}" hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING "${id}" 0 16 id)
file(WRITE "${TO}" "#include \"runtime/api/join/build_id.h\"\n\nstd::string_view distrun::api::build_id() { return \"${id}\"; }\n")
