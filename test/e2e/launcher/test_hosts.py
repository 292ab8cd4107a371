"""Sources of hosts: files, standard input, and the allocation where the command was typed."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from ..conftest import launcher_path
from .test_command import run, shell

THIS = socket.gethostname()
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "alone",
    "SLURM_NTASKS": "3",
    "SLURM_TASKS_PER_NODE": "3",
    "SLURMD_NODENAME": "alone",
}


# A Slurm job with two components. Its variables do not show the GPUs that were requested for the second one.
HET = {
    "SLURM_JOB_ID": "7",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "here",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "other",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
    "SLURMD_NODENAME": "here",
}


def ranks_of(output: str) -> list[str]:
    return sorted(line.split(maxsplit=1)[1] for line in output.splitlines())


def test_hosts_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_bytes(b"# this machine\r\n\r\nlocalhost slots=2\r\n127.0.0.1:1\r\n")
    done = shell("--hostfile", str(hostfile), script="echo $LOCAL_RANK of $LOCAL_WORLD_SIZE")
    assert ranks_of(done.stdout) == [f"{rank} of 3" for rank in range(3)], done.stderr
    done = shell("--hostfile", "-", script="echo $RANK", stdin="localhost\nlocalhost\n")
    assert ranks_of(done.stdout) == ["0", "1"], done.stderr
    done = run("--hostfile", "-", "true", stdin="localhost\nbox slots=x\n")
    assert done.returncode == 64
    assert "standard input:2:11: 'x' is not a number of slots" in done.stderr
    assert done.stderr.endswith("\n  box slots=x\n            ^\n")


def test_a_hostfile_that_is_not_there() -> None:
    done = run("--hostfile", "/no/such/hosts", "true")
    assert done.returncode == 64
    assert "--hostfile: cannot read /no/such/hosts: No such file" in done.stderr


def test_an_allocation_of_this_machine_is_a_local_run_with_its_slots() -> None:
    done = shell(script="echo $RANK of $WORLD_SIZE at $DISTRUN_HOST", env=SLURM)
    assert ranks_of(done.stdout) == [f"{rank} of 3 at alone" for rank in range(3)], done.stderr
    assert "distrun: found Slurm job 7: 1 host and 3 slots (one per task)" in done.stderr
    assert shell("-np", "2", script="true", env=SLURM).returncode == 0


def test_a_nodefile_with_full_names(tmp_path: Path) -> None:
    name = THIS if "." in THIS else f"{THIS}.cluster.example"
    (tmp_path / "nodes").write_text(f"{name}\n{name}\n")
    done = shell(script="echo $RANK of $WORLD_SIZE", env={"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "7"})
    assert ranks_of(done.stdout) == ["0 of 2", "1 of 2"], done.stderr
    assert "found PBS job 7: 1 host and 2 slots" in done.stderr


def test_one_line_for_each_host_gives_no_slot_count(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text(f"{THIS}\nother\n")
    job = {"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "7"}
    done = run("--explain=json", "-np", "4", "--nproc-per-node", "2", "true", env=job)
    assert [rank["host"] for rank in json.loads(done.stdout)["ranks"]] == [THIS, THIS, "other", "other"], done.stderr
    plan = run("--explain=json", "true", env=job)
    found = "found PBS job 7: 2 hosts (one per GPU, or 1 without GPUs): "
    assert any(reason.startswith(found) for reason in json.loads(plan.stdout)["reasons"]), plan.stdout
    full = run("--explain", "-np", "8", "true", env=job)
    assert full.returncode == 69 and "Give each host its ranks with --nproc-per-node 4, ask PBS for" in full.stderr


def test_a_host_with_no_slots_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\nh2 slots=0\n")
    for hosts in (["--hostfile", str(tmp_path / "hosts")], ["-H", "localhost:2,h2:0"]):
        done = shell(*hosts, script="echo $RANK of $WORLD_SIZE")
        assert ranks_of(done.stdout) == ["0 of 2", "1 of 2"], done.stderr
        assert "distrun: h2 is left out: it has 0 slots\n" in done.stderr
    none = run("-H", "h[1-2]:0", "true")
    assert none.returncode == 64 and "no host is left: h[1-2] are left out: they have 0 slots" in none.stderr


def test_a_slurm_job_that_is_over_is_told_with_the_way_out(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\necho 'srun: error: Unable to confirm allocation for job 7: Invalid job id specified' >&2\nexit 1\n"
    )
    srun.chmod(0o755)
    done = run("true", env={**SLURM, "SLURMD_NODENAME": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 69 and "the job is over, but its variables are still set" in done.stderr, done.stderr
    assert "add --no-detect" in done.stderr


@pytest.mark.skipif("." in THIS, reason="this machine knows its domain")
def test_a_machine_of_another_domain_with_our_name_is_not_this_one() -> None:
    done = run("-H", f"{THIS}.elsewhere.invalid:1", "true")
    assert done.returncode == 69 and f"{THIS}.elsewhere.invalid" in done.stderr, done.stderr


def test_what_is_typed_counts_more_than_an_allocation() -> None:
    for options in (["-H", "localhost:1"], ["--no-detect", "-np", "1"]):
        done = shell(*options, script="echo $RANK of $WORLD_SIZE", env=SLURM)
        assert ranks_of(done.stdout) == ["0 of 1"], done.stderr
        assert "found" not in done.stderr


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"SLURM_JOB_NODELIST": "node[1-"}, "SLURM_JOB_NODELIST, column 5: this '[' has no matching ']'"),
        ({"SLURM_TASKS_PER_NODE": "3(x2)"}, "SLURM_TASKS_PER_NODE=3(x2) is for 2 hosts"),
        ({"SLURM_JOB_NODELIST": "", "PBS_NODEFILE": "/no/such/nodes"}, "PBS_NODEFILE cannot be used: cannot read"),
    ],
)
def test_a_broken_allocation_names_the_variable(changed: dict[str, str], text: str) -> None:
    done = run("-np", "1", "true", env={**SLURM, **changed})
    assert done.returncode == 69
    assert text in done.stderr and "--no-detect" in done.stderr
    assert run("--no-detect", "-np", "1", "true", env={**SLURM, **changed}).returncode == 0


@pytest.mark.parametrize(
    "hosts",
    [[], ["-H", "localhost:3"], ["--hostfile", "hosts"], ["-np", "3"]],
    ids=["found", "-H", "--hostfile", "-np"],
)
def test_of_several_copies_one_starts_the_job(hosts: list[str], tmp_path: Path) -> None:
    """`srun -n3 distrun ...` starts copies, as is usual for torchrun. Three whole jobs would share the same GPUs."""
    (tmp_path / "hosts").write_text("localhost slots=3\n")
    step = {**SLURM, "SLURM_STEP_NUM_TASKS": "3"}
    second = run(*hosts, "true", env={**step, "SLURM_PROCID": "1"}, cwd=tmp_path)
    assert second.returncode == 64
    assert "copy 1 of 3 copies of this command (SLURM_STEP_NUM_TASKS=3)" in second.stderr
    assert "type distrun once" in second.stderr
    third = run(*hosts, "true", env={**step, "SLURM_PROCID": "2"}, cwd=tmp_path)
    assert (
        third.returncode == 64
        and third.stderr.startswith("distrun: this is copy 2 of 3")
        and third.stderr.count("\n") == 1
    )
    first = shell(*hosts, script="echo $RANK of $WORLD_SIZE", env={**step, "SLURM_PROCID": "0"}, cwd=tmp_path)
    assert ranks_of(first.stdout) == [f"{rank} of 3" for rank in range(3)], first.stderr
    assert first.stderr.count("This copy starts the job") == 1
    explained = run(*hosts, "--explain", "true", env={**step, "SLURM_PROCID": "0"}, cwd=tmp_path)
    assert explained.stdout.count("This copy starts the job") == 1 and explained.stderr == ""
    own = run("--no-detect", "-np", "1", *(hosts if "-H" in hosts else []), "true", env={**step, "SLURM_PROCID": "1"})
    assert own.returncode == 0, own.stderr


def test_copies_of_mpirun_and_what_is_no_copy() -> None:
    by_mpirun = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    for env in (by_mpirun, {**SLURM, **by_mpirun}):
        refused = run("-np", "1", "true", env=env)
        assert refused.returncode == 64 and "OMPI_COMM_WORLD_SIZE=2" in refused.stderr
        assert run("--no-detect", "-np", "1", "true", env=env).returncode == 0
    step_of_one = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    batch_script = {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    for env in (step_of_one, {**batch_script, "SLURM_ARRAY_TASK_ID": "2"}):
        done = run("-H", "localhost:1", "true", env=env)
        assert done.returncode == 0 and "cop" not in done.stderr, done.stderr


def test_a_pods_variables_for_torchrun_are_no_reason_to_start_a_job_in_each_pod() -> None:
    refused = run("-np", "1", "true", env={"PET_NNODES": "2", "PET_NODE_RANK": "1"})
    assert refused.returncode == 64 and "distrun --agents N" in refused.stderr, refused.stderr
    rank = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0"}
    warned = shell("-np", "1", script="echo $RANK of $WORLD_SIZE", env=rank)
    assert warned.returncode == 0 and ranks_of(warned.stdout) == ["0 of 1"], warned.stderr
    assert warned.stderr.count("\n") == 1 and "distrun --agents N" in warned.stderr, warned.stderr
    assert run("--no-detect", "-np", "1", "true", env=rank).stderr == ""


def test_a_platforms_tasks_are_told_that_each_starts_a_job() -> None:
    tasks = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1"}
    warned = shell("-np", "1", script="echo $RANK of $WORLD_SIZE", env=tasks)
    assert warned.returncode == 0 and ranks_of(warned.stdout) == ["0 of 1"], warned.stderr
    assert warned.stderr.count("\n") == 1 and "SM_HOSTS names 2 tasks. " in warned.stderr, warned.stderr
    assert run("--no-detect", "-np", "1", "true", env=tasks).stderr == ""


def test_agents_of_a_copy_are_never_refused(tmp_path: Path) -> None:
    """srun gives the agents the same variables of a step as it gives copies of the command."""
    launch = "env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 sh -c {agent}"
    done = shell("--launch-with", launch, "--network", "lo", "-H", "far:2", script="echo $RANK", env={}, cwd=tmp_path)
    assert ranks_of(done.stdout) == ["0", "1"], done.stderr


def test_a_user_needs_a_place_in_launch_with(tmp_path: Path) -> None:
    there = f"sh -c 'echo as {{user}} >>{tmp_path}/who; exec sh -c \"$0\"' {{agent}}"
    done = shell("--launch-with", there, "--network", "lo", "-H", "me@far:1,you@away:1", script="echo $RANK")
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["[0] 0", "[1] 1"], done.stderr
    assert sorted((tmp_path / "who").read_text().splitlines()) == ["as me", "as you"]
    refused = run("--launch-with", "sh -c {agent}", "-H", "me@far:1", "true")
    assert refused.returncode == 64 and "needs {user}, because of me@far" in refused.stderr
    refused = run("--launch-with", there, "-H", "far:1", "true")
    assert refused.returncode == 64 and "write user@far" in refused.stderr


def test_srun_starts_agents_without_the_options_that_the_job_was_asked_for_with(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nenv | grep -E "^(SLURM_GPUS|SLURM_MEM|SRUN)" >&2 && exit 1\nshift 7\nexec "$@"\n')
    srun.chmod(0o755)
    asked = {"SLURM_GPUS": "8", "SLURM_MEM_PER_CPU": "100", "SRUN_CPUS_PER_TASK": "2"}
    job = {**SLURM, **asked, "SLURMD_NODENAME": "other", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = shell("-np", "1", "--network", "lo", script="echo $RANK of $WORLD_SIZE at $DISTRUN_HOST", env=job)
    assert ranks_of(done.stdout) == ["0 of 1 at alone"], done.stderr
    own = shell("--no-detect", "-np", "1", script="echo $SLURM_MEM_PER_CPU", env=job)
    assert own.stdout == "[0] 100\n"  # the ranks keep these variables


def test_after_sbatch_export_none_ranks_on_other_hosts_have_what_the_host_gives_them(tmp_path: Path) -> None:
    """sbatch --export=NONE sets SLURM_EXPORT_ENV, and srun obeys it: its tasks then have none of these variables."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nshift 7\n[ "$SLURM_EXPORT_ENV" = NONE ] && exec env -i PATH="$PATH" "$@"\nexec "$@"\n')
    srun.chmod(0o755)
    job = {**SLURM, "SLURM_EXPORT_ENV": "NONE", "SLURMD_NODENAME": "other", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = shell("-np", "1", "--network", "lo", script="echo home $HOME", env={**job, "HOME": "/home/me"})
    assert ranks_of(done.stdout) == ["home /home/me"], done.stderr


def test_an_image_without_srun_is_told_what_to_do_about_it(tmp_path: Path) -> None:
    done = run("-np", "1", "true", env={**SLURM, "SLURMD_NODENAME": "other", "PATH": str(tmp_path)})
    assert done.returncode == 69 and "srun is not in PATH" in done.stderr, done.stderr
    assert "start distrun outside and run the container as the program" in done.stderr


def test_an_image_on_each_host_as_the_page_has_it(tmp_path: Path) -> None:
    """Does what ssh does: it joins its words to one line for a shell on the other host."""
    page = (Path(__file__).resolve().parents[3] / "docs/howto/containers.md").read_text()
    [line] = re.findall(r"--launch-with ('ssh \{host\} singularity .*?') \\\n", page)
    for name, text in {
        "ssh": 'echo "$1" >> hosts; shift; exec sh -c "$*"',
        "singularity": 'shift 3; exec "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    with_fakes = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = shell("--launch-with", *shlex.split(line), "--network", "lo", "-H", "far:2", script="echo $RANK",
                 env=with_fakes, cwd=tmp_path)  # fmt: skip
    assert ranks_of(done.stdout) == ["0", "1"], done.stderr
    assert (tmp_path / "hosts").read_text() == "far\n"


def test_a_folder_for_temporary_files_counts_where_it_is(tmp_path: Path) -> None:
    """A scheduler may have created TMPDIR on the first host only."""
    launch = ["--launch-with", f"env TMPDIR={tmp_path} TMP=/no/more sh -c {{agent}}", "--network", "lo", "-H", "far:1"]
    here = {"TMPDIR": "/no/such/job.7", "TMP": "/no/such/job", "TEMP": "/usr"}
    script = "echo $TMPDIR ${TMP-none} $TEMP"
    done = shell("-v", *launch, script=script, env=here)
    assert done.stdout == f"[0] {tmp_path} none /usr\n", done.stderr
    assert f"on far: TMPDIR is {tmp_path}, because /no/such/job.7 is not a folder on this host\n" in done.stderr
    assert "on far: TMP is not set, because /no/such/job is not a folder on this host\n" in done.stderr
    carried = shell("-x", "TMPDIR", *launch, script=script, env=here)
    assert carried.stdout == "[0] /no/such/job.7 none /usr\n", carried.stderr
    local = shell("-np", "1", script=script, env=here)
    assert local.stdout == "[0] /no/such/job.7 /no/such/job /usr\n", local.stderr


@pytest.mark.full
def test_an_agent_that_needs_more_than_a_minute_to_start() -> None:
    """An image may have to be unpacked first. Its messages are shown, and --start-timeout allows more time."""
    unpack = "echo INFO: Converting SIF file to temporary sandbox... >&2; sleep 63; "
    words = ["--launch-with", f'sh -c "{unpack}"{{agent}}', "--network", "lo", "-H", "far:1", "echo", "here"]
    patient = [launcher_path(), "--start-timeout", "80", *words]
    with subprocess.Popen(patient, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waits:
        given_up = run(*words)
        output, errors = waits.communicate(timeout=60)
    assert given_up.returncode == 69 and "not answered within 60 s" in given_up.stderr, given_up.stderr
    assert "has printed: INFO: Converting SIF file" in given_up.stderr, given_up.stderr
    assert (waits.returncode, output) == (0, "[0] here\n"), errors


def test_an_agent_elsewhere_raises_its_limit_of_open_files() -> None:
    """ssh gives a limit of 1024, and an agent needs several descriptors per rank. Ranks keep the user's own limit."""
    launch = ["--launch-with", 'sh -c "ulimit -Sn 80; "{agent}', "--network", "lo", "-H", "far:20"]
    done = shell(*launch, script="ulimit -Sn")
    assert done.returncode == 0, done.stderr
    mine = str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    assert ranks_of(done.stdout) == [mine] * 20


def test_explain_says_where_the_hosts_come_from() -> None:
    done = run("--explain", "true", env=SLURM)
    assert "found Slurm job 7: 1 host and 3 slots" in done.stdout
    assert done.stderr == ""


def test_explain_takes_hosts_that_the_job_will_ask_for_gpus_to_have_as_few_as_this_one(tmp_path: Path) -> None:
    job = {**HET, "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "64"}
    done = run("--sysroot", str(tmp_path), "--explain=json", "true", env=job)
    assert done.returncode == 0, done.stderr
    assert [rank["host"] for rank in json.loads(done.stdout)["ranks"]] == ["here"] + ["other"] * 64


@pytest.mark.parametrize("option", ["--nproc-per-node", "--nproc_per_node", "-ppn", "--ppn"])
def test_ranks_per_host_alone_are_those_of_this_machine(option: str) -> None:
    done = shell(option, "3", script="echo $RANK of $WORLD_SIZE")
    assert ranks_of(done.stdout) == [f"{rank} of 3" for rank in range(3)], done.stderr


@pytest.mark.parametrize("option", ["-n", "-np", "--np"])
def test_how_many(option: str) -> None:
    assert ranks_of(shell(option, "2", script="echo $RANK").stdout) == ["0", "1"]


@pytest.mark.parametrize("option", ["-hostfile", "--hostfile", "-machinefile", "--machinefile"])
def test_a_hostfile_by_any_name(option: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    assert ranks_of(shell(option, str(tmp_path / "hosts"), script="echo $RANK").stdout) == ["0", "1"]


@pytest.mark.parametrize("option", ["-H", "-host", "-hosts", "--host", "--hosts"])
def test_hosts_by_any_name(option: str) -> None:
    assert ranks_of(shell(option, "localhost:2", script="echo $RANK").stdout) == ["0", "1"]


def test_ranks_that_do_not_fit_show_the_table_and_the_cure(tmp_path: Path) -> None:
    done = run("-np", "4", "true", env=SLURM)
    assert done.returncode == 69
    assert "4 ranks do not fit into 3 slots:\n  host   slots\n  alone  3\n  total  3\n" in done.stderr
    assert "Ask Slurm for more (--nodes, --ntasks-per-node, --gpus-per-node), use fewer ranks (-np 3)" in done.stderr
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    done = run("-np", "4", "--hostfile", str(tmp_path / "hosts"), "true")
    assert f"Write more slots into {tmp_path}/hosts, use fewer ranks (-np 2), or add --oversubscribe" in done.stderr
    done = run("--nproc-per-node", "3", "-H", "localhost:2", "true")
    assert done.returncode == 69
    assert "3 ranks on each host, as --nproc-per-node asks, do not fit" in done.stderr


@pytest.mark.parametrize(
    "words", [["-H", ""], ["--hostfile="], ["--tf-roles", ""], ["--output-dir", ""]], ids=lambda words: words[0]
)
def test_an_empty_value_is_no_option_left_out(words: list[str]) -> None:
    """A variable of the shell was not set. Without the error, the job would run here instead of there."""
    done = run(*words, "true")
    assert done.returncode == 64 and "has an empty value" in done.stderr, done.stderr


def test_a_hostfile_that_is_no_file(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "it is a folder"), (Path("/dev/zero"), "is larger than 16 MiB")):
        done = run("--hostfile", str(path), "true")
        assert done.returncode == 64 and reason in done.stderr, done.stderr
