no() { echo "$*"; exit 1; }
[ -f answer.txt ] || no "there is no answer.txt"
got=$(tr -d '[:space:]' <answer.txt)
case $got in
50cfec6558e931eeff8b8f2f06297cb7acce5425) ;;
*) no "it was not the commit '$got' ($(git log -1 --format=%s "$got" 2>/dev/null))" ;;
esac
[ "$(git rev-parse HEAD)" = 9840016f7b6fd00345e1851b628af7cbfc9e9079 ] || no "the branch is not where it was"
[ -z "$(git status --porcelain --untracked-files=no)" ] || no "files are not as they were"
