"""The safe object format: all supported values come back, all others are refused, and no bytes do harm."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import hashlib
import math
import mmap
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import distrun.torch  # noqa: F401 (registers tensors)
from distrun import _objects, codec
from distrun._abi import DType

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
objects = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4).map(collections.OrderedDict)
        | st.dictionaries(hashables, st.integers(), max_size=4).map(collections.Counter)
        | st.sets(hashables, max_size=4)
    ),
    max_leaves=20,
)
dtypes = (
    npst.integer_dtypes()
    | npst.unsigned_integer_dtypes()
    | npst.floating_dtypes()
    | npst.complex_number_dtypes()
    | npst.boolean_dtypes()
    | npst.unicode_string_dtypes(max_len=4)
    | npst.datetime64_dtypes()
)
arrays = dtypes.flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4)))


def types_of(value: Any) -> Any:
    """The structure of types. True == 1 and 1 == 1.0 must not hide a change."""
    if isinstance(value, dict):
        return type(value), [(types_of(key), types_of(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    return type(value)


@given(objects)
def test_plain_objects_come_back(value: Any) -> None:
    result = codec.decode(codec.encode(value))
    assert result == value and types_of(result) == types_of(value)


def test_special_floats_come_back() -> None:
    values = [math.inf, -math.inf, -0.0, 5e-324]
    assert [struct.pack("<d", one) for one in codec.decode(codec.encode(values))] == [
        struct.pack("<d", v) for v in values
    ]
    assert math.isnan(codec.decode(codec.encode(math.nan)))


@given(arrays)
def test_arrays_come_back(array: np.ndarray) -> None:
    result = codec.decode(codec.encode({"array": array}))["array"]
    assert result.dtype == array.dtype and result.shape == array.shape and result.flags.writeable
    assert result.tobytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2020-01-01"), np.str_("x")]
)
def test_numpy_scalars_come_back(value: Any) -> None:
    result = codec.decode(codec.encode(value))
    assert result == value and type(result) is type(value)


def test_array_that_is_not_contiguous() -> None:
    array = np.arange(24).reshape(4, 6)[::2, ::-3]
    np.testing.assert_array_equal(codec.decode(codec.encode(array)), array)
    assert codec.decode(codec.encode(np.dtype(">f4"))) == np.dtype(">f4")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float16, requires_grad=True),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
    ],
)
def test_tensors_come_back(tensor: torch.Tensor) -> None:
    result = codec.decode(codec.encode([tensor]))[0]
    assert result.dtype == tensor.dtype and result.requires_grad == tensor.requires_grad
    assert torch.equal(result, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.arange(24.0).reshape(1, 2, 3, 4).permute(3, 1, 0, 2),
        torch.arange(48).reshape(8, 6)[2:5].t(),
    ],
)
def test_dense_tensors_keep_their_strides(tensor: torch.Tensor) -> None:
    result = codec.decode(codec.encode(tensor))
    assert result.stride() == tensor.stride() and torch.equal(result, tensor)
    part = tensor[..., ::2]
    result = codec.decode(codec.encode(part))
    assert result.is_contiguous() and torch.equal(result, part)


@pytest.mark.parametrize(
    "strides", [[1, 1], [3, 2], [-1, 2], [1], [1, 2, 6], [1, 1 << 70], [True, 2], None, 2, ["1", 2]]
)
def test_strides_that_do_not_fill_the_memory_are_refused(strides: Any) -> None:
    data = bytearray(b"d\x01X")
    codec._put_bytes(data, b"torch")
    codec._encode(data, ["strided", strides, "uint8", False, 2, 3], "object", 0)
    codec._put_bytes(data, bytes(6))
    with pytest.raises(codec.CodecError):
        codec.decode(data)


def test_other_torch_values_come_back() -> None:
    values = (torch.float64, torch.device("cpu"), torch.Size([2, 3]))
    result = codec.decode(codec.encode(values))
    assert result == values and type(result[2]) is torch.Size


class Custom:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom)

    __hash__ = None  # type: ignore[assignment]


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value", [Custom(), Point(1, 2), np.array([None]), np.ma.masked_array([1]), np.zeros(1, "i4,f4"), len, int]
)
def test_the_rest_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"object\['key'\]\[1\]"):
        codec.encode({"key": [0, value]})


def test_pickle_only_where_both_sides_ask_for_it() -> None:
    data = codec.encode([Custom()], allow_pickle=True)
    assert codec.decode(data, allow_pickle=True) == [Custom()]
    with pytest.raises(codec.CodecError, match="pickle"):
        codec.decode(data)
    assert b"pickle" not in codec.encode([1], allow_pickle=True) and codec.decode(
        codec.encode([1], allow_pickle=True)
    ) == [1]


def test_a_pickle_that_was_changed_on_its_way_does_not_run() -> None:
    def mac(data: bytes) -> bytes:
        return hashlib.blake2b(data, key=b"the job's", digest_size=32).digest()

    data = codec.encode([Custom()], allow_pickle=True, mac=mac)
    assert codec.decode(data, allow_pickle=True, mac=mac) == [Custom()]
    for place in range(11, len(data)):  # after the magic, the tag and the length of the MAC
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(codec.CodecError):
            codec.decode(changed, allow_pickle=True, mac=mac)
    for unproved in (
        codec.encode([Custom()], allow_pickle=True),
        codec.encode([Custom()], allow_pickle=True, mac=bytes),
    ):
        with pytest.raises(codec.CodecError, match="changed on its way"):
            codec.decode(unproved, allow_pickle=True, mac=mac)


def test_containers_in_themselves_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="contains itself"):
        codec.encode(endless)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_error_or_a_value(data: bytes) -> None:
    for start in (b"", b"d\x01"):
        with contextlib.suppress(codec.CodecError):
            codec.decode(start + data)


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_give_an_error_or_a_value(data: st.DataObject) -> None:
    sample = {"a": [1, 2.5, "text", (None, True)], "n": np.arange(3, dtype=np.int16), "t": torch.ones(2), "s": {1, 2}}
    sample["p"] = torch.ones(2, 3).t()
    encoded = codec.encode(sample)
    cut = data.draw(st.integers(0, len(encoded)))
    position = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded)
    damaged[position] = data.draw(st.integers(0, 255))
    for broken in (encoded[:cut], damaged, damaged + b"x"):
        with contextlib.suppress(codec.CodecError):
            codec.decode(broken)


def test_announced_sizes_are_checked_before_anything_is_made() -> None:
    huge = struct.pack("<Q", 1 << 60)
    for tag in b"lds":
        with pytest.raises(codec.CodecError, match="cut short"):
            codec.decode(b"d\x01" + bytes([tag]) + huge)
    with pytest.raises(codec.CodecError, match="nested"):
        codec.decode(b"d\x01" + (b"l" + struct.pack("<Q", 1)) * 1000 + b"N")


@pytest.mark.parametrize("text", ["O", "|O", "<f4,<i4", "(3,)<f4", "<U0", "<x4", "<f9999999999999"])
def test_hostile_dtypes_are_refused(text: str) -> None:
    data = bytearray(b"d\x01X")
    codec._put_bytes(data, b"numpy")
    codec._encode(data, ["array", text, 0], "object", 0)
    codec._put_bytes(data, b"")
    with pytest.raises(codec.CodecError):
        codec.decode(data)


@pytest.mark.full
def test_what_all_ranks_say_may_have_more_than_2_gib() -> None:
    size = 2**31 + 5
    with contextlib.closing(mmap.mmap(-1, size, mmap.MAP_PRIVATE)) as memory:
        memory[size - 3 :] = b"end"
        view = ctypes.c_char.from_buffer(memory)
        taken = _objects._bytes_at(ctypes.addressof(view), size)
        del view
    assert len(taken) == size and taken[-4:] == b"\0end"


KINDS = [getattr(np, name, None) or getattr(ml_dtypes, name, None) for name in (one.name.rstrip("_") for one in DType)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not None])  # the version of ml_dtypes decides
def test_every_dtype_that_operations_move(kind: type) -> None:
    array = np.ones((2, 3), kind)
    for value in (array, array[:, ::2], array[:0], array[1, 1], array.dtype):
        found = codec.decode(codec.encode([value]))[0]
        assert type(found) is type(value)
        assert found == value if isinstance(value, np.dtype) else found.dtype == value.dtype
        if isinstance(value, np.ndarray):
            assert found.shape == value.shape and found.tobytes() == value.tobytes() and found.flags.writeable


def test_dtypes_that_operations_do_not_move_are_named() -> None:
    with pytest.raises(TypeError, match=r"object\['w'\] is a numpy.ndarray of dtype int4, which cannot be sent"):
        codec.encode({"w": np.ones(2, ml_dtypes.int4)})


def test_a_dtype_that_this_rank_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    data = codec.encode(np.ones(2, ml_dtypes.bfloat16))
    monkeypatch.delattr(ml_dtypes, "bfloat16")
    with pytest.raises(codec.CodecError, match="an array of dtype bfloat16"):
        codec.decode(data)
    with pytest.raises(codec.CodecError, match="'bfloat17' is not a plain dtype"):
        codec.decode(data.replace(b"bfloat16", b"bfloat17"))
