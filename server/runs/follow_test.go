package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

const (
	run   = thread.RunID("run_aaaaaaaaaaaaaaaaaaaa")
	other = thread.RunID("run_bbbbbbbbbbbbbbbbbbbb")
	root  = thread.ID("thr_aaaaaaaaaaaaaaaaaaaa")
)

// world is a log, and who listens to live news of it.
type world struct {
	t     *testing.T
	log   *thread.Memory
	visit func([]byte, int)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, log: thread.NewMemory()}
	w.add(root, run, thread.Opened{Agent: json.RawMessage(`{}`), Name: "a"}, thread.RunStarted{}, input("go"))
	return w
}

func input(s string) thread.Input {
	return thread.Input{From: "user", Blocks: []llm.Block{llm.Text(s)}}
}

func ended() thread.RunEnded { return thread.RunEnded{State: thread.RunSucceeded} }

func (w *world) add(id thread.ID, r thread.RunID, bodies ...thread.Body) {
	w.t.Helper()
	for _, b := range bodies {
		head, err := w.log.Head(context.Background(), id)
		if err == nil {
			_, err = w.log.Append(context.Background(), id, head, thread.New(r, b))
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) live(l api.Live) {
	data, _ := json.Marshal(l)
	w.visit(data, 0)
}

func (w *world) open(change func(*followTopic)) *followSource {
	w.t.Helper()
	t := followTopic{Log: w.log, Thread: root, Run: run, First: 2, Settle: func(context.Context) {}}
	t.Watch = func(_ thread.ID, visit func([]byte, int)) (func(), error) {
		w.visit = visit
		return func() {}, nil
	}
	if change != nil {
		change(&t)
	}
	s, err := openFollow(w.t.Context(), t)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

// say makes an item readable: "3 input", "/c1 2 run.started", "live text hello", "lost 4", "end succeeded 9".
func say(it followItem) string {
	at := strings.TrimPrefix(string(it.Thread), string(root))
	if at != "" {
		at += " "
	}
	switch {
	case it.Event != nil:
		return fmt.Sprintf("%s%d %s", at, it.Event.Seq, it.Event.Body.Kind())
	case it.Live != nil:
		return fmt.Sprintf("%slive %s %s", at, it.Live.Kind, it.Live.Text)
	case it.Lost > 0:
		return fmt.Sprintf("lost %d", it.Lost)
	}
	return fmt.Sprintf("end %s %d", it.End.State, it.End.Seq)
}

// next reads n items, or all to the end when n is 0.
func next(t *testing.T, s *followSource, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	for n == 0 || len(got) < n {
		it, err := s.Next(ctx)
		if errors.Is(err, errFollowEnd) {
			return append(got, "-")
		}
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, say(it))
	}
	return got
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEvents_asTheyComeAndTheEnd(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	w.add(root, run, input("more"))
	want(t, next(t, s, 1), "4 input")
	w.add(root, run, ended())
	want(t, next(t, s, 0), "5 run.ended", "end succeeded 5", "-")
}

func TestResume(t *testing.T) {
	w := newWorld(t)
	w.add(root, run, input("more"), ended())
	for from, wanted := range map[uint64][]string{
		0: {"2 run.started", "3 input", "4 input", "5 run.ended", "end succeeded 5", "-"},
		1: {"2 run.started", "3 input", "4 input", "5 run.ended", "end succeeded 5", "-"},
		4: {"4 input", "5 run.ended", "end succeeded 5", "-"},
		6: {"end succeeded 5", "-"}, // it had all but the end
	} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			want(t, next(t, w.open(func(t *followTopic) { t.From = from }), 0), wanted...)
		})
	}
}

// A run that was ended by its budget and goes on is not over.
func TestResumedRun_isNotOver(t *testing.T) {
	w := newWorld(t)
	w.add(root, run, thread.RunEnded{State: thread.RunFailed, Reason: "steps"}, thread.RunStarted{}, input("go on"))
	s := w.open(nil)
	want(t, next(t, s, 5), "2 run.started", "3 input", "4 run.ended", "5 run.started", "6 input")
	w.add(root, run, ended())
	want(t, next(t, s, 0), "7 run.ended", "end succeeded 7", "-")
}

func TestOtherRuns_areLeftOut(t *testing.T) {
	w := newWorld(t)
	w.add(root, run, ended())
	w.add(root, other, thread.RunStarted{}, input("another"))
	want(t, next(t, w.open(nil), 0), "2 run.started", "3 input", "4 run.ended", "end succeeded 4", "-")
	s := w.open(func(t *followTopic) { t.Run, t.First = other, 5 })
	want(t, next(t, s, 2), "5 run.started", "6 input")
}

func TestOnce_endsWhereTheLogEnds(t *testing.T) {
	w := newWorld(t)
	want(t, next(t, w.open(func(t *followTopic) { t.Once, t.Watch = true, nil }), 0), "2 run.started", "3 input", "-")
	w.add(root, run, ended())
	want(t, next(t, w.open(func(t *followTopic) { t.Once, t.Watch = true, nil }), 0), "2 run.started", "3 input", "4 run.ended", "end succeeded 4", "-")
}

// The events of sub-agents, and of theirs, and all of them before the end.
func TestTree(t *testing.T) {
	w := newWorld(t)
	sub, subsub := root.Sub("c1"), root.Sub("c1").Sub("d1")
	s := w.open(func(t *followTopic) { t.Tree = true })
	want(t, next(t, s, 2), "2 run.started", "3 input")
	w.add(root, run, thread.ToolStarted{Call: "c1", Tool: "task"})
	want(t, next(t, s, 1), "4 tool.started")
	w.add(sub, other, thread.Opened{Agent: json.RawMessage(`{}`)}, thread.RunStarted{}, thread.ToolStarted{Call: "d1", Tool: "task"})
	want(t, next(t, s, 3), "/c1 1 thread.opened", "/c1 2 run.started", "/c1 3 tool.started")
	w.add(subsub, other, thread.Opened{Agent: json.RawMessage(`{}`)}, ended())
	w.add(sub, other, ended())
	w.add(root, run, ended())
	all := strings.Join(next(t, s, 0), ", ")
	for _, part := range []string{"/c1/d1 1 thread.opened", "/c1/d1 2 run.ended", "/c1 4 run.ended", "5 run.ended"} {
		if !strings.Contains(all, part) {
			t.Errorf("%s is missing in %s", part, all)
		}
	}
	if !strings.HasSuffix(all, "end succeeded 5, -") {
		t.Errorf("it ends with %s", all)
	}
}

func TestTree_resumesEachThread(t *testing.T) {
	w := newWorld(t)
	sub := root.Sub("c1")
	w.add(root, run, thread.ToolStarted{Call: "c1", Tool: "task"})
	w.add(sub, other, thread.Opened{Agent: json.RawMessage(`{}`)}, thread.RunStarted{}, input("x"))
	s := w.open(func(t *followTopic) {
		t.Tree, t.From, t.Threads = true, 5, map[thread.ID]uint64{sub: 3}
	})
	want(t, next(t, s, 1), "/c1 3 input")
	w.add(root, run, input("more"))
	want(t, next(t, s, 1), "5 input")
}

// What is on its way never comes before what it rests on.
func TestLive_waitsForItsEvents(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	w.live(api.Live{Thread: string(root), Run: string(run), After: 4, Kind: "text", Text: "early"})
	w.live(api.Live{Thread: string(root), Run: "run_of_somebody_else", After: 3, Kind: "text", Text: "foreign"})
	w.add(root, run, input("more"))
	want(t, next(t, s, 2), "4 input", "live text early")
}

func TestLive_isJoined(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	for _, l := range []api.Live{
		{Kind: "text", Text: "he"},
		{Kind: "text", Text: "llo"},
		{Kind: "output", Call: "c1", Text: "a"},
		{Kind: "output", Call: "c2", Text: "b"},
		{Kind: "output", Call: "c2", Text: "c"},
		{Kind: "reset"},
		{Kind: "reset"},
	} {
		l.Thread, l.Run, l.After = string(root), string(run), 3
		w.live(l)
	}
	want(t, next(t, s, 5), "live text hello", "live output a", "live output bc", "live reset ", "live reset ")
}

// While the stream is not read, writers are not held up, memory is bounded, and
// what was lost is said.
// Who comes in the middle gets what there is so far, once, and nothing that the log has.
func TestLive_again(t *testing.T) {
	w := newWorld(t)
	w.add(root, run, thread.ModelCompleted{}, input("more"))
	s := w.open(nil)
	text := api.Live{Thread: string(root), Run: string(run), After: 5, Kind: "text"}
	with := func(text api.Live, more string, again bool) api.Live {
		text.Text, text.Again = more, again
		return text
	}
	old := text
	old.After = 3
	output := text
	output.Kind, output.Call = "output", "c"
	for _, l := range []api.Live{
		with(old, "in the log", true), with(text, "lo", false), with(output, "x", false), with(text, "Hello", true), with(text, ", you", false), with(output, "y", true), with(output, "z", false),
	} {
		w.live(l)
	}
	want(t, next(t, s, 4), "2 run.started", "3 input", "4 model.completed", "5 input")
	want(t, next(t, s, 2), "live text Hello, you", "live output yz")
	w.add(root, run, ended())
	want(t, next(t, s, 0), "6 run.ended", "end succeeded 6", "-")
}

func TestSlowReader_holdsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.open(nil)
		const pieces = 2000
		for i := range pieces {
			w.live(api.Live{Thread: string(root), Run: string(run), After: 3, Kind: "output", Call: fmt.Sprint("c", i%2), Text: "x"})
			w.add(root, run, input(fmt.Sprint(i)))
		}
		w.add(root, run, ended())
		got := next(t, s, 0)
		lost, live, events := 0, 0, 0
		for _, line := range got {
			n := 0
			switch {
			case strings.HasPrefix(line, "live"):
				live++
			case strings.HasSuffix(line, "input"):
				events++
			default:
				if _, err := fmt.Sscanf(line, "lost %d", &n); err == nil {
					lost += n
				}
			}
		}
		if lost == 0 || live+lost != pieces || events != pieces+1 {
			t.Errorf("%d live pieces, %d lost, %d events of %d", live, lost, events, pieces+1)
		}
		s.Close()
	})
}

// A flood of live news does not hide an event.
func TestFlood_hidesNoEvent(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	w.add(root, run, input("the event"))
	flood := func() {
		w.live(api.Live{Thread: string(root), Run: string(run), After: 3, Kind: "reset"})
	}
	flood()
	i := 0 // a number of pieces is gone before the log's watcher has run once
	patience.Until(t, 10*time.Second, "the event", func() bool {
		i++
		flood()
		return next(t, s, 1)[0] == "4 input"
	})
	t.Logf("after %d pieces", i)
}

func TestLost_before(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	w.visit(nil, 7)
	want(t, next(t, s, 1), "lost 7")
	w.visit([]byte("no json"), 0)
	w.add(root, run, ended())
	want(t, next(t, s, 0), "4 run.ended", "end succeeded 4", "-")
}

func TestDeletedThread_endsWithAnError(t *testing.T) {
	w := newWorld(t)
	s := w.open(nil)
	want(t, next(t, s, 2), "2 run.started", "3 input")
	if err := w.log.Delete(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Next(ctx); err == nil || errors.Is(err, errFollowEnd) || ctx.Err() != nil {
		t.Errorf("Next: %v", err)
	}
}
