no() { echo "$*"; exit 1; }
sh=sh
head -n 1 disk.sh | grep -q bash && sh=bash
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp disk.sh "$t/" && cd "$t" || no "no disk.sh"
[ "$(wc -l <disk.sh)" -lt 30 ] || no "disk.sh has $(($(wc -l <disk.sh))) lines"
[ "$(grep -c 'first: ' disk.sh)" -eq 1 ] || no "the work is written more than once"
[ "$(grep -c 'old mail' disk.sh)" -eq 1 ] || no "'old mail' is in the script more than once"
mkdir -p uploads cache 'old mail'
touch uploads/2 uploads/1 uploads/3 uploads/4
got=$(cd / && $sh "$t/disk.sh" 2>&1; echo "status $?")
want=$(printf 'uploads: 4 files, at most 3\n  first: uploads/1\ncache: ok (0)\nold mail: ok (0)\nstatus 1')
[ "$got" = "$want" ] || no "with a full folder it prints: $got"
rm uploads/4
touch 'old mail/1' cache/1 cache/2 cache/3 cache/4 cache/5
got=$($sh disk.sh 2>&1; echo "status $?")
want=$(printf 'uploads: ok (3)\ncache: ok (5)\nold mail: ok (1)\nstatus 0')
[ "$got" = "$want" ] || no "with all just within their limits it prints: $got"
touch 'old mail/a b' cache/6
got=$($sh disk.sh 2>&1; echo "status $?")
want=$(printf 'uploads: ok (3)\ncache: 6 files, at most 5\n  first: cache/1\nold mail: 2 files, at most 1\n  first: old mail/1\nstatus 1')
[ "$got" = "$want" ] || no "with two full folders it prints: $got"
