no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export PYTHONDONTWRITEBYTECODE=1
printf '212\n32\nn/a\n\n-40\n' >"$t/in.txt"
python3 convert.py "$t/in.txt" >"$t/out" 2>"$t/err" || no "it failed: $(tail -n 1 "$t/err")"
[ "$(tr '\n' ' ' <"$t/out")" = "100.0 0.0 -40.0 " ] || no "on stdout there is: $(tr '\n' ' ' <"$t/out")"
printf 'INFO reading %s\nWARNING line 3 left out: n/a\nWARNING line 4 left out: \nINFO 3 values converted\n' "$t/in.txt" >"$t/want"
sed 's/ *$//' "$t/err" >"$t/err2"; sed 's/ *$//' "$t/want" >"$t/want2"
cmp -s "$t/err2" "$t/want2" || no "on stderr there is: $(cat "$t/err")"
python3 convert.py --quiet "$t/in.txt" >"$t/out2" 2>"$t/err" || no "with --quiet it failed: $(tail -n 1 "$t/err")"
cmp -s "$t/out" "$t/out2" || no "with --quiet the result is another"
[ "$(grep -c '^WARNING' "$t/err")" -eq 2 ] && [ "$(wc -l <"$t/err")" -eq 2 ] || no "with --quiet on stderr: $(cat "$t/err")"
grep -q 'import logging' convert.py || no "it does not use the logging module"
