package llmtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

func failures(t *testing.T, d Driver) {
	cases := []struct {
		name string
		fail Failure
	}{
		{"Overflow", Failure{Trouble: llm.Overflow}},
		{"Auth401", Failure{Trouble: llm.Refused, Status: 401}},
		{"Auth403", Failure{Trouble: llm.Refused, Status: 403}},
		{"BadRequest", Failure{Trouble: llm.BadRequest, Status: 400}},
		{"NotFound", Failure{Trouble: llm.BadRequest, Status: 404}},
		{"RateLimited", Failure{Trouble: llm.RateLimited, Status: 429}},
		{"RateLimitedFor7s", Failure{Trouble: llm.RateLimited, Status: 429, RetryAfter: 7 * time.Second}},
		{"Server500", Failure{Trouble: llm.Overloaded, Status: 500}},
		{"Server502", Failure{Trouble: llm.Overloaded, Status: 502}},
		{"Server503For2s", Failure{Trouble: llm.Overloaded, Status: 503, RetryAfter: 2 * time.Second}},
		{"Server504", Failure{Trouble: llm.Overloaded, Status: 504}},
		{"Overloaded529", Failure{Trouble: llm.Overloaded, Status: 529}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := d.play(t, Reply{Failure: &c.fail})
			e := b.failure(hello(), c.fail.Trouble)
			if e == nil {
				return
			}
			if c.fail.Status != 0 && e.Status != c.fail.Status {
				t.Errorf("status %d, want %d", e.Status, c.fail.Status)
			}
			if e.RetryAfter != c.fail.RetryAfter {
				t.Errorf("retry after %s, want %s", e.RetryAfter, c.fail.RetryAfter)
			}
		})
		if d.Dialect.Facts().Late && !d.Whole && c.fail.Status != 404 && c.fail.RetryAfter == 0 && c.fail.Trouble != llm.Refused {
			t.Run(c.name+"InTheStream", func(t *testing.T) {
				late := c.fail
				b := d.play(t, Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("word ", 20))}, Late: &late})
				b.fails(hello(), c.fail.Trouble)
			})
		}
	}
	t.Run("WhatTheServerSaidIsShown", func(t *testing.T) {
		for status, trouble := range map[int]llm.Trouble{400: llm.BadRequest, 404: llm.BadRequest, 402: llm.Refused} {
			b := d.play(t, Reply{Failure: &Failure{Trouble: trouble, Status: status, Text: "tools[3].name is too long\n" + strings.Repeat("and so on ", 1000)}})
			e := b.failure(hello(), trouble)
			if e == nil {
				continue
			}
			public := errs.Public(e)
			for _, want := range []string{"tools[3].name is too long and so on", fmt.Sprintf("HTTP %d", status), "from " + b.server.URL} {
				if !strings.Contains(public, want) {
					t.Errorf("%d: users read %q, and not %q", status, public, want)
				}
			}
			if len(public) > 1000 || strings.Contains(public, "\n") {
				t.Errorf("%d: users read %d bytes: %q", status, len(public), public)
			}
			if !strings.Contains(e.Error(), "tools[3].name is too long") {
				t.Errorf("the operator cannot see what the server said: %v", e)
			}
		}
	})
	t.Run("AnErrorThatQuotesTheKeyAndThePrompt", func(t *testing.T) {
		b := d.play(t, Reply{Failure: &Failure{Trouble: llm.Refused, Status: 401, Text: "incorrect key " + testKey + " for " + testPrompt}})
		b.fails(hello(), llm.Refused)
	})
}

// fails is failure for those who do not look at the error any further.
func (b *bench) fails(req *llm.Request, troubles ...llm.Trouble) {
	b.Helper()
	_ = b.failure(req, troubles...) // checked already
}

// failure asks and checks the error: its trouble, one request only, no secrets.
func (b *bench) failure(req *llm.Request, troubles ...llm.Trouble) *llm.Error {
	b.Helper()
	before := len(b.server.Seen())
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	resp, _, err := Ask(ctx, b.model, req)
	if err == nil {
		b.Errorf("an answer came: %+v", resp)
		return nil
	}
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		b.Errorf("the error is a %T and no *llm.Error: %v", err, err)
		return nil
	}
	fits := false
	for _, want := range troubles {
		fits = fits || e.Trouble == want
	}
	if !fits {
		b.Errorf("trouble %q, want one of %q: %v", e.Trouble, troubles, err)
	}
	if n := len(b.server.Seen()) - before; n != 1 {
		b.Errorf("%d requests were sent: attempts are the caller's", n)
	}
	for _, shown := range []string{fmt.Sprint(err), fmt.Sprintf("%+v %#v", err, err), errs.Public(err), errs.Hint(err), deep(err)} {
		if strings.Contains(shown, testKey) {
			b.Errorf("the error shows the key: %s", shown)
		}
		if strings.Contains(shown, testPrompt) {
			b.Errorf("the error shows the prompt: %s", shown)
		}
	}
	return e
}

// deep shows each error of a chain by itself, as loggers may.
func deep(err error) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%T %+v\n", err, err)
	switch e := err.(type) { //nolint:errorlint // the chain itself is looked at
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			text.WriteString(deep(next))
		}
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			if next != nil {
				text.WriteString(deep(next))
			}
		}
	}
	return text.String()
}

func long() []llm.Block {
	return []llm.Block{llm.Text(strings.Repeat("many words ", 60)), Call("call_1", "write", jsonObject("text", strings.Repeat("x", 600)))}
}

func faults(t *testing.T, d Driver) {
	cases := []struct {
		fault Fault
		want  []llm.Trouble
	}{
		{Drop, []llm.Trouble{llm.Transport}},
		{Truncate, []llm.Trouble{llm.Transport, llm.Malformed}},
		{Hang, []llm.Trouble{llm.Transport}},
		{Mute, []llm.Trouble{llm.Transport}},
		{Garbage, []llm.Trouble{llm.Malformed}},
		{Empty, []llm.Trouble{llm.Malformed, llm.Transport}},
		{PageError, []llm.Trouble{llm.Overloaded}},
		{PageOK, []llm.Trouble{llm.Malformed}},
		{Redirect, []llm.Trouble{llm.BadRequest}},
		{Endless, []llm.Trouble{llm.Malformed}},
	}
	for _, c := range cases {
		t.Run(string(c.fault), func(t *testing.T) {
			b := d.play(t, Reply{Blocks: long(), Fault: c.fault})
			if c.fault == Hang || c.fault == Mute {
				b.model = d.New(Config{URL: b.server.URL, Model: testModel, Key: testKey, Silence: silence, ReplyBytesMax: replyBytesMax})
			}
			b.fails(hello(), c.want...)
		})
	}
	t.Run(string(Dribble), func(t *testing.T) {
		b := d.play(t, Reply{Blocks: long(), Fault: Dribble})
		resp, _ := b.ask(hello())
		b.sameBlocks(resp.Message, long())
	})
	t.Run("huge", func(t *testing.T) {
		b := d.play(t, Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("x", 2*replyBytesMax))}, Piece: 64 << 10})
		b.fails(hello(), llm.Malformed)
	})
	t.Run("hugeInOnePiece", func(t *testing.T) {
		b := d.play(t, Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("x", 2*replyBytesMax))}, Piece: 4 * replyBytesMax})
		b.fails(hello(), llm.Malformed)
	})
	t.Run("nobodyListens", func(t *testing.T) {
		b := d.play(t, ok())
		b.server.Close()
		if _, _, err := Ask(t.Context(), b.model, hello()); llm.TroubleOf(err) != llm.Transport {
			t.Errorf("trouble %q, want transport: %v", llm.TroubleOf(err), err)
		}
	})
}

func life(t *testing.T, d Driver) {
	t.Run("CancelEndsARequest", func(t *testing.T) {
		for _, fault := range []Fault{Hang, Mute, Keepalive} {
			b := d.play(t, Reply{Blocks: long(), Fault: fault})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { // a request that has not arrived yet would leave no client to see go
				for late := time.Now().Add(patience); len(b.server.Seen()) == 0 && time.Now().Before(late); {
					<-time.After(time.Millisecond)
				}
				time.AfterFunc(50*time.Millisecond, cancel)
			})
			_, _, err := Ask(ctx, b.model, hello())
			wg.Wait()
			cancel()
			if !errors.Is(err, context.Canceled) || llm.TroubleOf(err) != "" {
				t.Errorf("%s: %v, want the context's error and no trouble", fault, err)
			}
			b.left()
		}
	})
	t.Run("DeadlineIsTheContextsError", func(t *testing.T) {
		b := d.play(t, Reply{Blocks: long(), Fault: Hang})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, _, err := Ask(ctx, b.model, hello()); !errors.Is(err, context.DeadlineExceeded) || llm.TroubleOf(err) != "" {
			t.Errorf("%v, want the context's error and no trouble", err)
		}
	})
	t.Run("LeavingTheLoopEndsTheRequest", func(t *testing.T) {
		if d.Whole {
			t.Skip("there is nothing to leave before the end")
		}
		b := d.play(t, Reply{Blocks: long(), Fault: Hang})
		for _, err := range b.model.Stream(t.Context(), hello()) {
			if err != nil {
				t.Errorf("it fails before it hangs: %v", err)
			}
			break
		}
		b.left()
	})
	t.Run("AContextThatIsOverAsksNothing", func(t *testing.T) {
		b := d.play(t, ok())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := Ask(ctx, b.model, hello()); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if n := len(b.server.Seen()); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	})
	t.Run("AnErrorOfOneCallIsNotKept", func(t *testing.T) {
		b := d.play(t, Reply{Failure: &Failure{Trouble: llm.Overloaded, Status: 500}}, Reply{Blocks: long(), Fault: Drop}, ok())
		b.fails(hello(), llm.Overloaded)
		b.fails(hello(), llm.Transport)
		if resp, _ := b.ask(hello()); resp.Message.String() != "ok" {
			t.Errorf("answer %q", resp.Message.String())
		}
	})
	t.Run("ManyAtOnce", func(t *testing.T) { manyAtOnce(t, d) })
	t.Run("NoGoroutineStays", func(t *testing.T) { goroutines(t, d) })
}

// left waits until the server saw its client go.
func (b *bench) left() {
	b.Helper()
	select {
	case <-b.server.Gone():
	case <-time.After(patience):
		b.Error("the server still holds the connection: the request was not ended")
	}
}

// manyAtOnce: each of many requests gets the answer to its own question.
func manyAtOnce(t *testing.T, d Driver) {
	b := d.start(t, func(_ int, seen Seen) Reply {
		last := seen.Request.Messages[len(seen.Request.Messages)-1]
		return Reply{Blocks: []llm.Block{llm.Text("re: " + last.String()), Call("call_1", "read", jsonObject("path", last.String()))}}
	})
	shared := llm.User("a beginning that all share")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 4 {
				question := fmt.Sprintf("question %d %d", i, j)
				req := hello()
				req.Messages = []llm.Message{shared, llm.Assistant(llm.Text("yes?")), llm.User(question)}
				resp, _, err := Ask(t.Context(), b.model, req)
				if err != nil {
					t.Errorf("%s: %v", question, err)
				} else if resp.Message.String() != "re: "+question {
					t.Errorf("%s was answered with %q", question, resp.Message.String())
				}
			}
		})
	}
	wg.Wait()
}

// goroutines: nothing runs on behalf of calls that are over, however they
// ended. Connections that wait for reuse are not counted: the server goes first.
func goroutines(t *testing.T, d Driver) {
	before := runtime.NumGoroutine()
	for _, reply := range []Reply{ok(), {Blocks: long(), Fault: Hang}, {Blocks: long(), Fault: Drop}, {Failure: &Failure{Trouble: llm.Overloaded}}} {
		s := NewServer(d.Dialect, Replies(reply))
		m := d.New(Config{URL: s.URL, Model: testModel, Key: testKey, Silence: silence, ReplyBytesMax: replyBytesMax})
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), silence/2)
			_, _, _ = Ask(ctx, m, hello()) // how they end is tried elsewhere
			cancel()
		}
		s.Close()
	}
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		<-time.After(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", n, before, stacks[:runtime.Stack(stacks, true)])
	}
}
