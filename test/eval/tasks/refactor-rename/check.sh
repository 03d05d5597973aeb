no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
python3 - <<'END' || exit 1
import api, report, users
def want(what, got, right):
    if got != right:
        raise SystemExit(f"{what} is {got!r}, not {right!r}")
if not hasattr(users, "find_user"):
    raise SystemExit("there is no users.find_user")
if hasattr(users, "get_user") or hasattr(api, "get_user"):
    raise SystemExit("the name get_user is still there")
want("find_user(1)", users.find_user(1), "ada")
want("get_user_count()", getattr(users, "get_user_count", lambda: "gone")(), 3)
want("get_users()", getattr(users, "get_users", lambda: "gone")(), ["ada", "bob", "cleo"])
want("lines", report.lines([1, 9]), ["1: ada", "9: unknown"])
want("first", report.first([2, 1]), "bob")
try:
    want('call("get_user", 2)', api.call("get_user", 2), "bob")
except ValueError:
    raise SystemExit("clients cannot send the action get_user any more")
END
grep -q 'find_user(1)' README.md || no "README.md does not show find_user(1)"
grep -q 'get_user_count()' README.md || no "README.md has lost get_user_count()"
grep -q 'action `get_user`' README.md || no "README.md names another action of the API"
python3 -m unittest -q >/dev/null 2>&1 || no "the tests fail"
