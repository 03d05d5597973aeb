no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp conf.py "$t/" && cd "$t" || no "no conf.py"
mkdir parts
printf 'title = main\ninclude colours.conf\ninclude parts/window.conf\n' >main.conf
printf 'red = #f00\n' >colours.conf
printf 'width = 80\ninclude ../colours.conf\n' >parts/window.conf
printf 'a = 1\ninclude loop2.conf\n' >loop.conf
printf 'b = 2\ninclude loop.conf\n' >loop2.conf
printf 'include self.conf\n' >self.conf
printf 'include parts/up.conf\n' >via.conf
printf 'x = 1\ninclude ../via.conf\n' >parts/up.conf
got=$(timeout 10 python3 conf.py main.conf | tr '\n' ';')
[ "$got" = "title = main;red = #f00;width = 80;red = #f00;" ] || no "main.conf is printed as: $got"
for f in loop self via; do
	{ timeout 5 python3 conf.py $f.conf 2>err; echo $? >status; } | head -c 10000 >out
	[ "$(wc -c <out)" -lt 10000 ] || no "with $f.conf it prints without end"
	[ "$(cat status)" = 1 ] || no "with $f.conf it ends with status $(cat status)"
	grep -q "$f.conf" err || no "with $f.conf it says: $(tail -n 1 err)"
	! grep -q RecursionError err || no "with $f.conf it only runs into the limit of recursion"
done
timeout 5 python3 conf.py loop.conf 2>&1 >/dev/null | grep -q loop2.conf || no "the message about loop.conf does not name loop2.conf"
