package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

// brittle is a client whose connections break after so many bytes.
func brittle(t *testing.T, s *runstest.Server, bytes int64) (c *client.Client, cuts func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				down.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(up, down); up.Close() })
			wg.Go(func() {
				if copied, _ := io.CopyN(down, up, bytes); copied == bytes {
					mu.Lock()
					n++
					mu.Unlock()
				}
				down.Close()
				up.Close()
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	c, err = client.New(client.Config{URL: "http://" + ln.Addr().String(), Key: s.Key, ReconnectTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func sdk(t *testing.T, s *runstest.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: s.URL, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, script func(*runstest.Play)) *runstest.Server {
	f := runstest.New(script)
	t.Cleanup(f.Close)
	return runstest.Serve(t, f)
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := patience.Context(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// However often the connection breaks, every event comes once and in order.
func TestRunStreams_surviveBrokenConnections(t *testing.T) {
	const steps = 60
	s := serve(t, func(p *runstest.Play) {
		for i := range steps {
			p.Append(thread.Input{From: "user", ID: fmt.Sprint(i)})
		}
		p.Answer("", runstest.Call("c1", "task", `{}`))
		p.Begin("c1", "task")
		sub := p.Sub("c1", "scout", "look")
		for i := range steps {
			sub.Append(thread.Input{From: "user", ID: fmt.Sprint("s", i)})
		}
		sub.End(thread.RunSucceeded, "found")
		p.Done("c1", "found")
		p.End(thread.RunSucceeded, "ok")
	})
	plain := sdk(t, s)
	run, err := plain.StartRun(timeout(t), api.StartRun{Task: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = plain.Run(run.ID).Wait(timeout(t)); err != nil || run.State != "succeeded" {
		t.Fatalf("%+v, %v", run, err)
	}
	var want []uint64
	for seq := run.FirstSeq; seq <= run.LastSeq; seq++ {
		want = append(want, seq)
	}
	t.Run("events", func(t *testing.T) {
		c, cuts := brittle(t, s, 3000)
		var got []uint64
		for e, err := range c.Run(run.ID).Events(timeout(t), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Seq)
		}
		if diff := cmp.Diff(want, got); diff != "" || cuts() < 3 {
			t.Errorf("%d cuts\n%s", cuts(), diff)
		}
	})
	t.Run("tree", func(t *testing.T) {
		c, cuts := brittle(t, s, 5000)
		var own, sub []uint64
		var last client.News
		for n, err := range c.Run(run.ID).Tree(timeout(t), 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case n.Event == nil:
				last = n
			case n.Thread == "":
				own = append(own, n.Event.Seq)
			default:
				sub = append(sub, n.Event.Seq)
			}
		}
		if diff := cmp.Diff(want, own); diff != "" || cuts() < 3 {
			t.Errorf("%d cuts\n%s", cuts(), diff)
		}
		if len(sub) != steps+4 || !slices.IsSorted(sub) || len(slices.Compact(sub)) != steps+4 {
			t.Errorf("of the sub-agent: %v", sub)
		}
		if last.End == nil || last.End.State != "succeeded" {
			t.Errorf("it ends with %+v", last)
		}
	})
}

func TestRun_steered(t *testing.T) {
	s := serve(t, func(p *runstest.Play) {
		p.Answer("", runstest.Call("c1", "execute", `{"command":"make"}`))
		p.Ask("c1", "execute", `{"command":"make"}`, "")
		p.Decision("c1")
		p.Run("c1", "execute", "the output")
		p.Answer("You said " + p.Input(0))
		p.End(thread.RunSucceeded, "ok")
	})
	c, ctx := sdk(t, s), timeout(t)
	run, err := c.StartRun(ctx, api.StartRun{Task: "x", Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	r := c.Run(run.ID)
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "approval.asked" {
			break
		}
	}
	asked, err := r.Approvals(ctx)
	if err != nil || len(asked) != 1 || asked[0].Call != "c1" {
		t.Fatalf("%+v, %v", asked, err)
	}
	if all, err := c.Approvals(ctx); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	approve := api.Decide{Call: "c1", Decision: api.DecisionApprove}
	if _, err := r.Decide(ctx, approve); err != nil {
		t.Fatal(err)
	}
	if done, err := r.Decide(ctx, approve); !errs.Is(err, errs.Conflict) || len(done) != 1 || done[0].OK {
		t.Errorf("twice: %+v, %v", done, err)
	}
	if sent, err := r.Send(ctx, "hi"); err != nil || sent.New {
		t.Errorf("%+v, %v", sent, err)
	}
	if run, err = r.Wait(ctx); err != nil || run.State != "succeeded" {
		t.Fatalf("%+v, %v", run, err)
	}
	if _, err := r.Output(ctx, "nothing", 0); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	out, err := r.Output(ctx, "c1", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if b, err := io.ReadAll(out); string(b) != "output" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	o, err := r.Transcript(ctx, 1, 0)
	if err != nil || o.Total != 2 || len(o.Steps) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := r.Outline(ctx, 1, 2); err != nil || o.Total != 2 || len(o.Steps) != 1 || o.Steps[0].Step != 1 || o.State != "succeeded" {
		t.Errorf("%+v, %v", o, err)
	}
	for by, want := range map[string]string{"agent": run.Agent, "run": run.ID} {
		u, err := c.Usage(ctx, by, run.CreatedAt, time.Time{})
		if err != nil || len(u.Items) != 1 || u.Items[0].Key != want || u.Items[0].Steps != 2 || u.Total.CostUSD != u.Items[0].CostUSD {
			t.Errorf("%+v, %v", u, err)
		}
	}
	if d, err := r.Call(ctx, "c1"); err != nil || d.Status != "done" || d.Approval.Decision != "approve" {
		t.Errorf("%+v, %v", d, err)
	}
	list, err := client.All(c.Runs(ctx, client.RunFilter{Labels: map[string]string{"a": "b"}, State: "succeeded"}))
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.DeleteThread(ctx, run.Thread); err != nil {
		t.Error(err)
	}
	if _, err := r.Wait(ctx); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestRunEvents_end(t *testing.T) {
	c := sdk(t, serve(t, nil))
	run, err := c.StartRun(timeout(t), api.StartRun{Task: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string]func(context.Context, func()) error{
		"events": func(ctx context.Context, cancel func()) error {
			for _, err := range c.Run(run.ID).Events(ctx, 0) {
				cancel()
				if err != nil {
					return err
				}
			}
			return nil
		},
		"tree": func(ctx context.Context, cancel func()) error {
			for _, err := range c.Run(run.ID).Tree(ctx, 0) {
				cancel()
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		ctx, cancel := context.WithCancel(timeout(t))
		if err := stream(ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	for _, err := range c.Run("run_bbbbbbbbbbbbbbbbbbbb").Tree(timeout(t), 0) {
		if !errs.Is(err, errs.NotFound) {
			t.Errorf("an unknown run: %v", err)
		}
	}
}

// scripted starts a server whose runs are the script.
func scripted(script func(*runstest.Play)) (c *client.Client, done func()) {
	f := runstest.New(script)
	s, err := runstest.Open(f)
	if err != nil {
		panic(err)
	}
	if c, err = client.New(client.Config{URL: s.URL, Key: s.Key}); err != nil {
		panic(err)
	}
	return c, func() {
		c.Close()
		_ = s.Close()
		f.Close()
	}
}

func ExampleClient_StartRun() {
	ctx := context.Background()
	c, done := scripted(func(p *runstest.Play) {
		p.Answer("I look.", runstest.Call("c1", "ls", `{"path":"/"}`))
		p.Run("c1", "ls", "a.txt")
		p.Answer("There is one file: a.txt.")
		p.End(thread.RunSucceeded, "There is one file: a.txt.")
	})
	defer done()

	run, err := c.StartRun(ctx, api.StartRun{Task: "What files are there?", Budget: api.Budget{Steps: 20}})
	if err != nil {
		panic(err)
	}
	for event, err := range c.Run(run.ID).Events(ctx, 0) {
		if err != nil {
			panic(err)
		}
		if event.Kind == "tool.completed" {
			var done struct{ Blocks []struct{ Text string } }
			if err := json.Unmarshal(event.Data, &done); err != nil {
				panic(err)
			}
			fmt.Println("tool:", done.Blocks[0].Text)
		}
	}
	run, err = c.Run(run.ID).Wait(ctx)
	fmt.Println(run.State, run.Text, err)
	// Output:
	// tool: a.txt
	// succeeded There is one file: a.txt. <nil>
}

func ExampleRun_Decide() {
	ctx := context.Background()
	c, done := scripted(func(p *runstest.Play) {
		p.Answer("", runstest.Call("c1", "execute", `{"command":"rm -rf build"}`))
		p.Ask("c1", "execute", `{"command":"rm -rf build"}`, "deletes files")
		d := p.Decision("c1")
		p.Fail("c1", "rejected", d.Text)
		p.End(thread.RunSucceeded, "Then not.")
	})
	defer done()

	run, err := c.StartRun(ctx, api.StartRun{Task: "Clean up."})
	if err != nil {
		panic(err)
	}
	r := c.Run(run.ID)
	for news, err := range r.Tree(ctx, 0) { // sub-agents' questions too
		if err != nil {
			panic(err)
		}
		if news.Event == nil {
			continue
		}
		if news.Event.Kind == "approval.asked" {
			var ask struct{ Call, Tool, Reason string }
			if err := json.Unmarshal(news.Event.Data, &ask); err != nil {
				panic(err)
			}
			fmt.Println("may it", ask.Tool, "?", ask.Reason)
			_, err := r.Decide(ctx, api.Decide{Call: ask.Call, Thread: news.Thread, Decision: api.DecisionReject, Text: "keep it"})
			fmt.Println(err)
		}
	}
	run, err = r.Get(ctx)
	fmt.Println(run.State, run.Text, err)
	// Output:
	// may it execute ? deletes files
	// <nil>
	// succeeded Then not. <nil>
}

func ExampleRun_Live() {
	ctx := context.Background()
	watching := make(chan struct{})
	c, done := scripted(func(p *runstest.Play) {
		p.Until(watching)
		p.Live(runs.Live{Kind: runs.LiveText, Text: "Hel"})
		p.Live(runs.Live{Kind: runs.LiveText, Text: "lo."})
		p.Answer("Hello.")
		p.End(thread.RunSucceeded, "Hello.")
	})
	defer done()

	run, err := c.StartRun(ctx, api.StartRun{Task: "Greet me."})
	if err != nil {
		panic(err)
	}
	for news, err := range c.Run(run.ID).Live(ctx, 0) {
		switch {
		case err != nil:
			panic(err)
		case news.Live != nil:
			// Parts of the answer, as they come: show them at once.
		case news.End != nil:
			fmt.Println("end:", news.End.State)
		case news.Event.Kind == "input":
			close(watching)
		case news.Event.Kind == "model.completed":
			var answer struct {
				Message struct{ Blocks []struct{ Text string } }
			}
			if err := json.Unmarshal(news.Event.Data, &answer); err != nil {
				panic(err)
			}
			fmt.Println(answer.Message.Blocks[0].Text)
		}
	}
	// Output:
	// Hello.
	// end: succeeded
}
