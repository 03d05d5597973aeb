package preview

import (
	"net/http"
	"sync"
	"time"
)

// A dev server tells the pages that are connected to it what has changed. A page
// that is being loaded while an undo changes files can have asked for the old
// ones and connect after that was told; it would show them for good. So sockets
// of such pages end, and a dev server's client answers that with a reload.
const (
	// loadFor is how long a page is taken for one that is being loaded.
	loadFor = 30 * time.Second
	// endsPerLoad bounds how many sockets of one load are ended.
	endsPerLoad = 8
)

// loads knows which pages are being loaded, and what changed meanwhile. Its zero
// value is ready for use; it is safe for concurrent use.
type loads struct {
	mu      sync.Mutex
	pages   map[way]*load
	changed map[string]time.Time // when, by sandbox
}

// load is the newest page that a visitor has asked a target for.
type load struct {
	began time.Time
	ended map[string]bool // paths of sockets: each once, since apps have their own
}

// begin notes that a page is asked for.
func (l *loads) begin(w way, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pages == nil {
		l.pages = map[way]*load{}
	}
	l.pages[w] = &load{began: now}
}

// change notes that an undo has changed files of a sandbox.
func (l *loads) change(sandbox string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = map[string]time.Time{}
	}
	l.changed[sandbox] = now
}

// connect reports whether a socket that opens now is of a page that may have old
// files. One that was asked for after the change may not: what has changed waits
// for the dev server before any request does.
func (l *loads) connect(w way, path string, now time.Time) (late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed, ok := l.changed[w.target.Sandbox]
	p := l.pages[w]
	if !ok || p == nil || p.ended[path] || len(p.ended) >= endsPerLoad {
		return false
	}
	if now.Sub(p.began) > loadFor || p.began.After(changed) {
		return false
	}
	if p.ended == nil {
		p.ended = map[string]bool{}
	}
	p.ended[path] = true
	return true
}

// sweep forgets what is too old to count.
func (l *loads) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, p := range l.pages {
		if now.Sub(p.began) > loadFor {
			delete(l.pages, w)
		}
	}
	for s, at := range l.changed {
		if now.Sub(at) > loadFor {
			delete(l.changed, s)
		}
	}
}

// Changed is told that an undo has changed files of a sandbox: pages that are
// being loaded are loaded again.
func (p *Previews) Changed(sandbox string) { p.loads.change(sandbox, p.now()) }

// navigates reports whether a request is for a page, and not for what is in one.
func navigates(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "navigate" || mode == "" && person(r)
}

// late reports whether a socket is of a page that may have old files, and is to end.
// The app has just answered that it is open: of what changes from then on it tells.
func (p *Previews) late(s *stay, path string) bool {
	if !p.loads.connect(way{s.target, s.cookie}, path, p.now()) {
		return false
	}
	p.log.Debug("a page was being loaded during an undo, and is loaded again", "sandbox", s.target.Sandbox, "port", s.target.Port)
	return true
}
