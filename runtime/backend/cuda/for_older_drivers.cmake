# nvcc writes the newest version of PTX, which older drivers refuse, although the kernels use nothing newer than 7.0
# (CUDA 11.0) has.
file(READ "${FROM}" text)
string(REGEX REPLACE "\n\\.version [0-9.]+\n" "\n.version 7.0\n" text "${text}")
file(WRITE "${TO}" "${text}")
