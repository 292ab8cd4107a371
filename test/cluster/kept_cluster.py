"""test_cleanup.py runs and kills this process. It keeps a cluster with programs on every host."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.rig import Cluster

MARKER = sys.argv[1]

if __name__ == "__main__":
    with Cluster(2) as cluster:
        for host in [*cluster.hosts, cluster.head]:
            host.popen(["sleep", "1000"], env={"RIG_MARKER": MARKER})
            host.run(["sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &"], env={"RIG_MARKER": MARKER})
        cluster.head.popen(["ssh", "h1", f"RIG_MARKER={MARKER} exec sleep 1000"], env={"RIG_MARKER": MARKER})
        while sum("sleep" in process.argv for process in cluster["h1"].processes()) < 3:
            pass
        assert cluster._keeper is not None
        print("running", cluster._keeper.pid, cluster.plan.cgroup or "-", flush=True)
        sys.stdin.read()
