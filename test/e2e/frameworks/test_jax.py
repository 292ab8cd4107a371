"""distrun.jax and jax.distributed with the real JAX. jax.distributed finds the job through distrun, or by --mimic."""

from __future__ import annotations

import re
import subprocess

import pytest
from environments import environment_python

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import COMPILE_FAST, TWO_JOBS, Completed, RunFramework, assert_trained, run_with


@pytest.fixture(scope="module")
def jax_python() -> str:
    return str(environment_python("jax"))


@pytest.fixture
def run_jax(jax_python: str) -> RunFramework:
    return run_with(jax_python)


def assert_found_each_other(done: Completed) -> None:
    assert done.returncode == 0, done.stderr
    # JAX uses Gloo between CPUs, and Gloo prints that it is connected.
    lines = [line for line in done.stdout.splitlines() if "[Gloo]" not in line]
    assert sorted(lines) == ["[0] process 0 of 2: 3.0", "[1] process 1 of 2: 3.0"]


@pytest.mark.parametrize(
    ("options", "word"),
    [((), "ours"), (("--mimic", "openmpi"), "theirs"), (("--mimic", "slurm"), "theirs"), ((), "address")],
)
def test_processes_find_each_other(run_jax: RunFramework, options: tuple[str, ...], word: str) -> None:
    """Also if the script itself gives the coordinator's address, as scripts for torchrun do. A proxy is not used."""
    nobody = {"http_proxy": "http://127.0.0.1:9"}
    assert_found_each_other(run_jax("-np", "2", *options, program="jax_psum.py", words=(word,), env=nobody))


@pytest.mark.full
def test_processes_of_an_older_version_find_each_other_in_a_slurm_job(run_jax: RunFramework) -> None:
    python = environment_python("jax-0.6")
    slurm = {"SLURM_JOB_ID": "7"}
    assert_found_each_other(run_jax("-np", "2", program="jax_psum.py", words=("ours",), python=python, env=slurm))


def test_without_the_launcher_the_cure_is_named(jax_python: str) -> None:
    done = subprocess.run(
        [jax_python, "-c", "import distrun.jax; distrun.jax.initialize_distributed()"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "start the program with distrun -np N" in done.stderr


@pytest.mark.parametrize(("ranks", "options"), [(1, ()), (2, ()), (3, ("--backend", "tcp"))])
def test_operations(run_jax: RunFramework, ranks: int, options: tuple[str, ...]) -> None:
    """Operations outside and inside compiled programs, their gradients and errors; jax_ops.py has the list."""
    program = str(ROOT / "test/python/programs/jax_ops.py")
    env = {**COMPILE_FAST, "DISTRUN_STALL_WARNING_TIME": "3"}  # so long do calls with different numbers of arrays wait
    done = run_jax("-np", str(ranks), "--oversubscribe", *options, program=program, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["jax_gradients.py", "jax_optimizer.py", "jax_line_searches.py", "jax_ahead.py", "jax_dtypes.py"]
)
def test_optimizers_and_programs_in_flight(run_jax: RunFramework, name: str, ranks: int) -> None:
    program = str(ROOT / "test/python/programs" / name)
    done = run_jax("-np", str(ranks), "--oversubscribe", program=program, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


@pytest.mark.parametrize(
    ("ranks", "version"), [(1, "jax"), (2, "jax"), pytest.param(2, "jax-0.6", marks=pytest.mark.full)]
)
def test_plain_mistakes(run_jax: RunFramework, ranks: int, version: str) -> None:
    """Mistakes are refused with the argument and its value. So are barriers, join and objects in compiled functions."""
    program, python = str(ROOT / "test/python/programs/jax_mistakes.py"), environment_python(version)
    done = run_jax("-np", str(ranks), "--oversubscribe", program=program, python=python, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


@pytest.mark.parametrize("version", ["jax", pytest.param("jax-0.6", marks=pytest.mark.full)])
def test_programs_that_are_scheduled_differently(run_jax: RunFramework, version: str) -> None:
    """Without the order of the program, the ranks would wait for each other in different operations."""
    done = run_jax("-np", "2", program="jax_order.py", python=environment_python(version))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("in_a_loop done") == 2, done.stdout


def test_several_devices_of_a_rank(run_jax: RunFramework) -> None:
    program, check = str(ROOT / "test/python/programs/jax_ops.py"), "check_several_devices_of_a_rank"
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = run_jax("-np", "1", program=program, words=(check,), env=two)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks passed" in done.stdout


@pytest.mark.parametrize("version", ["jax", pytest.param("jax-0.6", marks=pytest.mark.full)])
def test_the_way_of_programs_on_gpus(run_jax: RunFramework, version: str) -> None:
    """The native handler is used if the job moves CUDA tensors. Otherwise the data goes through host memory."""
    plugin = ROOT / "build/dev/test/backend/plugins/fake/libdistrun_backend_nccl.so"
    if not plugin.exists():
        pytest.skip("the plug-in nccl above a fake of CUDA is not built: scripts/test does that")
    program, python = str(ROOT / "test/python/programs/jax_fake_gpu.py"), environment_python(version)
    done = run_jax("-np", "1", program=program, python=python, env={"DISTRUN_PLUGINS": str(plugin)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks passed" in done.stdout


@pytest.mark.full
@pytest.mark.timeout(TWO_JOBS)
def test_the_same_native_files_with_an_older_version(run_jax: RunFramework) -> None:
    pythons = [environment_python(name) for name in ("jax", "jax-0.6")]
    done = [
        run_jax("-np", "1", "--tag", "none", program="native_files.py", python=python, alone=True) for python in pythons
    ]
    new, old = (re.findall(r"^file (\S+) (.+)$", one.stdout, re.MULTILINE) for one in done)
    assert new and [file for _, file in new] == [file for _, file in old], [one.stdout + one.stderr for one in done]
    assert any(file.startswith("libdistrun_jax.so ") for _, file in new), new
    assert not any("which are slower" in one.stderr for one in done), [one.stderr for one in done]
    assert {version for version, _ in old} != {version for version, _ in new}


def test_mnist(run_jax: RunFramework) -> None:
    done = run_jax("-np", "2", program=str(ROOT / "examples/jax_mnist.py"), alone=True)
    assert_trained(done, 0.88)


def test_next_to_jax_distributed(run_jax: RunFramework) -> None:
    done = run_jax("-np", "2", program="jax_both.py")
    assert done.returncode == 0, done.stderr
    assert sum("both agree: 3.0" in line for line in done.stdout.splitlines()) == 2


@pytest.mark.parametrize("word", ["alone", "init", "after"])
def test_an_exception_of_a_rank_that_jax_waits_for(start_job: StartJob, jax_python: str, word: str) -> None:
    """At exit JAX waits up to 300 s for the other processes, and these wait for this one."""
    job = start_job("-np", "2", "--grace", "2", "--timeout", "100", jax_python, PROGRAMS / "jax_raises.py", word)
    assert job.finish(120) == 1, job.text
    assert re.search(
        r"distrun: rank 1 on host localhost .* (raised|failed:) ValueError: a bad batch \(jax_raises", job.text
    )
    assert "[1] ValueError: a bad batch" in job.text and "[1] buffered" in job.text, job.text


def test_a_rank_that_dies_in_a_step(start_job: StartJob, jax_python: str) -> None:
    """The other rank's compiled program ends at once, with an error that names the dead rank."""
    job = start_job("-np", "2", jax_python, PROGRAMS / "jax_killed.py")
    assert job.finish(120) == 137, job.text
    raised = re.search(r"told after (\d+\.\d+) s: (.*)", job.text)
    assert raised and float(raised[1]) < 2, job.text
    assert "RankLost" in raised[2] and "ranks=(1,)" in raised[2] and "SIGKILL" in raised[2], job.text


def test_a_rank_with_fewer_batches_leaves(start_job: StartJob, jax_python: str) -> None:
    """The operation that the other rank waits for fails at once, and names the rank that left."""
    job = start_job("-np", "2", jax_python, PROGRAMS / "jax_leaves.py")
    assert job.finish(120) == 76, job.text
    left, raised = re.search(r"leaves (\S+)", job.text), re.search(r"told (\S+) (.*)", job.text)
    assert left and raised and float(raised[1]) - float(left[1]) < 5, job.text
    assert "RankLeft ranks=(0,)" in raised[2] and "allreduce.gradient" in raised[2], job.text


@pytest.mark.parametrize("how", ["join", "end", "exit", "finally", "shutdown", "thread"])
def test_steps_that_jax_has_not_begun_are_made_first(run_jax: RunFramework, how: str) -> None:
    """Rank 0 reaches its end with dispatched steps that rank 1 has not run yet. They have the values of both ranks."""
    done = run_jax("-np", "2", program="jax_in_flight.py", words=(how,), alone=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"left after {how}") == 2, done.stdout


@pytest.mark.full
def test_steps_that_an_older_version_has_not_begun_are_made_first(run_jax: RunFramework) -> None:
    done = run_jax(
        "-np", "2", program="jax_in_flight.py", words=("end",), alone=True, python=environment_python("jax-0.6")
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shutdown_after_an_exception_waits_for_no_step(start_job: StartJob, jax_python: str) -> None:
    """The other rank waits in a barrier and would never run the step."""
    job = start_job("-np", "2", "--all-errors", jax_python, PROGRAMS / "jax_in_flight.py", "raises")
    assert job.finish(60) != 0
    assert "ValueError: before the barrier" in job.text and "RankLeft" in job.text, job.text


@pytest.mark.parametrize("what", ["join", "shutdown"])
def test_what_waits_for_programs_raises_in_their_callbacks(run_jax: RunFramework, what: str) -> None:
    done = run_jax("-np", "2", program="jax_in_callback.py", words=(what,))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("left") == 2, done.stdout
