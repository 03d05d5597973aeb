no() { echo "$*"; exit 1; }
[ -f answer.txt ] || no "there is no answer.txt"
got=$(tr -d '[:space:]' <answer.txt)
[ "$got" = test_defaults.Defaults.test_plain ] || no "it is not $got"
[ "$(cat *.py | cksum)" = "506168340 1927" ] || no "the code was changed"
