package runs

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skete-dev/skete/thread"
)

// Bounds of what is kept of live news, in bytes of text.
const (
	recapOutputMax = 16 << 10 // of each running call
	recapAnswerMax = 64 << 10 // of each part of an answer
	recapPieceMax  = 16 << 10 // of one message
)

// Recap keeps the end of what is on its way into a thread's log: the answer that streams,
// and what each running call wrote so far. A client that begins to follow meanwhile gets it
// first. Safe for concurrent use.
type Recap struct {
	// Send sends JSON of a Live to those who follow already; it does not block.
	Send func(data []byte)

	mu      sync.Mutex // guards what follows, and the order of what is sent
	streams []kept     // in the order in which they began
}

// kept is the end of one text.
type kept struct {
	last Live // its newest piece; of a call that is being written, the one with its name
	text []byte
}

// Add sends news on, and keeps them.
func (r *Recap) Add(l Live) {
	l.Text = strings.ToValidUTF8(l.Text, "\uFFFD")
	data, err := json.Marshal(l)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(l)
	r.Send(data)
}

// keep adds a piece to the text that it goes on with. Preconditions: mu is held.
func (r *Recap) keep(l Live) {
	if l.Kind == LiveReset {
		r.forget(answers)
		return
	}
	i := slices.IndexFunc(r.streams, func(k kept) bool { return k.last.Kind == l.Kind && k.last.Index == l.Index && k.last.Call == l.Call })
	if i < 0 {
		i = len(r.streams)
		r.streams = append(r.streams, kept{})
	}
	k := &r.streams[i]
	k.last, k.last.Text = l, ""
	most := recapAnswerMax
	if l.Kind == LiveOutput {
		most = recapOutputMax
	}
	if k.text = append(k.text, l.Text...); len(k.text) > 2*most {
		k.text = slices.Clone(end(k.text, most))
	}
}

// end is the end of a text, which begins with a whole rune.
func end(text []byte, most int) []byte {
	text = text[max(0, len(text)-most):]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// answers are the parts of an answer.
func answers(l *Live) bool { return l.Kind != LiveOutput }

// forget drops some of it. Preconditions: mu is held.
func (r *Recap) forget(which func(*Live) bool) {
	r.streams = slices.DeleteFunc(r.streams, func(k kept) bool { return which(&k.last) })
}

// Applied forgets what is in the log.
func (r *Recap) Applied(e thread.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch b := e.Body.(type) {
	case thread.ModelCompleted:
		r.forget(answers)
	case thread.ToolCompleted:
		r.forget(func(l *Live) bool { return l.Call == b.Call })
	case thread.RunEnded:
		r.streams = nil
	}
}

// Tell hands what is kept to a client that begins to follow. Nothing is sent meanwhile.
func (r *Recap) Tell(join func(pieces [][]byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pieces [][]byte
	for _, k := range r.streams {
		most := recapAnswerMax
		if k.last.Kind == LiveOutput {
			most = recapOutputMax
		}
		k.last.Again = true
		for text := end(k.text, most); ; {
			n := len(text)
			for n > recapPieceMax || n < len(text) && !utf8.RuneStart(text[n]) {
				n = min(n, recapPieceMax+1) - 1
			}
			k.last.Text = string(text[:n])
			if data, err := json.Marshal(k.last); err == nil {
				pieces = append(pieces, data)
			}
			if text = text[n:]; len(text) == 0 {
				break
			}
			k.last.Again = false
		}
	}
	join(pieces)
}
