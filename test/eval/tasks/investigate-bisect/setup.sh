set -e
export GIT_AUTHOR_NAME=Ann GIT_AUTHOR_EMAIL=ann@example.com GIT_COMMITTER_NAME=Ann GIT_COMMITTER_EMAIL=ann@example.com
git init -q --object-format=sha1 .
n=0
commit() {
	n=$((n + 1))
	GIT_AUTHOR_DATE="2024-02-01T10:$((n + 9)):00Z"
	GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
	export GIT_AUTHOR_DATE GIT_COMMITTER_DATE
	git add -A
	git commit -q -m "$1"
}
cat >price.py <<'END'
import sys

RATES = [(1, 0), (3, 10), (10, 20)]


def discount(count):
    """Percent off, by the number of things."""
    best = 0
    for least, percent in RATES:
        if count >= least:
            best = percent
    return best


def price(each, count):
    return each * count * (100 - discount(count)) / 100


print(f"{price(float(sys.argv[1]), int(sys.argv[2])):.2f}")
END
commit 'price: begin'
echo '# Prices' >README
commit 'readme: begin'
sed -i 's/import sys/"""Prices of orders."""\nimport sys/' price.py
commit 'price: say what it is'
for w in Usage Contact License Thanks; do
	echo "## $w" >>README
	commit "readme: add $w"
done
sed -i 's/(10, 20)/(10, 20), (50, 25)/' price.py
commit 'price: more off from 50'
sed -i 's/def price(each, count):/def price(each, count)/' price.py
commit 'price: tidy up'
echo 'Prices are in euros.' >>README
commit 'readme: say the currency'
sed -i 's/def price(each, count)$/def price(each, count):/' price.py
commit 'price: repair a typo'
sed -i 's/RATES = .*/RATES = {1: 0, 3: 10, 10: 20, 50: 25}/; s/in RATES:/in RATES.items():/' price.py
commit 'price: make the rates a dictionary'
echo 'Rates are in price.py.' >>README
commit 'readme: say where the rates are'
sed -i 's/RATES = .*/RATES = {1: 0, 2: 5, 3: 10, 10: 20, 50: 25}/' price.py
commit 'price: something off for two'
sed -i 's/RATES = .*/RATES = {1: 0, 3: 10, 2: 5, 10: 20, 50: 25}/; s/best = percent/best = max(best, percent)/' price.py
commit 'price: take the best rate'
for w in Bugs News Plans; do
	echo "## $w" >>README
	commit "readme: add $w"
done
sed -i 's/            best = max(best, percent)/            best = percent/' price.py
commit 'price: simplify the loop'
for w in Tests Style; do
	echo "## $w" >>README
	commit "readme: add $w"
done
sed -i 's/RATES = .*/RATES = {1: 0, 3: 10, 2: 5, 10: 21, 50: 25}/' price.py
commit 'price: 21 percent off from ten'
sed -i 's/:.2f/:,.2f/' price.py
commit 'price: separate the thousands'
echo 'See also: shipping.' >>README
commit 'readme: see also'
