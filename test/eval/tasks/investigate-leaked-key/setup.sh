set -e
git init -q --object-format=sha1 .
git symbolic-ref HEAD refs/heads/main
export GIT_COMMITTER_NAME=Ann GIT_COMMITTER_EMAIL=ann@example.com
n=0
commit() {
	n=$((n + 1))
	GIT_AUTHOR_DATE="2024-03-01T10:$((n + 9)):00Z"
	GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
	export GIT_AUTHOR_DATE GIT_COMMITTER_DATE
	git add -A
	git commit -q --author "$1 <$1@example.com>" -m "$2"
}
echo 'key = os.environ["PAY_KEY"]' >pay.py
commit ann 'pay: begin'
echo '# Payments' >README
commit ann 'readme: begin'
git checkout -q -b refunds
mkdir tests
echo 'KEY = "pk-live-7Q2mX9"  # only for trying' >tests/try_refund.py
commit bob 'refunds: try them'
echo 'def refund(): pass' >refund.py
commit bob 'refunds: begin'
git checkout -q main
echo 'PAY_KEY=pk-live-7Q2mX9' >deploy.env
commit cleo 'deploy: settings for the new host'
git checkout -q -b invoices
echo 'def invoice(): pass' >invoice.py
commit dave 'invoices: begin'
git checkout -q main
echo 'Set PAY_KEY.' >>README
commit ann 'readme: say what has to be set'
rm deploy.env
commit cleo 'deploy: settings are not code'
git checkout -q invoices
git rm -q deploy.env
commit dave 'invoices: take the settings out here too'
git checkout -q -b hotfix main~1
echo 'retry = 3' >>pay.py
commit ann 'pay: try again'
git checkout -q main
echo 'timeout = 5' >>pay.py
commit ann 'pay: wait shorter'
