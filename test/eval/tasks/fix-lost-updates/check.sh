no() { echo "$*"; exit 1; }
sh=sh
head -n 1 hit.sh | grep -q bash && sh=bash
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp hit.sh "$t/hit.sh"
cd "$t" || no "no temporary folder"
for name in one two; do
	for i in 1 2 3 4 5 6 7 8 9 10; do $sh ./hit.sh "$name" >>"$name.said" 2>>errors & done
done
wait
for name in one two; do
	[ "$(cat "counts/$name" 2>/dev/null)" = 10 ] || no "after 10 visits at once counts/$name is '$(cat "counts/$name" 2>/dev/null)' $(head -c 200 errors)"
	[ "$(sort -n "$name.said" | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 " ] || no "the visitors were told: $(tr '\n' ' ' <"$name.said")"
done
[ "$(ls -A counts | sort | tr '\n' ' ')" = "one two " ] || no "in counts/ there is: $(ls -A counts | tr '\n' ' ')"
[ "$($sh ./hit.sh one)" = 11 ] || no "the next visit is not the 11th"
