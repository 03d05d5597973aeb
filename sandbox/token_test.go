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

func FuzzDecodeRecord(f *testing.F) {
	good, _ := record{V: 1, Info: Info{ID: "sbx_aaaaaaaaaaaaaaaaaaaa"}}.encode()
	f.Add("sandbox/sbx_aaaaaaaaaaaaaaaaaaaa", good)
	f.Add("sandbox/", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if rec, err := decodeRecord(key, value); err == nil && recordKey(rec.Info.ID) != key {
			t.Errorf("record of %s at %q", rec.Info.ID, key)
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
