no() { echo "$*"; exit 1; }
[ -f Makefile ] || [ -f makefile ] || [ -f GNUmakefile ] || no "there is no Makefile"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp -R . "$t/" && cd "$t" || no "the folder cannot be copied"
rm -rf site
old() { find . -type f -exec touch -d '2020-01-01' {} +; }
old
printf 'Late\nOne more.\n' >pages/late.txt
touch -d '2020-01-01' pages/late.txt
make >out 2>&1 || no "make failed: $(tail -n 1 out)"
[ "$(ls site | tr '\n' ' ')" = "about.html index.html late.html " ] || no "site has: $(ls site 2>&1 | tr '\n' ' ')"
sh render.sh pages/about.txt | cmp -s - site/about.html || no "site/about.html is not what render.sh makes"
old
find site -type f -exec touch -d '2020-01-02' {} +
made() { find site -name '*.html' -newermt '2020-01-03' | sort | tr '\n' ' '; }
make >out 2>&1 || no "a second make failed: $(tail -n 1 out)"
[ -z "$(made)" ] || no "nothing has changed, and it makes: $(made)"
touch -d '2020-01-04' pages/about.txt
make >out 2>&1
[ "$(made)" = "site/about.html " ] || no "about.txt has changed, and it makes: $(made)"
for f in head.html render.sh; do
	old
	find site -type f -exec touch -d '2020-01-02' {} +
	touch -d '2020-01-04' $f
	make >out 2>&1
	[ "$(made)" = "site/about.html site/index.html site/late.html " ] || no "$f has changed, and it makes: $(made)"
done
printf 'Draft\nFIXME\n' >pages/draft.txt
make >out 2>&1 && no "make says nothing of a page that cannot be rendered"
[ ! -e site/draft.html ] || no "half of a page that cannot be rendered is left behind"
make clean >out 2>&1 || no "make clean failed: $(tail -n 1 out)"
[ ! -e site ] || no "make clean leaves the folder site"
[ -f pages/index.txt ] && [ -f head.html ] || no "make clean removes too much"
touch clean all
make >out 2>&1
make clean >out 2>&1
[ ! -e site ] || no "with a file named clean, make clean does nothing"
