"""Small programs, each with one failure: `faults.py NAME`. test/e2e/faults runs them."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import distrun
import distrun.numpy as hvd


def ready() -> None:
    print(f"ready {hvd.rank()} {os.getpid()}", flush=True)


def report(error: distrun.DistrunError) -> None:
    kind = type(error).__name__
    print(f"raised {hvd.rank()} {kind} ranks={list(error.ranks)} tensor={error.tensor} {error}", flush=True)


def raises() -> None:
    """Rank 1 raises while the others are blocked in an operation that needs it."""
    hvd.init()
    if hvd.rank() == 1:
        time.sleep(0.3)
        raise ValueError("the data of rank 1 is broken")
    hvd.allreduce(np.ones(4, np.float32), name="x")


def leaves() -> None:
    """Rank 1 ends normally, but the others need it."""
    hvd.init()
    if hvd.rank() == 1:
        sys.exit(0)
    try:
        hvd.allreduce(np.ones(4, np.float32), name="needed")
    except distrun.RankLeft as error:
        report(error)
        raise


def apart() -> None:
    """Rank APART leaves 2.5 s before all others, or after them with APART_LATE=1. The others work in the meantime."""
    others = [rank for rank in range(int(os.environ["SIZE"])) if rank != int(os.environ["APART"])]
    hvd.init()
    workers = hvd.add_process_set(others)
    hvd.allreduce(np.ones(4, np.float32), name="together")
    alone = hvd.rank() == int(os.environ["APART"])
    begin = time.monotonic()
    if alone == bool(os.environ.get("APART_LATE")):
        while time.monotonic() - begin < 2.5:
            time.sleep(0.05)
        if not alone:
            hvd.allreduce(np.ones(4, np.float32), name="among the others", process_set=workers)
    if os.environ.get("APART_EXPLICIT"):
        hvd.shutdown()
    print(f"leaves {hvd.is_initialized()} {os.environ['RANK']} after {time.monotonic() - begin:.1f}", flush=True)


def unfinished() -> None:
    """Rank 1 leaves with an operation that never completes. Rank 0 works without it."""
    hvd.init()
    own = hvd.add_process_set([0])
    try:
        if hvd.rank() == 1:
            hvd.allreduce_async(np.ones(4, np.float32), name="alone")
            hvd.shutdown()
        while hvd.rank() == 0:
            hvd.allreduce(np.ones(4, np.float32), name="x", process_set=own)
    except distrun.DistrunError as error:
        print(f"raised {os.environ['RANK']} {type(error).__name__} usable={error.usable} {error}", flush=True)


def absent() -> None:
    """Rank 1 never calls init."""
    while os.environ["RANK"] == "1":
        time.sleep(60)
    try:
        hvd.init()
    except distrun.DistrunError as error:
        print(f"raised 0 {type(error).__name__} usable={error.usable} {error}", flush=True)


def exits() -> None:
    """Rank 1 exits with code 3, but the others need it."""
    hvd.init()
    if hvd.rank() == 1:
        sys.exit(3)
    hvd.allreduce(np.ones(4, np.float32), name="needed")


def vanishes() -> None:
    """Rank 1 exits with 0 without a shutdown."""
    hvd.init()
    if hvd.rank() == 1:
        os._exit(0)
    hvd.allreduce(np.ones(4, np.float32), name="needed")


def mismatch() -> None:
    """Shapes differ, then dtypes. Every rank gets the error, and the next operation works."""
    hvd.init()
    rank = hvd.rank()
    for name, value in (
        ("shapes", np.ones(3 + (rank == 1), np.float32)),
        ("dtypes", np.ones(3, np.float64 if rank == 1 else np.float32)),
    ):
        try:
            hvd.allreduce(value, name=name)
        except distrun.Mismatch as error:
            report(error)
    total = hvd.allreduce(np.ones(3, np.float32), name="after", op=hvd.Sum)
    print(f"after {rank} {total[0]:g}", flush=True)


def wait_for_the_test() -> None:
    """Waits until the test creates the file SEEN, after it has seen what it waits for."""
    deadline = time.monotonic() + 100
    while not Path(os.environ["SEEN"]).exists():
        assert time.monotonic() < deadline, "the test has not seen it"
        time.sleep(0.02)


def forgets() -> None:
    """Rank 1 submits `forgotten` after the stall report has named the rank and the tensor."""
    hvd.init()
    if hvd.rank() == 1:
        wait_for_the_test()
    hvd.allreduce(np.ones(4, np.float32), name="forgotten")
    print(f"done {hvd.rank()}", flush=True)


def interrupted() -> None:
    """Blocks for ever in an all-reduce. Ctrl-C must interrupt it."""
    hvd.init()
    begin = time.monotonic()
    try:
        ready()
        if hvd.rank() == 1:
            time.sleep(3600)
        hvd.allreduce(np.ones(4, np.float32), name="x")
    except KeyboardInterrupt:
        print(f"interrupted {hvd.rank()} {time.monotonic() - begin:.2f}", flush=True)
        raise


def sigterm() -> None:
    """A signal handler of the user runs while the all-reduce blocks, and then the all-reduce goes on."""
    hvd.init()
    handled = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: (handled.set(), print("handler ran", flush=True)))
    ready()
    if hvd.rank() == 1:
        wait_for_the_test()
    hvd.allreduce(np.ones(4, np.float32), name="x")
    print(f"done {hvd.rank()} {handled.is_set()}", flush=True)


def starved() -> None:
    """Rank 1 has no memory for the output. The others end before it does."""
    hvd.init()
    hvd.allreduce(np.ones(4, np.float32), name="x")  # now distrun has all the memory that it needs itself
    block = np.ones(64 << 20, np.uint8)
    if hvd.rank() == 1:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
    try:
        hvd.allgather(block, name="gathered")
    except distrun.DistrunError as error:
        report(error)
        time.sleep(3 if hvd.rank() == 1 else 0)
        sys.exit(7 if hvd.rank() == 1 else 8)


def unusable() -> None:
    """Rank 1 receives a broadcast into read-only memory and would go on. torch does not check tensors for this."""
    import torch

    import distrun.torch as hvd_torch

    hvd.init()
    memory = mmap.mmap(-1, 1 << 20, prot=mmap.PROT_READ | (mmap.PROT_WRITE if hvd.rank() != 1 else 0))
    try:
        hvd_torch.broadcast_(torch.frombuffer(memory, dtype=torch.float32), 0, name="into what is read")
        hvd.barrier()
    except distrun.DistrunError as error:
        report(error)
        sys.exit(7)


def limited() -> None:
    """No file of this process may grow beyond 64 KiB, unless CGROUP sets another limit. Shared memory is refused, and
    training goes on."""
    if cgroup := os.environ.get("CGROUP"):
        (Path(cgroup) / "cgroup.procs").write_text("0")
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hvd.init()
    total = hvd.allreduce(np.ones(1 << 20, np.float32), name="x", op=hvd.Sum)
    print(f"sum {total[-1]:g}", flush=True)


def no_memfd() -> None:
    """Prints the sum. The log has the reason why it was not made in shared memory."""
    hvd.init()
    print(f"sum {hvd.allreduce(np.ones(1000, np.float32), name='x', op=hvd.Sum)[0]:g}", flush=True)


def open_things() -> tuple[int, int, int]:
    threads = len(list(Path("/proc/self/task").iterdir()))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return threads, len(os.listdir("/proc/self/fd")), pages * 4096


def again() -> None:
    """Runs init and shutdown 100 times. No thread, descriptor or memory may leak."""
    before = (0, 0, 0)
    for turn in range(100):
        hvd.init()
        hvd.allreduce(np.ones(1000, np.float32), name="x")
        hvd.shutdown()
        gc.collect()
        if turn == 9:
            before = open_things()
    after = open_things()
    assert after[0] <= before[0] and after[1] <= before[1], (before, after)
    assert after[2] - before[2] < 8 << 20, (before, after)
    print("again ok", flush=True)


def forks() -> None:
    """A forked child gets a clear error, and the parent is not affected."""
    hvd.init()
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce(np.ones(1, np.float32), name="child")
        except distrun.NotInitialized as error:
            print(f"child: {error}", flush=True)
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(f"parent {hvd.allreduce(np.ones(1, np.float32), name='x', op=hvd.Sum)[0]:g}", flush=True)


def claims() -> None:
    """Other processes claim the place of rank 0, with the job's key and with a wrong one. Both are refused, the first
    one with the holder's name. The job is not affected."""
    import subprocess

    with open(f"/proc/self/fd/{os.environ['DISTRUN_KEY_FD']}", "rb") as file:  # init closes this descriptor
        key = file.read()
    claim = """
import distrun.numpy as hvd
try:
    hvd.init()
except hvd.DistrunError as error:
    print("usable", error.usable)
    raise
"""
    hvd.init()
    if hvd.rank() == 0:
        variables = {name: value for name, value in os.environ.items() if name != "DISTRUN_KEY_FD"}
        for kind, content in (("true", key), ("wrong", b"k" * 32)):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                done = subprocess.run(
                    [sys.executable, "-c", claim],
                    env={**variables, "DISTRUN_KEY_FILE": file.name, "DISTRUN_START_TIMEOUT": "20"},
                    capture_output=True, text=True, timeout=60,
                )  # fmt: skip
            said = done.stderr.strip().splitlines()[-1]
            assert done.stdout == "usable True\n", done.stdout  # the error has not ended the job
            print(f"claimant with the {kind} key ended with {done.returncode}: {said}", flush=True)
        print(f"holder {os.getpid()}", flush=True)
    print(f"sum {hvd.allreduce(np.ones(1, np.float32), name='x', op=hvd.Sum)[0]:g}", flush=True)


def keys_held() -> list[str]:
    """The descriptors of this process that refer to a job's key."""
    paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [path for path in paths if os.path.lexists(path) and "distrun-key" in os.readlink(path)]


def holds_no_key() -> None:
    """After init no descriptor refers to the key, also in a world of one and after a failed init."""
    assert len(keys_held()) == 1
    if os.environ.get("BAD_SETTING"):
        os.environ["DISTRUN_FUSION_THRESHOLD"] = "many"
        try:
            hvd.init()
        except ValueError as error:
            print(f"refused {error}", flush=True)
        assert not keys_held(), keys_held()
        del os.environ["DISTRUN_FUSION_THRESHOLD"]
    hvd.init()
    assert not keys_held(), keys_held()
    print(f"sum {hvd.allreduce(np.ones(1, np.float32), name='x', op=hvd.Sum)[0]:g}", flush=True)


def guest_asks() -> None:
    """A rank that never calls init starts a program as another user and passes all descriptors to it."""
    import subprocess

    path = f"/proc/self/fd/{os.environ['DISTRUN_KEY_FD']}"
    read = f"import os; os.setuid(65534); print(len(os.read(os.open('{path}', os.O_RDONLY), 64)))"
    asked = f"import os; os.setuid(65534); print(len(os.pread({os.environ['DISTRUN_KEY_FD']}, 64, 0)))"
    for program in (read, asked):
        done = subprocess.run([sys.executable, "-c", program], close_fds=False, capture_output=True, text=True)
        assert done.returncode != 0 and not done.stdout, done
    print("the guest has nothing", flush=True)


def starts() -> None:
    """A rank starts processes that call init: first unchanged, then in each way that the first one's error suggests."""
    import subprocess

    hvd.init()
    program = [sys.executable, "-c", "import distrun.numpy as hvd; hvd.init(); print('of', hvd.size())"]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("DISTRUN_")}
    for name in ("WORLD_SIZE", "TF_CONFIG", "JAX_NUM_PROCESSES"):
        del bare[name]
    launched = [os.environ["LAUNCHER"], "--no-detect", "-np", "1", "--tag", "none", *program]
    for kind, command, variables in (("same", program, None), ("bare", program, bare), ("launched", launched, None)):
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
        said = (done.stdout + done.stderr).strip().splitlines()[-1]
        print(f"{kind} of rank {hvd.rank()} ended with {done.returncode}: {said}", flush=True)


def end_connection() -> None:
    """Shuts down this rank's connection to the launcher."""
    for name in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=os.dup(int(name)))
            peer = connection.getpeername()
            if connection.family == socket.AF_INET and f"{peer[0]}:{peer[1]}" == os.environ["DISTRUN_STORE"]:
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def cut_off() -> None:
    """A firewall cuts rank 1's connection to the launcher. The ranks stay for a while after they have heard of it."""
    hvd.init()
    if hvd.rank() == 1:
        end_connection()
    try:
        while True:
            hvd.allreduce(np.ones(4, np.float32), name="x")
    except distrun.DistrunError as error:
        report(error)
        time.sleep(7)
        raise


def takes_long_to_be_gone() -> None:
    """Rank 1 is killed. The kernel has closed its connections, and takes a while to free its memory.

    With LATE_HEAD the launcher, the parent of the rank's agent, does not run until all others have ended."""
    hvd.init()
    pids = hvd.allgather(np.array([os.getpid()], np.int32), name="pids")
    if hvd.rank() == 1:
        others = [os.pidfd_open(int(pid)) for pid in np.delete(pids, 1)]
        status = Path(f"/proc/{os.getppid()}/status").read_text()
        head = int(status.partition("PPid:")[2].split()[0]) if "LATE_HEAD" in os.environ else 0
        if head:
            os.kill(head, signal.SIGSTOP)
        end_connection()
        for other in others:  # this rank ends after them
            select.select([other], [], [])
        if head:
            os.kill(head, signal.SIGCONT)
            time.sleep(1)  # the launcher sees the ends of the others before that of this rank
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(np.ones(4, np.float32), name="x")


def works() -> None:
    """Reduces until the test creates the file SEEN. Is ready after it has allocated the memory that it needs."""
    hvd.init()
    for step in itertools.count():
        if step == 20:
            ready()
        hvd.allreduce(np.ones(1 << 18, np.float32), name="x")
        seen = np.array([Path(os.environ["SEEN"]).exists()], np.uint8)
        if hvd.allreduce(seen, name="seen", op=hvd.Max)[0]:
            break
    print(f"done {hvd.rank()}", flush=True)


def threads() -> None:
    """16 threads submit 250 tensors each, in different orders on every rank."""
    hvd.init()
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        order = np.random.default_rng(hvd.rank() * 100 + thread).permutation(250)
        try:
            handles = [
                (hvd.allreduce_async(np.full(10, i, np.float32), name=f"t{thread}.{i}", op=hvd.Sum), i) for i in order
            ]
            for handle, i in handles:
                assert hvd.synchronize(handle)[0] == i * hvd.size()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(16)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures
    print(f"threads ok {hvd.rank()}", flush=True)


def crashes() -> None:
    """Rank 1's tensor becomes inaccessible. Its main thread waits outside distrun, so a thread of distrun faults."""
    hvd.init()
    tensor = np.frombuffer(mmap.mmap(-1, 1 << 20), np.float32)
    if hvd.rank() == 1:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(tensor.ctypes.data), ctypes.c_size_t(tensor.nbytes), 0)
    handle = hvd.allreduce_async(tensor, name="x")
    if hvd.rank() == 1:
        threading.Event().wait()
    hvd.synchronize(handle)


PROGRAMS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        raises, leaves, apart, unfinished, absent, exits, vanishes, mismatch, forgets, interrupted, sigterm, starved,
        unusable, limited, no_memfd, again, forks, claims, holds_no_key, guest_asks, starts, cut_off,
        takes_long_to_be_gone, works, threads, crashes,
    )
}  # fmt: skip

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
