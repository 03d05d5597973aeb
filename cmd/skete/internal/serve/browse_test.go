package serve

import "testing"

func TestSameSite(t *testing.T) {
	for _, x := range []struct {
		a, b string
		same bool
	}{
		{"example.net", "skete.example.net", true},
		{"apps.example.net", "skete.Example.net.", true},
		{"example-apps.net", "skete.example.net", false},
		{"a.co.uk", "b.co.uk", false},
		{"x.a.co.uk", "y.a.co.uk", true},
		{"", "skete.example.net", false},
		{"localhost", "localhost", false},
		{"a.localhost", "b.localhost", false},
		{"127.0.0.1", "127.0.0.1", false},
		{"com", "com", false},
	} {
		if got := sameSite(x.a, x.b); got != x.same {
			t.Errorf("%q and %q: %v", x.a, x.b, got)
		}
	}
}
