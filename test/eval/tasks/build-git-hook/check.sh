no() { echo "$*"; exit 1; }
[ -x hooks/pre-commit ] || no "hooks/pre-commit is not there, or cannot be executed"
[ "$(git rev-list --count HEAD)" -eq 1 ] || no "something was committed"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp -R . "$t/r" && cd "$t/r" || no "the folder cannot be copied"
case $(git config core.hooksPath) in hooks | ./hooks | */hooks) ;; *) no "git does not use the folder hooks" ;; esac
git config core.hooksPath hooks
git config user.name Ann && git config user.email ann@example.com
good() { git commit -q -m try >out 2>err || no "it refuses $1: $(tail -n 1 err)"; }
bad() {
	git commit -q -m try >out 2>err && no "it lets $1 pass"
	grep -q "$2" err || no "for $1 it does not name $2: $(tail -n 1 err)"
	git reset -q
}
echo fine >a.txt && git add a.txt && good 'a plain file'
echo '// DO NOT COMMIT' >'my file.txt' && git add 'my file.txt' && bad 'a forbidden line' 'my file.txt'
rm 'my file.txt'
head -c 100001 /dev/zero | tr '\0' x >big.txt && git add big.txt && bad 'a file of 100001 bytes' big.txt
head -c 100000 /dev/zero | tr '\0' x >big.txt && git add big.txt && good 'a file of 100000 bytes'
echo more >>notes.txt && git add notes.txt && good 'another line beside an old DO NOT COMMIT'
echo 'DO NOT COMMIT' >>a.txt && echo else >b.txt && git add b.txt && good 'a file while another is not staged'
git add a.txt && echo fine >a.txt && bad 'a staged line that the folder has no more' a.txt
git checkout -q a.txt
sed -i '/DO NOT/d' notes.txt && git add notes.txt && good 'the removal of the line'
git rm -q big.txt && good 'the removal of a file'
