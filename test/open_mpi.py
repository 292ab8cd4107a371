"""Variables that tests need to start ranks with Open MPI."""

from __future__ import annotations

# Open MPI's mpirun needs them, and so does PRRTE, which starts the ranks from Open MPI 5 on.
AS_ROOT = {f"{of}_ALLOW_RUN_AS_ROOT{more}": "1" for of in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
