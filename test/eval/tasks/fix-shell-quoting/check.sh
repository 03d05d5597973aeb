no() { echo "$*"; exit 1; }
sh=sh
head -n 1 archive.sh | grep -q bash && sh=bash
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
mkdir -p "$t/in here" "$t/empty"
for n in 'big star.txt' '*star.txt' '-n.txt' 'two  spaces.txt' 'a$HOME.txt' 'plain.txt' "it's.txt"; do
	echo "this is $n" >"$t/in here/$n"
done
echo no >"$t/in here/other.md"
got=$($sh ./archive.sh "$t/in here" "$t/out there" 2>"$t/err") || no "archive.sh failed: $(head -c 300 "$t/err")"
[ "$got" = "7 files" ] || no "it says '$got' for 7 files"
[ "$(ls "$t/out there" | wc -l)" -eq 7 ] || no "it copied: $(ls "$t/out there")"
for n in 'big star.txt' '*star.txt' '-n.txt' 'two  spaces.txt' 'a$HOME.txt' 'plain.txt' "it's.txt"; do
	[ "$(cat -- "$t/out there/$n" 2>/dev/null)" = "this is $n" ] || no "$n is not there as it was"
done
got=$($sh ./archive.sh "$t/empty" "$t/none" 2>/dev/null)
[ "$got" = "0 files" ] || no "it says '$got' for an empty folder"
got=$($sh ./archive.sh inbox "$t/third" 2>/dev/null)
[ "$got" = "3 files" ] || no "it says '$got' for the folder inbox"
