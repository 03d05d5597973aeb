#!/bin/sh
# hit.sh NAME: counts a visit and prints how many there were.
set -eu
cd "$(dirname "$0")"
mkdir -p counts
n=$(cat "counts/$1" 2>/dev/null || echo 0)
sleep 0.1 # the time that looking up the visitor's country takes
n=$((n + 1))
echo "$n" >"counts/$1"
echo "$n"
