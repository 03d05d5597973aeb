no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export PYTHONDONTWRITEBYTECODE=1
cat >"$t/orders.json" <<'END'
[{"id": "A-100", "lines": [{"quantity": 1, "price": 1.005, "tax": 0}, {"quantity": 2, "price": 10, "tax": 0.19}]},
 {"id": "A-101", "lines": [{"quantity": 3, "price": 0.05, "tax": 0.1}, {"quantity": 1, "price": 2.675, "tax": 0}]},
 {"id": "A-102", "lines": [{"quantity": 4, "price": 25.5, "tax": 0.07}]},
 {"id": "A-103", "lines": [{"quantity": 1, "price": 0.125, "tax": 0}, {"quantity": 1, "price": 0.145, "tax": 0}]},
 {"id": "B-1", "lines": [{"quantity": 1, "price": 8.345, "tax": 0}, {"quantity": 7, "price": 0.015, "tax": 0}]},
 {"id": "B-2", "lines": [{"quantity": 1, "price": 100000.045, "tax": 0}]},
 {"id": "B-3", "lines": [{"quantity": 3, "price": 0.335, "tax": 0.19}, {"quantity": 3, "price": 0.335, "tax": 0.19}]}]
END
cat >"$t/want" <<'END'
A-100 24.81
A-101 2.85
A-102 109.14
A-103 0.28
B-1 8.46
B-2 100000.05
B-3 2.40
END
python3 invoice.py "$t/orders.json" >"$t/got" 2>"$t/err" || no "invoice.py failed: $(tail -n 1 "$t/err")"
diff "$t/got" "$t/want" >"$t/diff" || no "other totals than these: $(cat "$t/diff")"
