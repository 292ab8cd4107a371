#!/bin/sh
# launcher_expect.sh CODE TEXT distrun arguments...: runs distrun, wants this exit code and this text in its output.
code=$1 text=$2
shift 2
out=$("$@" 2>&1)
got=$?
printf '%s\n' "$out"
[ "$got" = "$code" ] || { echo "exit code $got, not $code"; exit 1; }
case $out in *"$text"*) ;; *) echo "no line with: $text"; exit 1 ;; esac
