"""The C API of distrun.h for ctypes: constants, structs and prototypes. This module has no logic."""

from __future__ import annotations

import ctypes
import enum

API_VERSION = 1
MAC_SIZE = 32


class Code(enum.IntEnum):
    """distrun_code."""

    OK = 0
    INVALID_ARGUMENT = 1
    DUPLICATE_NAME = 2
    MISMATCH = 3
    RANK_LOST = 4
    RANK_LEFT = 5
    TIMEOUT = 6
    NOT_INITIALIZED = 7
    UNSUPPORTED = 8
    PROTOCOL = 9
    SYSTEM = 10
    INTERRUPTED = 11
    ABORTED = 12
    SHUT_DOWN = 13
    OUT_OF_MEMORY = 14
    INTERNAL = 15


class DType(enum.IntEnum):
    """distrun_dtype; the names are NumPy's."""

    uint8 = 0
    int8 = 1
    int16 = 2
    int32 = 3
    int64 = 4
    float16 = 5
    bfloat16 = 6
    float32 = 7
    float64 = 8
    bool_ = 9
    uint16 = 10
    uint32 = 11
    uint64 = 12
    complex64 = 13
    complex128 = 14
    float8_e4m3fn = 15
    float8_e5m2 = 16
    float8_e4m3fnuz = 17
    float8_e5m2fnuz = 18
    float8_e8m0fnu = 19
    float8_e4m3b11fnuz = 20
    float8_e4m3 = 21
    float8_e3m4 = 22
    complex32 = 23


class ReduceOp(enum.IntEnum):
    """The reductions, with Horovod's numbers as values, because Horovod's users write the numbers in programs.

    `native` is the number in distrun_reduce. ADASUM exists only in Horovod: distrun raises NotImplementedError for it.
    """

    native: int

    def __new__(cls, value: int, native: int) -> ReduceOp:
        member = int.__new__(cls, value)
        member._value_ = value
        member.native = native
        return member

    AVERAGE = 0, 1
    SUM = 1, 0
    ADASUM = 2, -1
    MIN = 3, 2
    MAX = 4, 3
    PRODUCT = 5, 4

    @classmethod
    def of_native(cls, number: int) -> ReduceOp:
        """Returns the member whose `native` is `number`."""
        return next(one for one in cls if one.native == number)


class Kind(enum.IntEnum):
    """distrun_kind."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    BARRIER = 3
    ALLTOALL = 4
    REDUCESCATTER = 5
    JOIN = 6


class ErrorStruct(ctypes.Structure):
    """distrun_error."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("code", ctypes.c_int32),
        ("message", ctypes.c_char_p),
        ("tensor", ctypes.c_char_p),
        ("host", ctypes.c_char_p),
        ("cause", ctypes.c_char_p),
        ("ranks", ctypes.POINTER(ctypes.c_int32)),
        ("num_ranks", ctypes.c_uint64),
        ("usable", ctypes.c_int32),
    )


class OptionsStruct(ctypes.Structure):
    """distrun_options."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("num_settings", ctypes.c_uint32),
        ("settings", ctypes.POINTER(ctypes.c_char_p)),
    )


class WorldStruct(ctypes.Structure):
    """distrun_world."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("local_rank", ctypes.c_int32),
        ("local_size", ctypes.c_int32),
        ("cross_rank", ctypes.c_int32),
        ("cross_size", ctypes.c_int32),
        ("host", ctypes.c_char_p),
        ("job_id", ctypes.c_char_p),
        ("num_gpus", ctypes.c_uint32),
        ("gpus", ctypes.POINTER(ctypes.c_int32)),
    )


class OpStruct(ctypes.Structure):
    """distrun_op."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("reduce", ctypes.c_int32),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("shape", ctypes.c_void_p),
        ("ndim", ctypes.c_uint32),
        ("root", ctypes.c_int32),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("process_set", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("splits", ctypes.c_void_p),
        ("num_splits", ctypes.c_uint32),
    )


class ResultStruct(ctypes.Structure):
    """distrun_result."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("ndim", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("first_dims", ctypes.POINTER(ctypes.c_int64)),
        ("num_members", ctypes.c_uint32),
    )


_SESSION = ctypes.c_void_p
_HANDLE = ctypes.c_void_p
_HANDLES = ctypes.POINTER(ctypes.c_void_p)
_CODE = ctypes.c_int32
_VIEW = ctypes.c_void_p
Describer = ctypes.CFUNCTYPE(None, _VIEW)

# name -> (result, arguments). The result None is C's void.
PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "distrun_api_version": (ctypes.c_uint32, []),
    "distrun_version": (ctypes.c_char_p, []),
    "distrun_code_name": (ctypes.c_char_p, [ctypes.c_int32]),
    "distrun_last_error": (None, [ctypes.POINTER(ErrorStruct)]),
    "distrun_init": (_CODE, [ctypes.POINTER(OptionsStruct), ctypes.POINTER(_SESSION)]),
    "distrun_shutdown": (_CODE, [_SESSION]),
    "distrun_abort_at": (_CODE, [_SESSION, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_char_p]),
    "distrun_close": (None, [_SESSION]),
    "distrun_get_world": (_CODE, [_SESSION, ctypes.POINTER(WorldStruct)]),
    "distrun_query": (ctypes.c_int64, [_SESSION, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]),
    "distrun_mac": (_CODE, [_SESSION, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p]),
    "distrun_describe_by": (_CODE, [_SESSION, Describer]),
    "distrun_view_wait": (None, [_VIEW, ctypes.c_int32]),
    "distrun_view_exception": (None, [_VIEW, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32]),
    "distrun_view_thread": (None, [_VIEW, ctypes.c_char_p]),
    "distrun_view_frame": (None, [_VIEW, ctypes.c_char_p, ctypes.c_int32, ctypes.c_char_p]),
    "distrun_store_set": (_CODE, [_SESSION, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]),
    "distrun_store_get": (
        _CODE,
        [_SESSION, ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int64)],
    ),
    "distrun_store_add": (_CODE, [_SESSION, ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)]),
    "distrun_store_swap": (
        _CODE,
        [
            _SESSION,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_int64),
        ],
    ),
    "distrun_store_count": (_CODE, [_SESSION, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)]),
    "distrun_enqueue": (_CODE, [_SESSION, ctypes.POINTER(OpStruct), ctypes.c_uint64, _HANDLES]),
    "distrun_wait": (_CODE, [_HANDLE, ctypes.c_double]),
    "distrun_wait_all": (_CODE, [_HANDLES, ctypes.c_uint64, ctypes.c_double, ctypes.POINTER(ctypes.c_uint64)]),
    "distrun_wait_any": (_CODE, [_HANDLES, ctypes.c_uint64, ctypes.c_double, ctypes.POINTER(ctypes.c_uint64)]),
    "distrun_poll": (ctypes.c_int32, [_HANDLE]),
    "distrun_get_error": (_CODE, [_HANDLE, ctypes.POINTER(ErrorStruct)]),
    "distrun_get_result": (_CODE, [_HANDLE, ctypes.POINTER(ResultStruct)]),
    "distrun_release": (None, [_HANDLE]),
    "distrun_process_set_add": (
        _CODE,
        [_SESSION, ctypes.POINTER(ctypes.c_int32), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32)],
    ),
    "distrun_process_set_add_by_members": (
        _CODE,
        [_SESSION, ctypes.POINTER(ctypes.c_int32), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32)],
    ),
    "distrun_process_set_remove": (_CODE, [_SESSION, ctypes.c_int32]),
    "distrun_process_set_add_apart": (
        _CODE,
        [
            _SESSION,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.c_uint64,
            ctypes.c_double,
            ctypes.POINTER(ctypes.c_int32),
        ],
    ),
    "distrun_process_set_drop": (_CODE, [_SESSION, ctypes.c_int32]),
    "distrun_process_set_ranks": (
        _CODE,
        [_SESSION, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)],
    ),
    "distrun_timeline_start": (_CODE, [_SESSION, ctypes.c_char_p]),
    "distrun_should_stop": (_CODE, [_SESSION, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)]),
    "distrun_timeline_stop": (_CODE, [_SESSION]),
}
