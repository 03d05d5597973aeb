no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
printf 'tea 2.50\ncoffee 3.20\ncake 4.00\n' >"$t/p"
printf 'ada tea 2\nbob coffee 1\nada cake 1\ncleo juice 3\nbob tea 4\n' >"$t/o"
: >"$t/none"
of() {
	awk -f report.awk "$1" "$2" >"$t/got" 2>"$t/err" || no "awk failed: $(head -c 200 "$t/err")"
	sort "$t/got" | tr '\n' ';' >"$t/line"
	[ "$(cat "$t/line")" = "$3" ] || no "with $4 it prints: $(cat "$t/line")"
}
of "$t/p" "$t/o" 'ada: 9.00;bob: 13.20;cleo: no price for juice;' 'both files'
of "$t/none" "$t/o" 'ada: no price for cake;ada: no price for tea;bob: no price for coffee;bob: no price for tea;cleo: no price for juice;' 'no prices'
of "$t/p" "$t/none" '' 'no orders'
of prices.txt orders.txt 'ada: 9.00;bob: 13.20;cleo: no price for juice;' 'the files that are here'
