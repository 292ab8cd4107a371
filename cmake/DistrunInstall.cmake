# Rules for `cmake --install` and the CMake package; filled by packaging.
