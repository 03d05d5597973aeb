package client

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/tool"
)

// What is remembered is bounded: the oldest goes that has no session, and a session with its end.
func TestHealth_isBounded(t *testing.T) {
	s := New(Config{})
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := &session{dead: make(chan struct{})}
	for i := range healthsMax {
		h := s.healthOf("x", fmt.Sprint(i))
		h.works()
		h.since = time.Unix(int64(i+1), 0)
		if i == 0 {
			h.lists(ses)
			ses.health = h
		}
	}
	s.healthOf("x", "new")
	if len(s.healths) != healthsMax || s.healths[customer{"x", "0"}] == nil || s.healths[customer{"x", "1"}] != nil {
		t.Error(len(s.healths))
	}
	ses.close()
	if open := s.healths[customer{"x", "0"}].open; len(open) != 0 {
		t.Error(open)
	}
}

// full is a pipe that takes nothing: its program is about to end.
type full struct {
	tool.Pipe
	done chan struct{}
}

func (full) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func (f full) Done() <-chan struct{} { return f.done }

// A write to a program that ends fails when its last words have been read.
func TestHeard_waitsForLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := full{done: make(chan struct{})}
		said := false
		time.AfterFunc(stderrWait/2, func() { said = true; close(f.done) })
		if _, err := (heard{f}).Write(nil); err == nil || !said {
			t.Error(err, said)
		}
		if _, err := (heard{full{done: make(chan struct{})}}).Write(nil); err == nil { // and does not wait for ever
			t.Error("no error")
		}
	})
}
