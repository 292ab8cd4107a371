# Sourced by a page with `% setup: . $HELPERS/four_gpus.sh`: distrun sees a host with 16 cores in two NUMA nodes and four
# GPUs. The option --sysroot reads /sys and /proc from a copied tree, which is made here.
unset CUDA_VISIBLE_DEVICES
touch train.py
TREE="$PWD/.tree"
mkdir -p "$TREE/proc/self" "$TREE/dev"
echo 'Cpus_allowed_list: 0-15' >"$TREE/proc/self/status"
for cpu in $(seq 0 15); do
  mkdir -p "$TREE/sys/devices/system/cpu/cpu$cpu/topology"
  echo "$((cpu % 8)),$((cpu % 8 + 8))" >"$TREE/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list"
done
for node in 0 1; do
  mkdir -p "$TREE/sys/devices/system/node/node$node"
  echo "$((node * 4))-$((node * 4 + 3)),$((node * 4 + 8))-$((node * 4 + 11))" >"$TREE/sys/devices/system/node/node$node/cpulist"
done
for gpu in 0 1 2 3; do
  bus="0000:0$((gpu + 1)):00.0"
  mkdir -p "$TREE/proc/driver/nvidia/gpus/$bus" "$TREE/sys/bus/pci/devices/$bus"
  touch "$TREE/dev/nvidia$gpu"
  echo $((gpu / 2)) >"$TREE/sys/bus/pci/devices/$bus/numa_node"
  printf 'Model: NVIDIA A100\nGPU UUID: GPU-%s0000000-0000-0000-0000-000000000000\nDevice Minor: %s\n' "$gpu" "$gpu" \
    >"$TREE/proc/driver/nvidia/gpus/$bus/information"
done
distrun() { command distrun --sysroot "$TREE" "$@"; }
