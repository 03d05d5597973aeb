package runs

import (
	"slices"
	"sync"

	"github.com/skete-dev/skete/api"
)

// Bounds of the live news that wait for one reader.
const (
	newsMax      = 512
	newsBytesMax = 256 << 10
)

// news is a bounded queue of live news: what continues the last piece is
// joined with it; beyond the bound the oldest are dropped and counted.
// Safe for concurrent use.
type news struct {
	wake chan struct{} // has one element when something was added

	mu    sync.Mutex
	list  []api.Live
	bytes int
	lost  int
}

func newNews() *news { return &news{wake: make(chan struct{}, 1)} }

func (n *news) add(l api.Live) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.Again { // what came of it so far is in there
		n.list = slices.DeleteFunc(n.list, func(had api.Live) bool {
			same := had.Kind == l.Kind && had.Thread == l.Thread && had.Run == l.Run && had.Index == l.Index && had.Call == l.Call
			if same {
				n.bytes -= len(had.Text)
			}
			return same
		})
	}
	n.bytes += len(l.Text)
	if k := len(n.list) - 1; k >= 0 && continues(n.list[k], l) {
		n.list[k].Text += l.Text
	} else {
		n.list = append(n.list, l)
	}
	for len(n.list) > newsMax || n.bytes > newsBytesMax && len(n.list) > 0 {
		n.bytes -= len(n.list[0].Text)
		n.list = n.list[1:]
		n.lost++
	}
	n.signal()
}

// joinMax bounds a joined piece, so that what is dropped is never all.
const joinMax = 8 << 10

// continues reports whether b is the next part of a's text.
func continues(a, b api.Live) bool {
	switch b.Kind {
	case "text", "reasoning", "tool_args", "output":
	default:
		return false
	}
	return len(a.Text)+len(b.Text) <= joinMax && a.Kind == b.Kind && a.Thread == b.Thread && a.Run == b.Run && a.After == b.After &&
		a.Index == b.Index && a.Call == b.Call && b.Name == "" && !b.Again
}

// drop counts news that were lost before they came here.
func (n *news) drop(lost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost += lost
	n.signal()
}

// signal wakes the reader. Preconditions: mu is held.
func (n *news) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns how many were lost, or else the first piece that is ready.
// stranger is told of those that are not, before.
func (n *news) take(ready func(*api.Live) bool, stranger func(*api.Live)) (l api.Live, lost int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost > 0 {
		lost, n.lost = n.lost, 0
		return l, lost, false
	}
	for i := range n.list {
		if !ready(&n.list[i]) {
			stranger(&n.list[i])
			continue
		}
		l = n.list[i]
		n.list = append(n.list[:i:i], n.list[i+1:]...)
		n.bytes -= len(l.Text)
		return l, 0, true
	}
	return l, 0, false
}
