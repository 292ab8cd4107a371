"""`python -m distrun._tf_server`: the ps and worker ranks of a ParameterServerStrategy cluster run this.

The launcher starts it with the ranks' Python instead of the user's program (--tf-roles with ps). It ends it after the
chief has ended, because a TensorFlow server never ends by itself. This is the only module of this package that
imports TensorFlow on its own.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    # If a ps is dead, a worker must fail when it reads a variable from it, instead of waiting for it to come back.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    try:
        import tensorflow as tf
    except ImportError as error:
        print(
            f"ps and worker ranks run a TensorFlow server, but {sys.executable} cannot start one: {error}",
            file=sys.stderr,
        )
        return 1
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
