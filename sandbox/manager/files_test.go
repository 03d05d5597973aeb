package manager_test

import (
	"context"
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// toldOf is a context that tells when a call begins to wait.
type toldOf struct {
	context.Context
	begun func()
}

func (w toldOf) Done() <-chan struct{} {
	w.begun()
	return w.Context.Done()
}

// still is a call that stops what writes to the files, as an undo does.
func still(ctx context.Context, files sandbox.Files) error {
	thaw, err := files.Freeze(ctx)
	if err == nil {
		thaw()
	}
	return err
}

// A machine that dies takes no files with it: whenever a call for them comes, or is under
// way, the host's are the answer.
func TestFiles_ofADyingMachine(t *testing.T) {
	type moment struct {
		name  string
		holds string // the step of the machine's end that waits for let
		calls int    // of what is done to the files
	}
	for _, at := range []moment{
		{"not seen yet", "see the end", 2},
		{"being removed", "end", 1},
		{"dies meanwhile", "", 2},
	} {
		t.Run(at.name, func(t *testing.T) {
			w := newWorld(t)
			m := w.open(t, w.config(nil))
			id := create(t, m, "t", sandbox.Spec{}).ID
			machine := w.machine(id)
			reached, gate := make(chan struct{}), make(chan struct{})
			reach, let := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(gate) })
			defer let()
			first := sync.OnceFunc(func() { reach(); <-gate })
			var mu sync.Mutex
			taken := false
			w.setSlow(func(step, _ string) {
				mu.Lock()
				mine := step == at.holds && !taken
				taken = taken || mine
				mu.Unlock()
				if mine {
					first()
				}
			})
			if at.holds != "" {
				machine.end(sandbox.ReasonKilled)
				<-reached
			}
			var seen []sandbox.Files
			ctx := context.Context(t.Context())
			if at.holds == "end" {
				ctx = toldOf{ctx, let} // else what is held waits until the test is over
			}
			err := m.Files(ctx, "t", id, func(ctx context.Context, files sandbox.Files) error {
				seen = append(seen, files)
				if at.holds == "" && len(seen) == 1 {
					machine.end(sandbox.ReasonKilled)
					<-ctx.Done()
					return ctx.Err()
				}
				return still(ctx, files)
			})
			if err != nil || len(seen) != at.calls {
				t.Fatalf("%d calls, %v", len(seen), err)
			}
			if last := seen[len(seen)-1]; !last.Alone || last.Guest != nil || last.Volume.Path == "" {
				t.Errorf("the files are %+v", last)
			}
			isState(t, m, id, sandbox.Failed, sandbox.ReasonKilled)
			let()
			w.check(t, m, "t")
		})
	}
}

// A call whose sandbox is stopped is told so: it is not done behind the back of who stopped it.
func TestFiles_ofAStoppedMachine(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{Persist: true}).ID
	calls := 0
	var stop sync.WaitGroup
	err := m.Files(t.Context(), "t", id, func(ctx context.Context, _ sandbox.Files) error {
		calls++
		stop.Go(func() {
			if _, err := m.Stop(context.WithoutCancel(ctx), "t", id); err != nil {
				t.Error(err)
			}
		})
		<-ctx.Done()
		return errs.New(errs.Unavailable, "the files were taken away")
	})
	stop.Wait()
	wantClass(t, "a call under way", err, errs.Unavailable)
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	w.check(t, m, "t")
}
