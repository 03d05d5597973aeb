package sandbox

import "testing"

func FuzzParseToken(f *testing.F) {
	f.Add("")
	f.Add(position{id: NewID()}.token())
	f.Add("AAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parseToken(s); err == nil && p.token() != s {
			t.Errorf("%q is read as %+v, which is %q", s, p, p.token())
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add(string(NewID()))
	f.Add("sbx_")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && (string(id) != s || len(s) != 24) {
			t.Errorf("%q is read as %q", s, id)
		}
	})
}
