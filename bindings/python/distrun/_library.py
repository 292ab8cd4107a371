"""Finds and loads libdistrun.so. Only this module knows its path. It is loaded at first use, not at import."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import platform
import re
import sys

from distrun import _abi

_FILE = pathlib.PurePath("lib", "libdistrun.so")


def candidates() -> list[pathlib.Path]:
    """Returns `lib/libdistrun.so` in every directory of the package.

    A wheel has one directory. An editable install has two, both in the package's __path__: the sources, and
    site-packages with the built files. The package in a build folder has a link there. No environment variable is read.
    """
    return [pathlib.Path(directory) / _FILE for directory in sys.modules[__package__].__path__]


@functools.cache
def library_file() -> pathlib.Path:
    """Returns the path of libdistrun.so. The libraries for frameworks are in the same folder."""
    places = candidates()
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise ImportError(
            "distrun's native library is missing: looked for "
            + ", ".join(str(place) for place in places)
            + ". Install the wheel (pip install dist/distrun-*.whl), or build from source with scripts/quickstart."
        )
    return found


def _cure(error: str) -> str:
    """Returns the cure if a library is missing that the wheel needs. pip does not check for such libraries."""
    libc, version = platform.libc_ver()
    lacks = re.search(r"`GLIBC_([\d.]+)'", error)
    if libc != "glibc" or lacks:
        here = f"{libc} {version}" if libc else "another C library (musl, as in Alpine?)"
        # A wheel that was built on a machine newer than the oldest supported one needs that machine's glibc.
        needs = lacks[1] if lacks and lacks[1] != "2.34" else "2.34 or newer, as in Debian 12, Ubuntu 22.04 and RHEL 9"
        return f"It needs glibc {needs}, but this system has {here}."
    if "libstdc++" in error:
        return (
            "It needs the libstdc++ of GCC 11 or newer. If an older GCC is found first in LD_LIBRARY_PATH, use "
            "`module unload`. In a conda environment, use `conda install 'libstdcxx-ng>=11'`."
        )
    return ""


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the loaded library with its prototypes. Every call through it releases the GIL."""
    found = library_file()
    try:
        loaded = ctypes.CDLL(str(found))
    except OSError as error:
        if not (cure := _cure(str(error))):
            raise
        raise ImportError(f"{found} cannot be loaded: {error}. {cure}") from error
    for name, (result, arguments) in _abi.PROTOTYPES.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise ImportError(
                f"{found} does not have {name}: it is not from the same version as this Python package. Reinstall "
                "distrun."
            )
        function.restype = result
        function.argtypes = arguments
    version = loaded.distrun_api_version()
    if version != _abi.API_VERSION:
        raise ImportError(
            f"{found} has version {version} of the C API, but this Python package needs version {_abi.API_VERSION}. "
            "Reinstall distrun."
        )
    return loaded


def native_version() -> str:
    """Returns the version of the native library, as "0.1.0"."""
    text: bytes = library().distrun_version()
    return text.decode()
