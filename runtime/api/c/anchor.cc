// The library consists of static archives, but the linker needs one object file.
