package stream

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
)

func TestParseIDs(t *testing.T) {
	for _, id := range []string{"", ":", "1", "1:", ":1", "-1:0", "1:-1", "+1:2", "01:2", "1:2:3", "1: 2", "99999999999999999999:0", "a:b"} {
		if _, _, err := ParseOutputID(id); !errs.Is(err, errs.Invalid) {
			t.Errorf("output id %q: %v", id, err)
		}
	}
	for _, id := range []string{"", ":", ":1", "w", "w:", "w:x", "w:-1", "w:01", "w w:1", "w\n:1", strings.Repeat("w", 129) + ":1", "w:18446744073709551616"} {
		if _, _, err := parseWatchID(id); !errs.Is(err, errs.Invalid) {
			t.Errorf("watch id %q: %v", id, err)
		}
	}
	if w, seq, err := parseWatchID("a:b:7"); w != "a:b" || seq != 7 || err != nil {
		t.Errorf("%q %d %v", w, seq, err)
	}
}

func FuzzParseOutputID(f *testing.F) {
	f.Add("1:2")
	f.Add("-1:x")
	f.Fuzz(func(t *testing.T, id string) {
		out, errOut, err := ParseOutputID(id)
		if err == nil && (outputID(out, errOut) != id || out < 0 || errOut < 0) {
			t.Errorf("%q became %d, %d", id, out, errOut)
		}
	})
}

func FuzzParseWatchID(f *testing.F) {
	f.Add("w:1")
	f.Add("a:b:0")
	f.Fuzz(func(t *testing.T, id string) {
		w, seq, err := parseWatchID(id)
		if err == nil && (&watcher{}).idOf(w, seq) != id {
			t.Errorf("%q became %q, %d", id, w, seq)
		}
	})
}

// FuzzStrict: a start frame never makes the parser panic, and what it takes it
// takes whole.
func FuzzStrict(f *testing.F) {
	f.Add([]byte(`{"argv":["true"]}`))
	f.Add([]byte(`{"argv":["true"]}{}`))
	f.Add([]byte(`{"terminal":null,"x":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var v struct {
			Argv []string `json:"argv"`
		}
		if strict(body, &v) == nil && len(body) == 0 {
			t.Error("nothing is an object")
		}
	})
}
