no() { echo "$*"; exit 1; }
[ -f drift.txt ] || no "there is no drift.txt"
want='cron.conf every - 5m
db.conf retry 3 -
db.conf ssl yes OFF
db.conf statement_cache - 100
ui.conf colour blue Blue'
got=$(sed 's/[[:space:]]*$//' drift.txt | grep .)
[ "$got" = "$want" ] && exit
printf '%s\n' "$want" | sort >/tmp/want.$$
missing=$(printf '%s\n' "$got" | sort | comm -13 - /tmp/want.$$ | wc -l)
extra=$(printf '%s\n' "$got" | sort | comm -23 - /tmp/want.$$ | tr '\n' ';')
rm -f /tmp/want.$$
no "of the five lines $missing are missing; not wanted: ${extra:-none (but the order is another)}"
