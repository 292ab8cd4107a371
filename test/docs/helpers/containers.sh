# Sourced by `% setup: . $HELPERS/containers.sh`: stand-ins for singularity, docker and kubectl. A container is a host in a
# box, or this host.
mkdir -p .containers
cat >.containers/singularity <<'END'
#!/bin/bash
# singularity exec --nv IMAGE COMMAND...
exec "${@:4}"
END
cat >.containers/docker <<'END'
#!/bin/bash
# docker run --gpus all IMAGE COMMAND..., docker exec -i HOST COMMAND...
[ "$1" = exec ] || exec "${@:5}"
exec ssh "$3" "$(printf '%q ' "${@:4}")"
END
cat >.containers/kubectl <<'END'
#!/bin/bash
# kubectl exec -i HOST -- COMMAND...
exec ssh "$3" "$(printf '%q ' "${@:5}")"
END
chmod +x .containers/*
PATH="$PWD/.containers:$PATH"
