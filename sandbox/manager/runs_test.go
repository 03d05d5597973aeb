package manager_test

import (
	"testing"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

const runA, runB = "run_aaaaaaaaaaaaaaaaaaaa", "run_bbbbbbbbbbbbbbbbbbbb"

func forRun(t *testing.T, m *manager.Manager, run string) sandbox.ID {
	t.Helper()
	i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Persist: true, IdleTimeout: 4 * time.Hour}, Run: run, Agent: "coder"})
	if err != nil {
		t.Fatal(err)
	}
	if i.ForRun.Run != run || i.ForRun.Agent != "coder" {
		t.Errorf("it is for %+v", i.ForRun)
	}
	return i.ID
}

func leave(t *testing.T, m *manager.Manager, run string, then sandbox.Then) {
	t.Helper()
	if err := m.Leave(t.Context(), "t", run, then, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
}

// When the run that a sandbox was made for is over, it is stopped or removed
// ten minutes after its last use; what people made is left alone.
func TestRunOver(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		stop, remove, keep := forRun(t, m, runA), forRun(t, m, runB), forRun(t, m, "run_c")
		given := create(t, m, "t", sandbox.Spec{IdleTimeout: 4 * time.Hour}).ID
		if err := m.Enter(t.Context(), "t", given, runA, "coder", false); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		wantState(t, m, stop, sandbox.Running, "") // its run is under way
		leave(t, m, runA, sandbox.ThenStop)
		leave(t, m, runA, sandbox.ThenRemove) // again: the first counts
		leave(t, m, runB, sandbox.ThenRemove)
		leave(t, m, "run_c", sandbox.ThenNothing)
		pass(10*time.Minute - time.Second)
		wantState(t, m, stop, sandbox.Running, "")
		wantState(t, m, remove, sandbox.Running, "")
		pass(2 * time.Second)
		wantState(t, m, stop, sandbox.Stopped, sandbox.ReasonRunOver)
		wantState(t, m, remove, sandbox.Destroyed, sandbox.ReasonRunOver)
		wantState(t, m, keep, sandbox.Running, "")
		wantState(t, m, given, sandbox.Running, "")
		// Who starts it again has an ordinary one.
		if _, err := m.Start(t.Context(), "t", stop); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		wantState(t, m, stop, sandbox.Running, "")
		w.check(t, m, "t")
	})
}

// Whatever uses the sandbox puts its end off: a person, and another run.
func TestRunOver_usedMeanwhile(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		person, other, again := forRun(t, m, runA), forRun(t, m, "run_c"), forRun(t, m, "run_d")
		if err := m.Enter(t.Context(), "t", other, runB, "coder", false); err != nil {
			t.Fatal(err)
		}
		for _, run := range []string{runA, "run_c", "run_d"} {
			leave(t, m, run, sandbox.ThenRemove)
		}
		if err := m.Enter(t.Context(), "t", again, "run_e", "planner", true); err != nil { // the next run of its thread
			t.Fatal(err)
		}
		if i, err := m.Get(t.Context(), "t", again); err != nil || i.ForRun.Agent != "planner" {
			t.Errorf("it is for %+v, %v", i.ForRun, err)
		}
		_, release, err := m.Guest(t.Context(), "t", person)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		for _, id := range []sandbox.ID{person, other, again} {
			wantState(t, m, id, sandbox.Running, "")
		}
		release()
		leave(t, m, runB, sandbox.ThenNothing)
		leave(t, m, "run_e", sandbox.ThenStop)
		pass(9 * time.Minute)
		conn, err := m.Dial(t.Context(), "t", person, 8080) // a preview, at the ninth minute
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		pass(2 * time.Minute)
		wantState(t, m, person, sandbox.Running, "")
		wantState(t, m, other, sandbox.Destroyed, sandbox.ReasonRunOver)
		wantState(t, m, again, sandbox.Stopped, sandbox.ReasonRunOver)
		pass(9 * time.Minute)
		wantState(t, m, person, sandbox.Destroyed, sandbox.ReasonRunOver)
		w.check(t, m, "t")
	})
}

// The next server stops what the last one was to stop.
func TestRunOver_afterACrash(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		over, under := forRun(t, m, runA), forRun(t, m, runB)
		stopped := forRun(t, m, "run_c")
		leave(t, m, runA, sandbox.ThenStop)
		leave(t, m, "run_c", sandbox.ThenRemove)
		if _, err := m.Stop(t.Context(), "t", stopped); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		m = w.open(t, w.config(nil))
		pass(11 * time.Minute)
		wantState(t, m, over, sandbox.Stopped, sandbox.ReasonRunOver)
		wantState(t, m, stopped, sandbox.Destroyed, sandbox.ReasonRunOver)
		wantState(t, m, under, sandbox.Running, "")
		if runs := m.Runs(); len(runs) != 1 || runs[0] != (manager.RunIn{Tenant: "t", Run: runB}) {
			t.Errorf("under way: %v", runs)
		}
		w.check(t, m, "t")
	})
}

// A sandbox that the server made for no run is removed when it was not used for as long as it
// is kept, also where it was stopped before, and where the server restarts more often than
// that; what the next request for it says of the time counts.
func TestKeep(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		made := func(name string, keep time.Duration) sandbox.ID {
			i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Persist: true, IdleTimeout: 15 * time.Minute}, Key: name, Keep: keep})
			if err != nil {
				t.Fatal(err)
			}
			return i.ID
		}
		short, long, used, people := made("short", 2*time.Hour), made("long", 2*time.Hour), made("used", 2*time.Hour), made("people", 0)
		if err := m.Keep(t.Context(), "t", long, 9*time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := m.Enter(t.Context(), "t", short, runA, "coder", true); err != nil {
			t.Fatal(err)
		}
		leave(t, m, runA, sandbox.ThenNothing) // a run in it changes nothing
		for _, id := range []sandbox.ID{short, long, used, people} {
			if _, err := m.Stop(t.Context(), "t", id); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Hour)
		if _, err := m.Start(t.Context(), "t", used); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stop(t.Context(), "t", used); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Minute)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		m = w.open(t, w.config(nil))
		pass(40 * time.Minute) // ten minutes too late for the first one
		wantState(t, m, short, sandbox.Destroyed, sandbox.ReasonRunOver)
		wantState(t, m, used, sandbox.Stopped, sandbox.ReasonStopped)
		wantState(t, m, long, sandbox.Stopped, sandbox.ReasonStopped)
		pass(2 * time.Hour)
		wantState(t, m, used, sandbox.Destroyed, sandbox.ReasonRunOver)
		pass(8 * time.Hour)
		wantState(t, m, long, sandbox.Destroyed, sandbox.ReasonRunOver)
		wantState(t, m, people, sandbox.Stopped, sandbox.ReasonStopped)
		w.check(t, m, "t")
	})
}
