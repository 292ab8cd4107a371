"""The store of init_process_group("distrun") is that of the job. It has torch's semantics and needs no port of torch.

Arguments: a folder of all ranks; "gone": the last rank ends while the others wait in the store.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from checks import raises

import distrun.torch.c10d  # noqa: F401  # registers the backend
from distrun import errors

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def listening() -> list[str]:
    """The listening TCP sockets of this process."""
    inodes = {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if os.path.lexists(one)}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes]


def check_no_port(what: str) -> None:
    dist.barrier()  # by now rank 0 would listen
    assert not listening(), f"{what}: {listening()}"
    with raises(OSError):
        socket.create_connection(PLACE, timeout=5).close()


@contextmanager
def group(**options: Any) -> Iterator[Any]:
    dist.init_process_group("distrun", **options)
    yield dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()


def check_operations(store: Any, name: str) -> None:
    """Operations of one rank, on keys that no other rank has."""
    key = f"{name}/{RANK}"
    assert not store.check([key]) and store.add(f"{key}n", 3) == 3 and store.add(f"{key}n", -5) == -2
    assert store.get(f"{key}n") == b"-2" and store.check([f"{key}n"])
    store.set(key, "text")
    assert store.get(key) == b"text" and store.check([key, f"{key}n"])
    store.set(key, "\0\xff" if name == "direct" else "other")
    assert store.compare_set(key, "wrong", "new") == store.get(key) != b"new"
    assert store.compare_set(key, store.get(key).decode(), "new") == b"new" == store.get(key)
    assert store.compare_set(f"{key}c", "expected", "new") == b"expected" and not store.check([f"{key}c"])
    assert store.compare_set(f"{key}c", "", "new") == b"new" and store.compare_set(f"{key}c", "", "newer") == b"new"
    store.set(f"{key}e", "")
    assert store.get(f"{key}e") == b"" and store.compare_set(f"{key}e", "", "full") == b"full"
    assert store.delete_key(key) and not store.delete_key(key) and not store.check([key])
    store.append(key, "one")
    store.append(key, "two")
    assert store.get(key) == b"onetwo" and store.has_extended_api()
    store.multi_set([f"{key}1", f"{key}2"], ["a", "b"])
    assert store.multi_get([f"{key}1", f"{key}2"]) == [b"a", b"b"]
    store.set(f"{key}large", "x" * (1 << 20))
    assert len(store.get(f"{key}large")) == 1 << 20
    with raises(ValueError, "1 MiB", "large2", str((1 << 20) + 1)):
        store.set(f"{key}large2", "x" * ((1 << 20) + 1))
    with raises(errors.InvalidArgument, "key", "1 KiB"):
        store.set("k" * 1025, "x")
    began = time.monotonic()
    with raises(dist.DistStoreError, "nobody"):
        store.wait([f"{key}1", "nobody"], timedelta(seconds=0.7))
    assert 0.6 < time.monotonic() - began < 60
    before = store.num_keys()
    store.set(f"{key}more", "x")
    assert store.num_keys() >= before + (SIZE == 1)


def check_together(store: Any, name: str) -> None:
    counted = [store.add(f"{name}/count", 1) for _ in range(20)]
    assert counted == sorted(set(counted))
    for _ in range(10):
        store.append(f"{name}/row", str(RANK))
    dist.barrier()
    assert store.add(f"{name}/count", 0) == 20 * SIZE and len(store.get(f"{name}/row")) == 10 * SIZE
    if RANK == 0:
        time.sleep(0.2)  # the others wait by now, or come later; both must work
        store.set(f"{name}/late", "here")
        store.add(f"{name}/late counter", 7)
    store.wait([f"{name}/late", f"{name}/late counter"])
    assert store.multi_get([f"{name}/late", f"{name}/late counter"]) == [b"here", b"7"]
    others: list[Any] = []
    waits = threading.Thread(target=lambda: others.append(store.get(f"{name}/of a thread")))
    waits.start()
    dist.all_reduce(torch.ones(1))  # works while another thread waits
    dist.barrier()
    if RANK == SIZE - 1:
        store.set(f"{name}/of a thread", "set")
    waits.join()
    assert others == [b"set"]


def check_what_uses_it(folder: Path) -> None:
    beside = dist.new_group(backend="gloo")
    count = torch.ones(1)
    dist.all_reduce(count, group=beside)
    assert count.item() == SIZE
    dist.monitored_barrier(group=beside)
    half = dist.new_group([0])
    if RANK == 0:
        dist.all_reduce(count, group=half)
    mesh = dist.init_device_mesh("cpu", (SIZE,), mesh_dim_names=("dp",))
    dist.all_reduce(count, group=mesh.get_group("dp"))
    state = {"weights": torch.arange(4.0), "step": 3}
    checkpoint.save(state, checkpoint_id=str(folder / "checkpoint"))
    loaded = {"weights": torch.zeros(4), "step": 0}
    checkpoint.load(loaded, checkpoint_id=str(folder / "checkpoint"))
    assert loaded["step"] == 3 and torch.equal(loaded["weights"], state["weights"])


def is_ours(store: Any) -> bool:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return type(store).__name__ == ("DistrunStore" if SIZE > 1 else "HashStore")  # HashStore is local to this process


def check_all(folder: Path) -> None:
    url = {"init_method": f"tcp://{PLACE[0]}:{PLACE[1]}", "rank": RANK, "world_size": SIZE}
    for name, options in (("env", {}), ("tcp", url), ("again", {"timeout": timedelta(seconds=100)})):
        with group(**options) as store:
            assert is_ours(store), store
            check_no_port(name)
            if SIZE == 1:
                continue
            check_operations(store, name)
            check_together(store, name)
            ours = store.underlying_store
            check_operations(ours, "direct")
            check_operations(dist.PrefixStore("inner", store.clone()), "clone")
            assert not store.check(["env/count"]) or name == "env"  # the groups have separate keys
            if name == "env":
                check_what_uses_it(folder)
    for asked in ("cpu:distrun", "cpu:distrun,cuda:distrun"):
        dist.init_process_group(asked)
        assert is_ours(dist.distributed_c10d._get_default_store())
        dist.destroy_process_group()
    given = dist.FileStore(str(folder / "given"), SIZE)
    with group(store=given, rank=RANK, world_size=SIZE) as store:
        assert not is_ours(store)
        dist.barrier()
    dist.init_process_group("gloo")  # torch's own gloo, unchanged
    assert not is_ours(dist.distributed_c10d._get_default_store())
    dist.barrier()
    dist.destroy_process_group()


def wait_for_a_rank_that_goes() -> None:
    dist.init_process_group("distrun")
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if RANK == SIZE - 1:
        os._exit(3)
    began = time.monotonic()
    try:
        store.get("of the last rank")
    except errors.DistrunError as error:
        print(f"got {type(error).__name__} after {time.monotonic() - began:.2f} s: {error}", flush=True)
        raise


if __name__ == "__main__":
    if sys.argv[2:] == ["gone"]:
        wait_for_a_rank_that_goes()
    check_all(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
    print("all checks passed", flush=True)
