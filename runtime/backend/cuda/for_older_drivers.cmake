# nvcc writes the newest version of PTX, which older drivers refuse. The kernels use nothing newer than PTX 7.0 (CUDA
# 11.0), so the version is replaced.
file(READ "${FROM}" text)
string(REGEX REPLACE "\n\\.version [0-9.]+\n" "\n.version 7.0\n" text "${text}")
file(WRITE "${TO}" "${text}")
