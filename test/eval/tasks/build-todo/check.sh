no() { echo "$*"; exit 1; }
[ -x todo ] || no "there is no program todo"
p=$PWD/todo
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cd "$t" || no "no temporary folder"
of() {
	want=$1
	shift
	got=$("$p" "$@" 2>err)
	status=$?
	[ $status -eq 0 ] || no "todo $* ends with status $status: $(tail -n 1 err)"
	[ "$got" = "$want" ] || no "todo $* prints '$got', not '$want'"
}
bad() {
	"$p" "$@" >out 2>err
	status=$?
	[ $status -eq 1 ] || no "todo $* ends with status $status, not 1"
	[ -s err ] && [ ! -s out ] || no "todo $*: its message belongs on stderr"
}
of '' list
of '1 Buy milk' add Buy milk
of '2 Call  Ann' add 'Call  Ann'
of '3 50% \n "off" * $HOME' add '50% \n "off" * $HOME'
of 'done: Buy milk' done 1
of "2 Call  Ann
3 50% \\n \"off\" * \$HOME" list
bad done 1
bad done 9
bad done x
bad add ''
bad add
bad frobnicate
bad
of 'done: 50% \n "off" * $HOME' done 3
of '4 last' add last
of "1 [x] Buy milk
2 [ ] Call  Ann
3 [x] 50% \\n \"off\" * \$HOME
4 [ ] last" list --all
[ -s todo.txt ] || no "the list is not in todo.txt"
export TODO_FILE="$t/other list"
of '1 else' add else
of '1 else' list
unset TODO_FILE
of "2 Call  Ann
4 last" list
