package store_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
)

const crashTenant, crashThreads = "crash", 4

// TestThreadsKill kills a process that appends to several threads at once,
// again and again, and looks for everything that it said was acknowledged.
func TestThreadsKill_losesNothingAndDoublesNothing(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[string]string{} // "thread event" or "blob hash" -> what it said
	var slowest time.Duration
	for range rounds {
		slowest = max(slowest, appendAndKill(t, dir, random.IntN(150), acked))
	}
	s := open(t, store.Config{Dir: dir})
	l := threadStore(s).Log(t, crashTenant)
	b := threadStore(s).Blobs(t, crashTenant)
	said, found, threads := map[string]bool{}, 0, 0
	for id, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		threads++
		var events []thread.Event
		for e, err := range l.Load(t.Context(), id, 1) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
			token := tokenOf(e)
			if token != "" && said[token] {
				t.Errorf("%s is there twice, once as event %d of %s", token, e.Seq, id)
			}
			said[token] = true
			key := fmt.Sprintf("%s %d", id, e.Seq)
			if want, ok := acked[key]; ok {
				found++
				if want != token {
					t.Errorf("event %s says %q, acknowledged was %q", key, token, want)
				}
				delete(acked, key)
			}
		}
		if err := thread.Check(events); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for key, what := range acked {
		hash, is := strings.CutPrefix(key, "blob ")
		if !is {
			t.Errorf("event %s was acknowledged (%s) and is gone", key, what)
		} else if content, err := b.Get(t.Context(), hash); err != nil || string(content) != what {
			t.Errorf("blob %s: %q, %v, acknowledged was %q", hash, content, err, what)
		}
	}
	checked, err := s.Threads().Fsck(t.Context(), crashTenant)
	if err != nil || len(checked.Problems) > 0 {
		t.Errorf("fsck: %v, %v", checked.Problems, err)
	}
	if threads != crashThreads || found < rounds {
		t.Errorf("%d threads, %d acknowledged events", threads, found)
	}
	t.Logf("%d kills: %d acknowledged of %d events in %d threads, %d blobs; open again within %v", rounds, found, checked.Events, threads, checked.Blobs, slowest)
}

func tokenOf(e thread.Event) string {
	switch b := e.Body.(type) {
	case thread.Input:
		return b.Name
	case thread.ToolCompleted:
		return b.Code
	case thread.ModelCompleted:
		return b.Model
	}
	return ""
}

// appendAndKill starts a child, kills it after n acknowledgements, adds those to
// acked, and says how long the child took to open.
func appendAndKill(t *testing.T, dir string, n int, acked map[string]string) (opened time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), threadLogChildEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got := 0
	for lines := bufio.NewScanner(out); lines.Scan(); { // to the end: all that was said counts
		key, what, _ := strings.Cut(lines.Text(), "=")
		if key == "open" {
			opened, _ = time.ParseDuration(what)
			continue
		}
		acked[key] = what
		if got++; got == n+1 {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); got < n {
		t.Fatalf("the child ended early: %v\n%s", err, stderr.String())
	}
	return opened
}

// appendForEver is the child: it says "thread event=token" after each
// acknowledged append, and "blob hash=content".
func appendForEver(dir string) int {
	began := time.Now()
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := s.Threads().Log(ctx, crashTenant)
	var b thread.Blobs
	if err == nil {
		b, err = s.Threads().Blobs(ctx, crashTenant)
	}
	var ids []thread.ID
	if err == nil {
		for id, lerr := range l.List(ctx, "") {
			ids, err = append(ids, id), lerr
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for len(ids) < crashThreads {
		ids = append(ids, thread.NewID())
	}
	fmt.Printf("open=%v\n", time.Since(began))
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			c := crasher{ctx: ctx, l: l, b: b, id: id}
			if err := c.run(); err != nil {
				fmt.Fprintln(os.Stderr, id, err)
				os.Exit(1)
			}
		})
	}
	wg.Wait()
	return 1
}

// crasher drives one thread as an agent would, without an end.
type crasher struct {
	ctx   context.Context
	l     thread.Log
	b     thread.Blobs
	id    thread.ID
	seq   uint64
	runID thread.RunID
	term  uint64
	open  []string
	count int
}

func (c *crasher) run() error {
	for e, err := range c.l.Load(c.ctx, c.id, 1) {
		if err != nil {
			return err
		}
		c.seq = e.Seq
		switch b := e.Body.(type) {
		case thread.RunStarted:
			c.runID = e.Run
		case thread.Claimed:
			c.term = b.Term
		case thread.ModelCompleted:
			for _, call := range b.Message.Calls() {
				c.open = append(c.open, call.ID)
			}
		case thread.ToolCompleted:
			c.open = c.open[1:]
		}
	}
	if c.seq == 0 {
		c.runID = thread.NewRunID()
		if err := c.append(thread.Opened{Agent: []byte(`{}`)}, thread.RunStarted{}); err != nil {
			return err
		}
	}
	if err := c.append(thread.Claimed{Node: fmt.Sprint(os.Getpid()), Term: c.term + 1}, thread.Input{Name: c.token()}); err != nil {
		return err
	}
	for {
		if len(c.open) == 0 {
			if err := c.answer(); err != nil {
				return err
			}
		}
		if err := c.finish(); err != nil {
			return err
		}
	}
}

func (c *crasher) token() string {
	c.count++
	return fmt.Sprintf("%d/%s/%d", os.Getpid(), c.id[4:8], c.count)
}

func (c *crasher) answer() error {
	m := llm.Assistant()
	bodies := []thread.Body{nil}
	for i := range 2 {
		call := fmt.Sprintf("c%d_%d", c.seq, i)
		c.open = append(c.open, call)
		m.Blocks = append(m.Blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: call, Name: "t", Args: []byte(`{}`)}})
		bodies = append(bodies, thread.ToolStarted{Call: call, Key: call})
	}
	bodies[0] = thread.ModelCompleted{Message: m, Through: c.seq, Model: c.token()}
	return c.append(bodies...)
}

func (c *crasher) finish() error {
	done := thread.ToolCompleted{Call: c.open[0], Failed: true, Code: c.token()}
	if c.count%3 == 0 {
		content := "content of " + done.Code
		hash, err := c.b.Put(c.ctx, []byte(content))
		if err != nil {
			return err
		}
		fmt.Printf("blob %s=%s\n", hash, content)
		done.Blob = hash
	}
	c.open = c.open[1:]
	return c.append(done)
}

func (c *crasher) append(bodies ...thread.Body) error {
	var events []thread.Event
	for _, b := range bodies {
		events = append(events, thread.New(c.runID, b))
	}
	seq, err := c.l.Append(c.ctx, c.id, c.seq, events...)
	if err != nil {
		return err
	}
	c.seq = seq
	var said strings.Builder // one write, so that the pipe has whole lines
	for _, e := range events {
		fmt.Fprintf(&said, "%s %d=%s\n", c.id, e.Seq, tokenOf(e))
	}
	_, err = os.Stdout.WriteString(said.String())
	return err
}
