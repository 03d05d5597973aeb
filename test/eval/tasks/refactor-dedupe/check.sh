no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
for text in 'an address has one @' 'this is no address' 'nobody can be reached there'; do
	n=$(grep -c "$text" signup.py)
	[ "$n" -eq 1 ] || no "the message '$text' is in signup.py $n times"
done
python3 - <<'END' || exit 1
import signup as s
def raised(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
one, none, dead = "ValueError: an address has one @", "ValueError: this is no address", "ValueError: nobody can be reached there"
def want(got, right, what):
    if got != right:
        raise SystemExit(f"{what}: {got!r}, not {right!r}")
if not callable(getattr(s, "check_email", None)):
    raise SystemExit("there is no check_email")
for bad, text in [("a", one), ("a@b@c.d", one), ("@b.c", none), ("a@b", none), ("a@b.invalid", dead), ("", one)]:
    want(raised(s.check_email, bad), text, f"check_email({bad!r})")
    want(raised(s.sign_up, "x", bad), text, f"sign_up with {bad!r}")
    want(raised(s.invite, "x", ["a@b.c", bad]), text, f"invite with {bad!r}")
want(raised(s.sign_up, "", "a"), "ValueError: a name is needed", "sign_up without a name")
want(raised(s.change, "who", "a"), "KeyError: 'who'", "change of a stranger")
want(s.sign_up("ada", " Ada@Example.com "), "ada@example.com", "sign_up")
want(s.people, {"ada": "ada@example.com"}, "people")
want(raised(s.change, "ada", "a@b.invalid"), dead, "change to a dead address")
want(s.people, {"ada": "ada@example.com"}, "people after a refused change")
want(s.change("ada", "NEW@example.com "), "ada@example.com", "change")
want(s.people, {"ada": "new@example.com"}, "people after the change")
want(s.invite("ada", [" B@c.d", "b@c.d", "new@example.com", "x@y.z"]), ["b@c.d", "x@y.z"], "invite")
END
