no() { echo "$*"; exit 1; }
for f in days.csv busiest.txt; do [ -f $f ] || no "there is no $f"; done
want='day,line,calls,minutes
2024-02-29,north,2,3
2024-02-29,south,2,61
2024-03-01,north,1,10
2024-03-01,south,1,1
2024-03-01,west,1,2
2024-03-02,west,2,2'
got=$(tr -d '\r"' <days.csv | grep .)
[ "$got" = "$want" ] || no "days.csv has: $got"
[ "$(tr -s '[:space:]' ' ' <busiest.txt | sed 's/^ //; s/ $//')" = "south 62" ] || no "busiest.txt has: $(cat busiest.txt)"
