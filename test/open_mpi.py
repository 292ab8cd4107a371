"""What tests need to start ranks by Open MPI."""

from __future__ import annotations

# For its own mpirun, and for PRRTE, which starts the ranks from Open MPI 5 on.
AS_ROOT = {f"{of}_ALLOW_RUN_AS_ROOT{more}": "1" for of in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
