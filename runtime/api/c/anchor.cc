// The library is its archives; a linker wants one object of its own.
