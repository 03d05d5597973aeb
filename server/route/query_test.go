package route

import (
	"net/url"
	"testing"

	"github.com/skete-dev/skete/errs"
)

func TestCheckQuery(t *testing.T) {
	known := map[string]bool{"a": false, "m": true}
	for _, raw := range []string{"", "a=1", "a=", "a", "m=1&m=2", "a=%FF%00", "a=1&m=x%3Dy"} {
		if err := checkQuery(raw, known); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range []string{"b=1", "a=1&a=2", "a=%zz", "a=1;m=2", "=1", "A=1", "a%3D=1"} {
		if err := checkQuery(raw, known); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func FuzzCheckQuery(f *testing.F) {
	f.Add("a=1&m=2")
	f.Add("a=%zz;b")
	f.Fuzz(func(t *testing.T, raw string) {
		if checkQuery(raw, map[string]bool{"a": false, "m": true}) != nil {
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q was taken and cannot be parsed: %v", raw, err)
		}
		for name, vs := range values {
			if name != "a" && name != "m" || name == "a" && len(vs) > 1 {
				t.Errorf("%q gives %s=%q", raw, name, vs)
			}
		}
	})
}
