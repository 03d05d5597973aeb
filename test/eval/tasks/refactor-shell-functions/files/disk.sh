#!/bin/sh
# disk.sh: says which folders hold more files than they should.
cd "$(dirname "$0")" || exit 2
bad=0

n=$(find uploads -type f | wc -l)
n=$((n))
if [ "$n" -gt 3 ]; then
	echo "uploads: $n files, at most 3"
	find uploads -type f | sort | head -n 1 | sed 's/^/  first: /'
	bad=1
else
	echo "uploads: ok ($n)"
fi

n=$(find cache -type f | wc -l)
n=$((n))
if [ "$n" -gt 5 ]; then
	echo "cache: $n files, at most 5"
	find cache -type f | sort | head -n 1 | sed 's/^/  first: /'
	bad=1
else
	echo "cache: ok ($n)"
fi

n=$(find "old mail" -type f | wc -l)
n=$((n))
if [ "$n" -gt 1 ]; then
	echo "old mail: $n files, at most 1"
	find "old mail" -type f | sort | head -n 1 | sed 's/^/  first: /'
	bad=1
else
	echo "old mail: ok ($n)"
fi

exit $bad
