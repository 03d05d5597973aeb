package preview

import (
	"errors"
	"io"
	"strconv"
	"testing"
	"time"
)

// A socket that a page opens after an undo ends if the page was asked for before
// it, and the next one, of the page that is loaded then, stays.
func TestPagesAreLoadedAgain(t *testing.T) {
	w := newWorld(t, newEcho())
	cookie := w.visit(t, alice, box)
	load := func() { w.loads.begin(way{box, cookie[len(cookieName)+1:]}, w.now()) }
	load()
	open, openIn := w.socketTo(t, cookie)
	load()
	w.Changed(box.Sandbox)
	_, in := w.socketTo(t, cookie)
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the socket of a page that may have old files: %v", err)
	}
	again, againIn := w.socketTo(t, cookie)
	say(t, again, againIn, "by the same page, a second time")
	say(t, open, openIn, "it was open before the undo")
	w.Changed("sbx_of_another")
	other, otherIn := w.socketTo(t, w.visit(t, alice, box))
	say(t, other, otherIn, "of a visit that asked for no page")
}

// A page is noted when it is asked for, and what it asks for is not.
func TestPagesAreNoted(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		want   int
	}{
		"a page":                {[]string{"Sec-Fetch-Mode", "navigate"}, 1},
		"a script":              {[]string{"Sec-Fetch-Mode", "cors"}, 0},
		"a browser that is old": {[]string{"Accept", "text/html"}, 1},
		"a program":             {nil, 0},
	} {
		w := newWorld(t, hello)
		w.ask(t, "GET", w.URL(box), append([]string{"Cookie", w.visit(t, alice, box)}, tt.header...)...)
		if got := len(w.loads.pages); got != tt.want {
			t.Errorf("%s: %d pages are noted, not %d", name, got, tt.want)
		}
	}
}

func TestLoads(t *testing.T) {
	const never = -1
	for name, tt := range map[string]struct {
		begin, change, connect time.Duration // since the start
		want                   bool
	}{
		"no undo":               {0, never, time.Second, false},
		"no page":               {never, 0, time.Second, false},
		"asked for before":      {0, time.Second, 2 * time.Second, true},
		"asked for long before": {0, time.Second, loadFor + 2*time.Second, false},
		"asked for after":       {2 * time.Second, time.Second, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l loads
			start, w := time.Now(), way{box, "cookie"}
			if tt.begin != never {
				l.begin(w, start.Add(tt.begin))
			}
			if tt.change != never {
				l.change(box.Sandbox, start.Add(tt.change))
			}
			if late := l.connect(w, "/hmr", start.Add(tt.connect)); late != tt.want {
				t.Errorf("it ends: %t", late)
			}
			if l.connect(w, "/hmr", start.Add(tt.connect)) {
				t.Error("and another time")
			}
		})
	}
}

// What visitors do cannot make it grow, nor keep a page from its app.
func TestLoads_bounds(t *testing.T) {
	var l loads
	w, now := way{box, "cookie"}, time.Now()
	l.begin(w, now)
	l.change(box.Sandbox, now.Add(1))
	ended := 0
	for i := range 100 {
		if l.connect(w, "/"+strconv.Itoa(i), now.Add(2)) {
			ended++
		}
	}
	if ended != endsPerLoad {
		t.Errorf("%d sockets ended", ended)
	}
	l.sweep(now.Add(loadFor))
	if len(l.pages) != 1 || len(l.changed) != 1 {
		t.Error("what still counts is forgotten")
	}
	l.sweep(now.Add(loadFor + time.Second))
	if len(l.pages) != 0 || len(l.changed) != 0 {
		t.Error("what is too old is kept")
	}
}
