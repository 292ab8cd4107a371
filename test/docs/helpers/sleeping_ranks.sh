# Sourced by `% setup: . $HELPERS/sleeping_ranks.sh FILE`: two ranks of the program run for 20 s. `kill %1; wait` ends them.
echo 'import time; time.sleep(20)' >"$1"
distrun -np 2 "$1" &
sleep 3
