no() { echo "$*"; exit 1; }
[ -f top.sh ] || no "there is no top.sh"
! grep -Eq 'python|perl|ruby|node' top.sh || no "top.sh uses another language than the shell's tools"
sh=sh
head -n 1 top.sh | grep -q bash && sh=bash
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp top.sh "$t/" && cd "$t" || no "no temporary folder"
cat >sample.txt <<'END'
The cat didn't see the dog. The dog saw 'the cat', and didn't
bark -- why? "Don't bark," the cat's owner had said; "don't!"
END
got=$($sh top.sh 6 sample.txt 2>&1 | tr '\n' ';')
[ "$got" = "5 the;2 bark;2 cat;2 didn't;2 dog;2 don't;" ] || no "of sample.txt it prints: $got"
printf "b a'a '' ' b''b\nA'A 'x' it's1its\n" >"two words.txt"
got=$($sh top.sh 100 "two words.txt" 2>&1 | sort | tr '\n' ';')
[ "$got" = "1 it's;1 its;1 x;2 a'a;3 b;" ] || [ "$got" = "1 b;1 b''b;1 it's;1 its;1 x;2 a'a;" ] || no "of odd apostrophes it makes: $got"
got=$(printf 'z z z y y x' | $sh top.sh 2 2>&1 | tr '\n' ';')
[ "$got" = "3 z;2 y;" ] || no "of stdin it prints: $got"
got=$(printf 'word' >one; printf 'word' >two; $sh top.sh 1 one two)
[ "$got" = "2 word" ] || no "of two files without an end of line it prints: $got"
awk 'BEGIN { for (i = 0; i < 30000; i++) printf "w%c%c ", 97 + i % 26, 97 + int(i / 26) % 26 }' >large
got=$($sh top.sh 1 large)
[ "$got" = "45 waa" ] || no "of a large file it prints: $got"
