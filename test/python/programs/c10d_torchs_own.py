"""Runs tests of torch's distributed_test, one after the other, on ranks that distrun has started.

Arguments: the backend, a folder of all ranks, seconds for each test, names of the tests. Without names: prints the
existing tests. The backend distrun-as-gloo is distrun for tests that check for the name gloo. For each test, each rank
prints a line `outcome RANK TEST passed|skipped|failed TEXT`. A rank that fails ends the job, so later tests need a new
one.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import traceback
import types
import unittest
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

BACKEND, FOLDER, LIMIT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
for name in ("barrier", "test_dir"):
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
os.environ.setdefault("WORLD_SIZE", "1")
os.environ.update(
    BACKEND=BACKEND.removeprefix("distrun-as-"), TEMP_DIR=str(FOLDER), INIT_METHOD=f"file://{FOLDER}/again"
)
# expecttest's TestCase extends unittest's by expected texts in the source, which these tests do not use.
sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)  # type: ignore[assignment]

dist = importlib.import_module("torch.distributed")
common = importlib.import_module("torch.testing._internal.common_distributed")
importlib.import_module("distrun.torch.c10d")  # registers the backend
if BACKEND == "distrun-as-gloo":
    importlib.import_module("distrun._torch_backend").use_distrun(dist.distributed_c10d)
for feature in ("cuda", "ddp", "gpu", "plugin", "subgroup"):
    common.DistTestCases.backend_feature[feature].add("distrun")
common.DistTestCases.skip_collective["sendrecv anysource"].add("distrun")
suite = importlib.import_module("torch.testing._internal.distributed.distributed_test")
if BACKEND == "distrun-as-gloo":  # it reports the name gloo, but has none of gloo's events for torch's profiler
    for supported in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        supported.remove("gloo")

SKIPS = {skip.exit_code for skip in common.TEST_SKIPS.values()}
Base: Any = suite.DistributedTest._DistTestBase
TestCase: Any = suite.TestDistBackend


class Case(TestCase, Base):
    """A test in this process, which is one of the ranks."""

    def __init__(self, test: str, rank: int, number: int) -> None:
        super().__init__(test)
        self.rank = rank
        self.file_name = str(FOLDER / f"init-{number}")


def run(test: str, rank: int, number: int) -> tuple[str, str]:
    if getattr(getattr(Case, test), "__unittest_skip__", False):  # unittest checks this before it calls a test
        return "skipped", getattr(Case, test).__unittest_skip_why__
    case = Case(test, rank, number)
    suite.Barrier.barrier_id = 1000 * number  # ranks that skip a test run none of its barriers
    seconds = suite.CUSTOM_PG_TIMEOUT.get(test, suite.default_pg_timeout)
    dist.init_process_group(
        init_method=case.init_method,
        backend=suite.BACKEND,
        world_size=int(case.world_size),
        rank=rank,
        timeout=timedelta(seconds=seconds),
    )
    case._barrier()
    common.common_utils.set_rng_seed()
    try:
        getattr(case, test)()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as skip:
        if skip.code not in SKIPS:
            raise
        return "skipped", next(known.message for known in common.TEST_SKIPS.values() if known.exit_code == skip.code)
    finally:
        if sys.exc_info()[0] in (None, unittest.SkipTest, SystemExit):
            suite.Barrier.barrier_id = 1000 * number + 999
            case._barrier()
            if dist.is_initialized():
                dist.destroy_process_group()
    return "passed", ""


def main() -> None:
    warnings.simplefilter("ignore")
    if not sys.argv[4:]:
        print("\n".join(name for name in dir(Base) if name.startswith("test_")))
        return
    rank = int(os.environ["RANK"])
    for number, test in enumerate(sys.argv[4:], 1):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            outcome, text = run(test, rank, number)
        except BaseException as error:
            traceback.print_exc()
            outcome, text = "failed", f"{type(error).__name__}: {error}"
        print("outcome", rank, test, outcome, " ".join(text.split())[:300], flush=True)
        if outcome == "failed":
            sys.stderr.flush()
            os._exit(1)


main()
