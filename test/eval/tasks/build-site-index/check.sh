no() { echo "$*"; exit 1; }
items() { sed -n 's/^[[:space:]]*\(<li>.*<\/li>\)[[:space:]]*$/\1/p' index.html; }
[ -f index.html ] || no "there is no index.html"
want='<li><a href="posts/salt.html">Salt &amp; pepper &lt;3</a> <time>2024-03-01</time></li>
<li><a href="posts/abc.html">A: B, and C</a> <time>2024-01-15</time></li>
<li><a href="posts/first-steps.html">First steps</a> <time>2023-11-30</time></li>'
[ "$(items)" = "$want" ] || no "index.html has: $(items)"
if [ -f index.py ]; then run='python3 index.py'; elif [ -f index.sh ]; then run='sh index.sh'; head -n 1 index.sh | grep -q bash && run='bash index.sh'; else no "there is no index.sh or index.py"; fi
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp -R . "$t/" && cd "$t" || no "the folder cannot be copied"
printf 'title: Newest\ndate: 2025-01-01\n\n' >posts/new.md
printf 'draft: yes\ntitle: Hidden\ndate: 2025-01-02\n\n' >posts/hidden.md
rm posts/abc.md
$run >/dev/null 2>err || no "$run failed: $(tail -n 1 err)"
want='<li><a href="posts/new.html">Newest</a> <time>2025-01-01</time></li>
<li><a href="posts/salt.html">Salt &amp; pepper &lt;3</a> <time>2024-03-01</time></li>
<li><a href="posts/first-steps.html">First steps</a> <time>2023-11-30</time></li>'
[ "$(items)" = "$want" ] || no "with other posts index.html has: $(items)"
