"""Slurm on a cluster: munge and slurmd on every host, slurmctld on the head. srun, salloc and sbatch work there."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from .plan import PATH, HostPlan

if TYPE_CHECKING:
    from .rig import Cluster, Host

PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "srun": "slurm-wlm", "munged": "munge"}
FOLDERS = {"munge": ("/run/munge", "/var/log/munge"), "root": ("/run/slurm", "/var/log/slurm")}
READY_SECONDS = 60.0


def why_no_slurm() -> str:
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=PATH)})
    return f"Slurm on hosts in a box needs the packages {', '.join(missing)}" if missing else ""


def slurm_conf(head: HostPlan, hosts: list[HostPlan], cpus: int, node_timeout: int) -> str:
    """`config_overrides`: a node may have more CPUs than this machine."""
    lines = [
        "ClusterName=box",
        # With the address, because the head's name resolves to 127.0.1.1 there.
        f"SlurmctldHost={head.name}({head.address})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "StateSaveLocation=/run/slurm/state",
        "SlurmdSpoolDir=/run/slurm/spool",
        "SlurmctldPidFile=/run/slurm/slurmctld.pid",
        "SlurmdPidFile=/run/slurm/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "ReturnToService=2",
        f"SlurmdTimeout={node_timeout}",
        "MpiDefault=none",
    ]
    lines += [f"NodeName={host.name} NodeAddr={host.address} CPUs={cpus} State=UNKNOWN" for host in hosts]
    lines.append("PartitionName=box Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def make_folders(host: Host) -> None:
    for owner, folders in FOLDERS.items():
        account = pwd.getpwnam(owner)
        for folder in folders:
            path = host.path(folder)
            path.mkdir(mode=0o755)
            os.chown(path, account.pw_uid, account.pw_gid)


def start_munge(host: Host, key: bytes) -> None:
    """munged returns after its daemon is ready."""
    account = pwd.getpwnam("munge")
    file = host.path("/run/munge/key")
    file.touch(0o400)
    file.write_bytes(key)
    os.chown(file, account.pw_uid, account.pw_gid)
    options = ["--key-file=/run/munge/key", "--seed-file=/run/munge/seed"]
    host.run(["munged", *options], user="munge", check=True)


class Slurm:
    """Slurm, ready for jobs. It ends with its hosts."""

    def __init__(self, cluster: Cluster, cpus: int, node_timeout: int) -> None:
        self._cluster = cluster
        hosts = [cluster.head, *cluster.hosts]
        key = secrets.token_bytes(128)
        conf = slurm_conf(cluster.head.plan, [host.plan for host in cluster.hosts], cpus, node_timeout)
        for host in hosts:
            make_folders(host)
            host.path("/etc/slurm").mkdir(exist_ok=True)
            host.path("/etc/slurm/slurm.conf").write_text(conf)
            host.services |= {"munged", "slurmctld", "slurmd"}
            start_munge(host, key)
        self._daemon(cluster.head, "slurmctld")
        for host in cluster.hosts:
            self._daemon(host, "slurmd")
        self.wait_idle()

    def _daemon(self, host: Host, name: str) -> None:
        silent = subprocess.DEVNULL
        host.popen([name, "-D"], cwd="/", stdout=silent, stderr=silent)

    def states(self) -> dict[str, str]:
        """The state that Slurm reports for each node: idle, allocated, down*, ..."""
        done = self._cluster.head.run(["sinfo", "--noheader", "--Node", "--format=%N %T"])
        return dict(line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else {}

    def wait_idle(self, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while set((states := self.states()).values()) != {"idle"}:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Slurm's nodes are not idle after {seconds} s: {states or self.log('head')}")
            time.sleep(0.05)

    def log(self, host: str) -> str:
        """The end of the log of the host's daemon."""
        files = sorted(self._cluster[host].path("/var/log/slurm").glob("*.log"))
        return "\n".join(line for file in files for line in file.read_text().splitlines()[-20:])
