no() { echo "$*"; exit 1; }
[ -f cycle.txt ] || no "there is no cycle.txt"
got=$(sed 's/[[:space:]]*$//' cycle.txt | grep . | tr '\n' ' ')
[ "$got" = "app.audit app.rules app.models app.store " ] || no "the circle is not: $got"
[ "$(cat app/*.py | cksum)" = "220025311 1139" ] || no "the modules were changed"
