"""Compares the time to start a job on several hosts, interleaved in one run: distrun, Open MPI's mpirun, MPICH's
mpiexec.hydra, Slurm's srun, and bare ssh to all hosts at once.

    sudo test/cluster/hosts --count 16 --slurm -- .venv/bin/python bench/launch.py [--rounds 10] [--json FILE]

runs it on the head node of hosts in a box, whose names are in HOSTS. One rank per host prints a line. The times run
from the start of the launcher to the first rank's line, to the last rank's line, and to the launcher's end. It also
measures a local job of two ranks that do nothing, the end of a job after a rank has failed, and the memory of launcher
and one agent (PSS). The values are medians over the rounds. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = ["sh", "-c", "echo started"]
# Open MPI's permission to run as root.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FAILING = ["sh", "-c", '[ "$RANK" != 0 ] || exit 3; exec sleep 60']
PEERS = ("bare ssh", "mpirun", "mpiexec.hydra", "srun")
AGAINST_SSH = 1.1
AGAINST_MPIRUN = 1.05
LOCAL_SECONDS = 0.060
TEARDOWN_SECONDS = 1.0
MEMORY_MIB = 20.0

Results = dict[str, float]  # "16 hosts: distrun, first line" -> seconds


def launcher() -> str:
    folders = [
        Path(sys.executable).parent,
        *(ROOT / "build" / name / "launcher" for name in ("release", "dev", "bare")),
    ]
    found = next((path for folder in folders if (path := folder / "distrun").is_file()), None)
    if found is None:
        sys.exit("launch.py: distrun is not built; run scripts/quickstart")
    return str(found)


def commands(hosts: list[str]) -> dict[str, list[str]]:
    """Returns each contender's command that starts one rank on each host."""
    count, names = str(len(hosts)), ",".join(hosts)
    each_ssh = " ".join(f"ssh {host} echo started &" for host in hosts)
    made = {
        "distrun": [launcher(), "--tag", "none", "-np", count, "-H", ",".join(f"{host}:1" for host in hosts), *LINE],
        "bare ssh": ["sh", "-c", f"{each_ssh} wait"],
    }
    if shutil.which("mpirun.openmpi"):
        made["mpirun"] = ["mpirun.openmpi", "-np", count, "-H", ",".join(f"{host}:1" for host in hosts), *LINE]
    if shutil.which("mpiexec.hydra"):
        made["mpiexec.hydra"] = ["mpiexec.hydra", "-n", count, "-hosts", names, *LINE]
    if shutil.which("srun") and subprocess.run(["sinfo"], capture_output=True).returncode == 0:
        made["srun"] = ["srun", f"-N{count}", f"-n{count}", "-w", names, *LINE]
    return made


def environment(name: str) -> dict[str, str]:
    return {**os.environ, **(OPEN_MPI if name == "mpirun" else {})}


def run(name: str, command: list[str], lines: int) -> tuple[float, float, float]:
    """Returns the seconds to the first line, to the last line and to the end."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(name))
    assert process.stdout is not None
    times = [time.perf_counter() - begin for line in process.stdout if line.strip() == b"started"]
    code = process.wait()
    if code != 0 or len(times) != lines:
        sys.exit(f"launch.py: {' '.join(command)} printed {len(times)} of {lines} lines and ended with {code}")
    return times[0], times[-1], time.perf_counter() - begin


def run_hosts(hosts: list[str]) -> Results:
    results: Results = {}
    for name, command in commands(hosts).items():
        what = f"{len(hosts)} hosts: {name}"
        first, last, end = run(name, command, len(hosts))
        results |= {f"{what}, first line": first, f"{what}, last line": last, f"{what}, end": end}
    return results


def run_local() -> Results:
    begin = time.perf_counter()
    subprocess.run([launcher(), "-np", "2", "true"], check=True)
    return {"local: distrun -np 2 true": time.perf_counter() - begin}


def run_failure(hosts: list[str]) -> Results:
    """Measures the time from the end of the failing rank, 0.3 s after its line, to the launcher's end."""
    failing = ["sh", "-c", f"echo started; sleep 0.3; {FAILING[2]}"]
    places = ",".join(f"{host}:1" for host in hosts)
    command = [launcher(), "--tag", "none", "-np", str(len(hosts)), "-H", places, *failing]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    begin = time.perf_counter()
    if (code := process.wait()) != 3:
        sys.exit(f"launch.py: {' '.join(command)} ended with {code} instead of 3")
    return {f"{len(hosts)} hosts: distrun, end after a failure": time.perf_counter() - begin - 0.3}


def pss_mib(pid: str) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def run_memory(hosts: list[str]) -> Results:
    """Returns the MiB of the launcher, and of the agent on the first host with its guard."""
    places = ",".join(f"{host}:1" for host in hosts)
    idle = ["sh", "-c", "echo started; exec sleep 600"]
    command = [launcher(), "--tag", "none", "-np", str(len(hosts)), "-H", places, *idle]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in hosts:
        process.stdout.readline()
    sum_there = "for p in $(pgrep -f 'agent --guard'); do grep ^Pss: /proc/$p/smaps_rollup; done"
    there = subprocess.run(["ssh", hosts[0], sum_there], capture_output=True, text=True).stdout
    agent = sum(int(line.split()[1]) for line in there.splitlines()) / 1024
    own = pss_mib(str(process.pid))
    process.send_signal(signal.SIGTERM)
    process.wait()
    if agent == 0.0:
        sys.exit(f"launch.py: no agent of distrun was found on {hosts[0]}")
    return {f"{len(hosts)} hosts: launcher and agent, MiB": own + agent}


def print_table(rounds: list[Results], counts: list[int]) -> None:
    print("| start to ... | distrun | " + " | ".join(PEERS) + " |\n|" + "---|" * (len(PEERS) + 2))
    for count in counts:
        for part in ("first line", "last line", "end"):
            cells = []
            for name in ("distrun", *PEERS):
                key = f"{count} hosts: {name}, {part}"
                values = [results[key] for results in rounds if key in results]
                cells.append(f"{statistics.median(values) * 1e3:.0f} ms" if values else "")
            print(f"| {part}, {count} hosts | {' | '.join(cells)} |")


def check_targets(rounds: list[Results], counts: list[int]) -> bool:
    met_all = True
    print("\n| target | limit | median | met |\n|---|---|---|---|")

    def check(text: str, limit: float, value: Callable[[Results], float]) -> None:
        nonlocal met_all
        median = statistics.median(value(results) for results in rounds)
        met_all &= median <= limit
        print(f"| {text} | {limit:g} | {median:.3g} | {'yes' if median <= limit else '**no**'} |")

    def ratio(count: int, peer: str, part: str) -> Callable[[Results], float]:
        ours, theirs = f"{count} hosts: distrun, {part}", f"{count} hosts: {peer}, {part}"
        return lambda results: results[ours] / results[theirs]

    for count in counts:
        check(f"last line, {count} hosts, against bare ssh", AGAINST_SSH, ratio(count, "bare ssh", "last line"))
        if f"{count} hosts: mpirun, end" in rounds[0]:
            check(f"first line, {count} hosts, against mpirun", AGAINST_MPIRUN, ratio(count, "mpirun", "first line"))
    check("local -np 2 true, seconds", LOCAL_SECONDS, lambda results: results["local: distrun -np 2 true"])
    for key, limit in (("distrun, end after a failure", TEARDOWN_SECONDS), ("launcher and agent, MiB", MEMORY_MIB)):
        full = f"{counts[-1]} hosts: {key}"
        check(full, limit, lambda results, full=full: results[full])  # type: ignore[misc]
    return met_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="rounds (default 10)")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    options = parser.parse_args()
    hosts = [host for host in os.environ.get("HOSTS", "").split(",") if host]
    if not hosts:
        parser.error("HOSTS is empty; run this by test/cluster/hosts, see --help")
    counts = [count for count in (1, 4, 16, 64) if count <= len(hosts)]
    rounds: list[Results] = []
    for number in range(1, options.rounds + 1):
        print(f"\rround {number} of {options.rounds}", end="", file=sys.stderr, flush=True)
        results = run_local()
        for count in counts:
            results |= run_hosts(hosts[:count])
        rounds.append(results | run_failure(hosts[: counts[-1]]) | run_memory(hosts[: counts[-1]]))
    print(file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))
    print_table(rounds, counts)
    return 0 if check_targets(rounds, counts) else 1


if __name__ == "__main__":
    sys.exit(main())
