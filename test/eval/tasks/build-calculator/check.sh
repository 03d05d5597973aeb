no() { echo "$*"; exit 1; }
[ -f calc.py ] || no "there is no calc.py"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cat >"$t/all" <<'END'
1+2*3|7
(1+2)*3|9
10-2-3|5
100/10/5|2
-2^2|-4
2^3^2|512
2^-1|0.5
2*-3|-6
--3|3
-(1+1)|-2
 7 / 2 |3.5
0.5+0.25|0.75
((((4))))|4
1.0|1
3-+2|1
END
while IFS='|' read -r e want; do
	got=$(timeout 5 python3 calc.py "$e" 2>"$t/err")
	[ "$got" = "$want" ] || no "$e is '$got', not '$want' $(tail -n 1 "$t/err")"
done <"$t/all"
for e in '' '1+' '(1' '1)' '1 2' '2**3' '1//2' 'abs(1)' '[1]' '1;2' '0x10' '1,2' "__import__('os').system('touch $t/owned')" '().__class__' 'print(1)' "'a'*9" '1 if 1 else 2' '1e3' '*2'; do
	timeout 5 python3 calc.py "$e" >"$t/out" 2>"$t/err"
	status=$?
	[ $status -eq 2 ] || no "'$e' ends with status $status and '$(head -c 100 "$t/out")', not with 2"
	[ -s "$t/err" ] || no "'$e': no message on stderr"
done
[ ! -e "$t/owned" ] || no "it ran the code of a stranger"
for e in '1/0' '2/(3-3)'; do
	timeout 5 python3 calc.py "$e" >/dev/null 2>&1
	status=$?
	[ $status -eq 3 ] || no "$e ends with status $status, not 3"
done
python3 - <<'END'
import ast
tree = ast.parse(open("calc.py").read())
own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
if (called - own) & {"eval", "exec", "compile"}:
    raise SystemExit("calc.py lets Python run the expression")
END
