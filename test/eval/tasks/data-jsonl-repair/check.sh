no() { echo "$*"; exit 1; }
for f in good.jsonl bad.txt kinds.txt; do [ -f $f ] || no "there is no $f"; done
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cat >"$t/good" <<'END'
{"id":"a2","at":2.5,"kind":"view"}
{"id": "a1", "at": 4, "kind": "view", "note": "again"}
{"id": "é", "at": 10,   "kind": "click"}
{"id": "a9", "at": 12, "kind": "sale", "text": "a \" and a }"}
{"id": "b1", "at": 14, "kind": "sale"}
{"id": "b2", "at": -16e2, "kind": "view"}
END
diff good.jsonl "$t/good" >"$t/diff" || no "good.jsonl (<) is not right (>): $(head -c 300 "$t/diff")"
got=$(tr -s '[:space:]' ' ' <bad.txt)
[ "${got% }" = "3 6 7 8 9 11 13 15" ] || no "the bad lines are not $got"
got=$(sed 's/^ *//; s/ *$//' kinds.txt | tr '\n' ';')
[ "$got" = "3 view;2 sale;1 click;" ] || no "kinds.txt has: $got"
