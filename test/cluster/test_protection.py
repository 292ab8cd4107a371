"""--encrypt and --checksum between hosts: bytes on the wire, detection of changed bytes, and refusals."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from .jobs import PROGRAMS, assert_nothing_left, run
from .rig import Cluster

PATTERN = b"4 8 15 16 23 42 "
HOSTS = {"tcp": ("-np", "2", "-H", "h1:1,h2:1"), "hierarchical": ("-np", "4", "-H", "h1:2,h2:2")}


def on_the_wire(cluster: Cluster, backend: str, *options: str, wanted: bytes = PATTERN) -> tuple[int, int]:
    """Bytes to and from h1 while ranks on h1 and h2 send the pattern, and how often `wanted` was among them."""
    sniffer = cluster["h1"].popen(
        [sys.executable, PROGRAMS / "sniff.py", wanted.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sniffer.stdin and sniffer.stdout and sniffer.stdout.readline() == "ready\n"
    try:
        where = (*HOSTS[backend], "--oversubscribe", "--timeout", "100")
        done = run(
            cluster.head, *where, "--backend", backend, *options, sys.executable, PROGRAMS / "patterns.py", timeout=120
        )
    finally:
        sniffer.stdin.close()
        words = sniffer.stdout.read().split()
        sniffer.wait(30)
    assert done.returncode == 0 and done.stdout.count("is right") == int(where[1]), done.stdout + done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])
    assert words[0] == "seen", words
    return int(words[1]), int(words[3])


@pytest.mark.parametrize("backend", ["tcp", "hierarchical"])
def test_the_wire_shows_a_pattern_that_encryption_hides(cluster: Cluster, backend: str) -> None:
    size = len(PATTERN) * 40000
    plain, found = on_the_wire(cluster, backend)
    assert plain > size and found > 1000
    hidden, found = on_the_wire(cluster, backend, "--encrypt")
    assert hidden > size and found == 0
    checked, found = on_the_wire(cluster, backend, "--checksum")
    assert checked > size and found > 1000


def test_the_wire_does_not_show_names(cluster: Cluster) -> None:
    assert on_the_wire(cluster, "tcp", "--encrypt", wanted=b"the name of tensor")[1] == 0


@pytest.mark.parametrize("option", ["--encrypt", "--checksum"])
def test_foreign_bytes_on_a_tensor_connection_end_the_job_and_name_their_sender(cluster: Cluster, option: str) -> None:
    where = ("-np", "3", "-H", "h1:1,h2:1,h3:1", "--backend", "tcp", "--timeout", "60")
    done = run(cluster.head, *where, option, sys.executable, PROGRAMS / "scribble.py", "2", timeout=80)
    assert done.returncode not in (0, 124), done.stdout + done.stderr
    assert re.search(r"rank 1\b.*changed on the way", done.stderr), done.stderr
    assert "went on" not in done.stdout
    assert_nothing_left(cluster["h1"], cluster["h2"])


REFUSED = [
    (("--tf",), "TensorFlow opens connections of its own with --tf."),
    (("--tf-roles", "chief=1,worker=1"), "TensorFlow opens connections of its own with --tf-roles."),
    (("--backend", "gloo"), "the backend gloo cannot protect tensors."),
    (("--backend", "mpi"), "the backend mpi cannot protect tensors."),
    (("--backend", "cpu:tcp,cuda:nccl"), "the backend nccl cannot protect tensors."),
    (("--between-hosts", "gloo"), "gloo cannot protect tensors between hosts."),
    (("--between-hosts", "mpi"), "mpi cannot protect tensors between hosts."),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_the_command_shows_to_be_unable_is_refused(cluster: Cluster, options: tuple[str, ...], why: str) -> None:
    for option in ("--encrypt", "--checksum"):
        done = run(cluster.head, "-np", "2", "-H", "h1:1,h2:1", option, *options, "true", timeout=60)
        assert done.returncode == 64, done.stderr
        assert f"{option} is not possible on 2 hosts: {why}" in done.stderr
    # On one host the option has no effect.
    done = run(cluster.head, "-np", "1", "-H", "h1:1", "--encrypt", *options[:1], *options[1:], "true", timeout=60)
    assert "is not possible" not in done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])


ALLREDUCE = "import numpy, distrun.numpy as h; h.init({}); print(h.allreduce(numpy.ones(1), op=h.Sum), flush=True)"


def test_a_backend_that_the_program_asks_for_is_refused_by_init(cluster: Cluster) -> None:
    program = ALLREDUCE.format("settings={'backend': 'gloo'}")
    where = ("-np", "2", "-H", "h1:1,h2:1", "--timeout", "60", "--encrypt")
    done = run(cluster.head, *where, sys.executable, "-c", program, timeout=80)
    assert done.returncode not in (0, 124) and "[2.]" not in done.stdout, done.stdout + done.stderr
    assert "it cannot protect tensors between hosts, as --encrypt demands" in done.stderr, done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])


@pytest.mark.parametrize("option", ["--encrypt", "--checksum"])
def test_auto_takes_what_can_be_protected_and_says_what_is_not(cluster: Cluster, option: str) -> None:
    where = ("-np", "2", "-H", "h1:1,h2:1", "--timeout", "60", "-x", "DISTRUN_LOG_LEVEL=info", option)
    done = run(cluster.head, *where, sys.executable, "-c", ALLREDUCE.format(""), timeout=80)
    assert done.returncode == 0 and done.stdout.count("[2.]") == 2, done.stdout + done.stderr
    assert "process set 0: cpu: tcp" in done.stderr, done.stderr
    warnings = done.stderr.count("does not encrypt the sockets that your program opens itself")
    assert warnings == (1 if option == "--encrypt" else 0)


@pytest.mark.parametrize(
    ("backend", "options"), [("gloo", ()), ("distrun", ()), ("gloo", ("--torch-backend", "distrun"))]
)
def test_groups_of_torchs_own_backends_are_refused(cluster: Cluster, backend: str, options: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    program = PROGRAMS / "torch_group.py"
    where = ("-np", "2", "-H", "h1:1,h2:1", "--timeout", "100", "--encrypt", *options)
    done = run(cluster.head, *where, sys.executable, program, backend, timeout=120)
    if backend == "distrun" or options:
        assert done.returncode == 0 and done.stdout.count("sum 2.0") == 2, done.stdout + done.stderr
    else:
        assert done.returncode == 1 and "sum" not in done.stdout, done.stdout + done.stderr
        assert "torch.distributed's own backend gloo sends tensors to other hosts without protection" in done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])


@pytest.mark.parametrize("start", ["shell", "script", "child"])
def test_torchs_own_backends_are_refused_however_python_is_started(cluster: Cluster, start: str) -> None:
    pytest.importorskip("torch")
    program, python = str(PROGRAMS / "torch_group.py"), sys.executable
    child = f"import subprocess; subprocess.run([{python!r}, {program!r}, 'gloo'], check=True)"
    command = {
        "shell": ["sh", "-c", f"{python} {program} gloo"],
        "script": [str(PROGRAMS / "wrapper.sh"), python, program, "gloo"],
        "child": [python, "-c", child],
    }[start]
    where = ("-np", "2", "-H", "h1:1,h2:1", "--timeout", "100", "--encrypt")
    done = run(cluster.head, *where, *command, timeout=120)
    assert done.returncode == 1 and "sum" not in done.stdout, done.stdout + done.stderr
    assert "torch.distributed's own backend gloo sends tensors to other hosts without protection" in done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])
