"""`python -m distrun._tf_server`: what ps and worker ranks of a ParameterServerStrategy cluster run.

The launcher starts it with the ranks' Python in place of the user's program (--tf-roles with ps) and ends it when the
chief has ended: a TensorFlow server never does by itself. The only place where this package imports TensorFlow for
itself.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    # A worker that is asked for a variable of a dead ps is to fail, not to wait for it to come back.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    try:
        import tensorflow as tf
    except ImportError as error:
        print(f"ps and worker ranks run a TensorFlow server, but {sys.executable} cannot: {error}", file=sys.stderr)
        return 1
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
