"""Random programs from a seed, and their results with NumPy. Equal on every rank. Nothing here runs a program."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SUM, AVERAGE, MIN, MAX, PRODUCT = "Sum", "Average", "Min", "Max", "Product"
REDUCTIONS = [SUM, AVERAGE, MIN, MAX, PRODUCT]
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
FLOATS = ("float16", "bfloat16", "float32", "float64")
KINDS = ["allreduce", "allreduce", "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"]


@dataclass
class Item:
    """One operation, which all members of a set run `repeats` times."""

    number: int
    kind: str
    members: list[int]
    dtype: str
    shape: tuple[int, ...]
    reduction: str = SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    tensors: int = 1  # more than one: a group
    in_place: bool = False
    strided: bool = False
    even_splits: bool = True
    rough: bool = False  # sums are not exact: compared with a tolerance, and bit for bit between ranks
    special: bool = False  # some values are infinite or NaN
    repeats: int = 1
    mistake: str = ""
    culprit: int = -1  # world rank that makes the mistake
    joined: list[int] = field(default_factory=list)  # world ranks that ran out of data earlier

    @property
    def name(self) -> str:
        """Each program uses the same numbers again, so that known names get new signatures."""
        return f"item{self.number}"


@dataclass
class Program:
    """The work of the ranks: items in any order, then a tail for which some ranks have no data."""

    seed: int
    ranks: int
    sets: list[list[int]]
    items: list[Item]
    tail: list[Item]  # in the world and in this order; rank r runs the first `data[r]` items and joins
    data: list[int]
    threads: int


# --- making a program ---


def _rows_shape(rng: random.Random) -> tuple[int, ...]:
    return (rng.choice([0, 1, 2, 3, 7]), *(rng.choice([0, 1, 2, 5]) for _ in range(rng.randint(0, 2))))


def _shape(rng: random.Random) -> tuple[int, ...]:
    if rng.random() < 0.1:
        return (rng.choice([1000, 4096, 20011]),)
    return tuple(rng.choice([0, 1, 2, 3, 8]) for _ in range(rng.randint(0, 3)))


def _scales(rng: random.Random, item: Item) -> None:
    if item.dtype in FLOATS or item.reduction in (SUM, AVERAGE):
        item.prescale = rng.choice([1.0, 1.0, 1.0, 0.5, 2.0])
        item.postscale = rng.choice([1.0, 1.0, 1.0, 0.5, 4.0])


def _make_item(rng: random.Random, number: int, members: list[int]) -> Item:
    item = Item(number, rng.choice(KINDS), members, rng.choice(DTYPES), ())
    item.repeats = rng.choice([1, 1, 1, 2, 4])
    if item.kind == "barrier":
        return item
    item.shape = _rows_shape(rng) if item.kind in ("allgather", "alltoall", "reducescatter") else _shape(rng)
    if item.kind in ("allreduce", "reducescatter"):
        item.reduction = rng.choice(REDUCTIONS)
        _scales(rng, item)
        item.rough = item.dtype in ("float32", "float64") and rng.random() < 0.3
    item.root = rng.choice(members)
    item.in_place = item.kind in ("allreduce", "broadcast") and rng.random() < 0.4
    item.strided = rng.random() < 0.2
    item.even_splits = rng.random() < 0.3
    if item.kind in ("allreduce", "allgather", "reducescatter") and rng.random() < 0.2:
        item.tensors = rng.randint(2, 4)
    return item


def _make_mistake(rng: random.Random, item: Item) -> None:
    if item.kind == "barrier":
        return
    possible = ["dtype", "shape"]
    if item.kind in ("allreduce", "reducescatter"):
        possible += ["reduction", "prescale", "postscale"]
    if item.kind == "broadcast":
        possible.append("root")
    if item.kind == "alltoall":
        possible.append("splits")
    if len(item.members) > 1:
        item.mistake, item.culprit = rng.choice(possible), rng.choice(item.members)


def _make_rare(rng: random.Random, items: list[Item]) -> None:
    """A few programs have a tensor of several chunks, whatever backend moves it. Some have infinite values or NaN."""
    large = [item for item in items if item.kind != "barrier"]
    if large and rng.random() < 0.03:
        item = rng.choice(large)
        elements = rng.choice([70_003, 300_007, 1_100_009])
        flat = item.kind in ("allreduce", "broadcast")
        item.shape = (elements,) if flat else (rng.choice([1, 3, 7]), elements // 4)
        item.repeats, item.tensors, item.rough = min(item.repeats, 2), min(item.tensors, 2), False
    if rng.random() < 0.15:
        for item in items:
            item.special = item.kind != "barrier" and item.dtype in FLOATS and rng.random() < 0.5


def make_program(seed: int, ranks: int) -> Program:
    """The program of this seed for this number of ranks."""
    rng = random.Random(seed * 1000 + ranks)
    sets = [list(range(ranks))]
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        members = sorted(rng.sample(range(ranks), rng.randint(1, ranks)))
        if members not in sets:
            sets.append(members)
    items = [_make_item(rng, number, rng.choice(sets)) for number in range(rng.randint(1, 14))]
    for item in items:
        if rng.random() < 0.1:
            _make_mistake(rng, item)
    data: list[int] = []
    tail: list[Item] = []
    if rng.random() < 0.2:
        data = [rng.randint(0, 4) for _ in range(ranks)]
        tail = [_make_item(rng, 100 + number, sets[0]) for number in range(max(data))]
        for position, item in enumerate(tail):
            item.repeats = 1
            item.joined = [rank for rank in range(ranks) if data[rank] <= position]
    _make_rare(random.Random(f"rare {seed} {ranks}"), items + tail)
    return Program(seed, ranks, sets, items, tail, data, rng.choice([1, 1, 2, 3]))


# --- the inputs of a rank ---


def _values(rng: np.random.Generator, item: Item, shape: Sequence[int]) -> Array:
    values = _finite_values(rng, item, shape)
    if item.special:
        others = rng.choice([np.nan, np.inf, -np.inf], shape).astype(values.dtype)
        values = np.where(rng.random(shape) < 0.2, others, values)
    return values


def _finite_values(rng: np.random.Generator, item: Item, shape: Sequence[int]) -> Array:
    dtype = np.dtype(item.dtype)
    if item.rough:
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if item.dtype == "bfloat16":  # powers of two: products of values with eight bits are exact
        return rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], shape).astype(dtype)
    if item.dtype in FLOATS:
        return rng.integers(-4, 5, shape).astype(dtype)
    plain = item.prescale == item.postscale == 1.0 and item.reduction != AVERAGE
    limits = np.iinfo(dtype)
    if plain:  # sums and products wrap around
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return rng.integers(max(limits.min, -4), 5, shape).astype(dtype)


def splits_of(item: Item, rank: int, repeat: int) -> list[int]:
    """The number of rows that the rank sends to each member."""
    count = len(item.members)
    if item.even_splits:
        return [item.shape[0]] * count
    rng = random.Random(item.number * 7919 + repeat * 131 + rank)
    return [rng.randint(0, 3) for _ in range(count)]


def inputs_of(program: Program, item: Item, rank: int, repeat: int) -> list[Array]:
    """The rank's tensors, before its mistake."""
    rng = np.random.default_rng([program.seed, item.number, rank, repeat])
    shape = list(item.shape)
    if item.kind == "allgather" and repeat % 2 == 0:
        shape[0] = int(rng.integers(0, 5))
    elif item.kind == "allgather":
        shape[0] = rank % 3
    elif item.kind == "alltoall":
        shape[0] = sum(splits_of(item, rank, repeat))
    return [_values(rng, item, shape) for _ in range(item.tensors)]


# --- the expected results ---


def error_of(item: Item) -> str:
    """The name of the exception that every member gets. Empty if there is none."""
    if item.mistake:
        return "InvalidArgument" if item.mistake == "splits" else "Mismatch"
    if not item.joined:
        return ""
    if item.kind in ("alltoall", "reducescatter") or (item.kind == "broadcast" and item.root in item.joined):
        return "InvalidArgument"
    sums = item.reduction in (SUM, AVERAGE)
    return "InvalidArgument" if item.kind == "allreduce" and not sums and item.prescale != 1.0 else ""


def _reduce_bool(inputs: list[Array], reduction: str) -> Array:
    every = reduction in (MIN, PRODUCT)
    result: Array = np.all(inputs, axis=0) if every else np.any(inputs, axis=0)
    return result


_FUNCTIONS = {SUM: np.add, AVERAGE: np.add, MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}


def _reduce_int(inputs: list[Array], item: Item, members: int) -> Array:
    dtype = inputs[0].dtype
    if item.prescale != 1.0:
        inputs = [np.trunc(one.astype(np.float64) * item.prescale).astype(dtype) for one in inputs]
    total = inputs[0]
    for one in inputs[1:]:
        total = _FUNCTIONS[item.reduction](total, one)
    divisor = members if item.reduction == AVERAGE else 1
    if divisor == 1 and item.postscale == 1.0:
        return total
    limits = np.iinfo(dtype)
    result = np.trunc(total.astype(np.float64) / divisor * item.postscale)
    return np.clip(result, limits.min, limits.max).astype(dtype)


def _reduce_float(inputs: list[Array], item: Item, members: int) -> Array:
    wide = [one.astype(np.float64) * item.prescale for one in inputs]
    total = wide[0]
    for one in wide[1:]:
        total = _FUNCTIONS[item.reduction](total, one)
    factor = item.postscale / members if item.reduction == AVERAGE else item.postscale
    return (total * factor).astype(inputs[0].dtype)


def reduced(inputs: list[Array], item: Item, members: int) -> Array:
    """docs/reference/numerics.md in NumPy. `inputs` are those of the ranks that have data.

    An average divides by all members.
    """
    if inputs[0].dtype.kind == "b":
        return _reduce_bool(inputs, item.reduction)
    if item.dtype in FLOATS:
        with np.errstate(invalid="ignore", over="ignore"):
            return _reduce_float(inputs, item, members)
    with np.errstate(over="ignore"):
        return _reduce_int(inputs, item, members)


def epsilon(dtype: np.dtype[Any]) -> float:
    """The machine epsilon of a floating type, which may be one that NumPy does not have."""
    return float(ml_dtypes.finfo(dtype).eps)


def is_exact(item: Item) -> bool:
    """Whether the result must be NumPy's to the last bit."""
    return (
        item.dtype not in FLOATS
        or item.kind not in ("allreduce", "reducescatter")
        or not (item.rough or item.reduction == AVERAGE)
    )


def _exchanged(all_inputs: list[Array], item: Item, me: int, repeat: int) -> Array:
    blocks = []
    for sender, array in zip(item.members, all_inputs, strict=True):
        splits = splits_of(item, sender, repeat)
        begin = sum(splits[:me])
        blocks.append(array[begin : begin + splits[me]])
    return np.concatenate(blocks)


def _share(whole: Array, members: int, me: int) -> Array:
    rows, more = divmod(whole.shape[0], members)
    begin = me * rows + min(me, more)
    return whole[begin : begin + rows + (1 if me < more else 0)]


def expected(program: Program, item: Item, rank: int, repeat: int) -> list[Array]:
    """The rank's results, one for each tensor."""
    me = item.members.index(rank)
    there = [other for other in item.members if other not in item.joined]
    given = {other: inputs_of(program, item, other, repeat) for other in there}
    results: list[Array] = []
    for index in range(item.tensors):
        inputs = [given[other][index] for other in there]
        if item.kind == "barrier":
            break
        if item.kind == "allgather":
            results.append(np.concatenate(inputs))
        elif item.kind == "broadcast":
            results.append(given[item.root][index])
        elif item.kind == "alltoall":
            results.append(_exchanged(inputs, item, me, repeat))
        elif item.kind == "reducescatter":
            results.append(_share(reduced(inputs, item, len(item.members)), len(item.members), me))
        else:
            results.append(reduced(inputs, item, len(item.members)))
    return results
