package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

func testBoot(s *suite) {
	b := s.boot()
	m, g := s.create(b)
	if m.ID() != b.ID {
		s.Errorf("ID = %s, want %s", m.ID(), b.ID)
	}
	h, err := g.Hello(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if h.Version != wire.Version || h.BootId == "" || h.SuperviseStarts != 1 || h.RootGranted {
		s.Errorf("hello: %v", h)
	}
	if i := s.p.Capabilities().Isolation; i != sandbox.None && i != sandbox.Remote {
		if h.User != sandbox.UserName || h.Uid != sandbox.UserID || string(h.Workdir) != sandbox.WorkspaceDir {
			s.Errorf("hello: %v", h)
		}
	}
	ids, err := s.p.List(s.Context())
	if err != nil || !slices.Contains(ids, b.ID) {
		s.Errorf("List = %v, %v", ids, err)
	}
}

func testRefusals(s *suite) {
	b := s.boot(odd(s, "hello"))
	s.create(b)
	if _, err := s.p.Create(s.Context(), b); !errs.Is(err, errs.Exists) {
		s.Errorf("the same ID again: %v", err)
	}
	other := s.boot(odd(s, "hello"))
	if _, err := s.p.Attach(s.Context(), other.ID); !errs.Is(err, errs.NotFound) {
		s.Errorf("attach to nothing: %v", err)
	}
	for _, id := range []sandbox.ID{"", "..", "sbx_../../../../../etc", "sbx_aaaaaaaaaaaaaaaaaaa", "sbx_aaaaaaaaaaaaaaaaaaaa\n", "SBX_aaaaaaaaaaaaaaaaaaaa"} {
		bad := other
		bad.ID = id
		if _, err := s.p.Create(s.Context(), bad); !errs.Is(err, errs.Invalid) {
			s.Errorf("create %q: %v", id, err)
		}
		if _, err := s.p.Attach(s.Context(), id); !errs.Is(err, errs.Invalid) {
			s.Errorf("attach %q: %v", id, err)
		}
		if err := s.p.Destroy(s.Context(), id); !errs.Is(err, errs.Invalid) {
			s.Errorf("destroy %q: %v", id, err)
		}
	}
}

// testRestart lets one server go and has the next one find the machine, a
// running command and all of its output.
func testRestart(s *suite) {
	b := s.boot()
	m, g := s.create(b)
	g.Background("count", "/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; read -r x < go; echo end; exit 5")
	before, err := g.Hello(s.Context())
	must(s, err)
	g.Client.Close()
	must(s, s.p.Close())
	if _, err := m.Wait(s.Context()); !errs.Is(err, errs.Unavailable) {
		s.Errorf("Wait of a machine that was let go: %v", err)
	}

	next := s.New(s)
	s.p = next // what follows uses the new server
	s.Cleanup(func() { _ = next.Close() })
	ids, err := next.List(s.Context())
	if err != nil || !slices.Contains(ids, b.ID) {
		s.Fatalf("the next server's List = %v, %v", ids, err)
	}
	ctx, cancel := patience.Context(s.Context(), 30*time.Second)
	defer cancel()
	m2, err := next.Attach(ctx, b.ID)
	if err != nil {
		s.Fatal(err)
	}
	g2 := NewGuest(s, m2)
	after, err := g2.Hello(ctx)
	must(s, err)
	if after.BootId != before.BootId {
		s.Errorf("booted anew: %q, was %q", after.BootId, before.BootId)
	}
	if res := g2.Shell("echo > go"); res.Code != 0 {
		s.Fatalf("go: %+v", res)
	}
	got, err := g2.AttachAll(ctx, "count")
	must(s, err)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("end\n")
	if got.Stdout != want.String() || got.Code != 5 {
		s.Errorf("after the restart: code %d, %d bytes of output, want 5 and %d bytes", got.Code, len(got.Stdout), want.Len())
	}
	must(s, m2.Destroy(ctx))
	if e := s.wait(m2); e.Reason != sandbox.ReasonDestroyed {
		s.Errorf("exit = %+v", e)
	}
	if _, err := next.Attach(ctx, b.ID); !errs.Is(err, errs.NotFound) {
		s.Errorf("attach after destroy: %v", err)
	}
}

// testSuperviseKilled kills the guest's second process: commands go on, the
// channel comes back by itself.
func testSuperviseKilled(s *suite) {
	b := s.boot(func(b *sandbox.Boot) { b.Spec.Root = s.p.Capabilities().Isolation != sandbox.Remote })
	_, g := s.create(b)
	g.Background("work", "/bin/sh", "-c", "echo one; read -r x < go; echo two; exit 4")
	kill := s.superviseKiller(b, g)
	for round := range 3 {
		kill()
		Eventually(s, "a new supervise", func() bool {
			h, err := g.Hello(s.Context())
			return err == nil && h.SuperviseStarts == uint64(round+2)
		})
	}
	if res := g.Shell("echo > go"); res.Code != 0 {
		s.Fatalf("go: %+v", res)
	}
	if got, err := g.AttachAll(s.Context(), "work"); err != nil || got.Stdout != "one\ntwo\n" || got.Code != 4 {
		s.Errorf("the command: %+v, %v", got, err)
	}
}

// superviseKiller returns a function that kills supervise: from inside as
// root where the machine has processes of its own, else from the host.
func (s *suite) superviseKiller(b sandbox.Boot, g Guest) func() {
	if s.p.Capabilities().Isolation != sandbox.None {
		return func() {
			r := Start("/bin/sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -q '^[^ ]*guest supervise ' && kill -9 ${p#/proc/}; done; true`)
			if b.Spec.Root { // else the guest is the user's own
				r.User = "root"
			}
			_, _ = g.Exec(s.Context(), r) // its own connection dies
		}
	}
	return func() {
		pid := s.HostPID(s, b.ID)
		ps, err := hostproc.List()
		must(s, err)
		for _, p := range ps {
			if p.Parent == pid && len(p.Args) > 1 && p.Args[1] == "supervise" {
				must(s, p.Signal(unix.SIGKILL))
			}
		}
	}
}

func testPause(s *suite) {
	b := s.boot(twoCPUs)
	m, g := s.create(b)
	if !s.p.Capabilities().Pause {
		if err := m.Pause(s.Context()); !errs.Is(err, errs.Unsupported) {
			s.Errorf("pause: %v", err)
		}
		if err := m.Resume(s.Context()); !errs.Is(err, errs.Unsupported) {
			s.Errorf("resume: %v", err)
		}
		return
	}
	must(s, m.Resume(s.Context())) // a running one: no error
	for range 2 {
		for range 2 {
			must(s, m.Pause(s.Context()))
		}
		ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
		if _, err := g.Hello(ctx); err == nil {
			s.Error("a paused guest answered")
		}
		cancel()
		for range 2 {
			must(s, m.Resume(s.Context()))
		}
		if res := g.Run("/bin/echo", "awake"); res.Stdout != "awake\n" {
			s.Errorf("after the resume: %+v", res)
		}
	}
	s.pauseAcrossRestart(m, b)
}

// pauseAcrossRestart: the next server must know that it need not wait for an
// answer, and be able to resume or to destroy.
func (s *suite) pauseAcrossRestart(m sandbox.Machine, b sandbox.Boot) {
	must(s, m.Pause(s.Context()))
	must(s, s.p.Close())
	next := s.New(s)
	s.Cleanup(func() { _ = next.Close() })
	s.p = next
	m2, err := next.Attach(s.Context(), b.ID)
	if err != nil {
		s.Fatalf("attach to a paused machine: %v", err)
	}
	must(s, m2.Resume(s.Context()))
	if res := NewGuest(s, m2).Run("/bin/echo", "back"); res.Stdout != "back\n" {
		s.Errorf("after restart and resume: %+v", res)
	}
	must(s, m2.Pause(s.Context()))
	must(s, m2.Destroy(s.Context()))
	if e := s.wait(m2); e.Reason != sandbox.ReasonDestroyed {
		s.Errorf("exit of a paused one: %+v", e)
	}
}

func testHostKilled(s *suite) {
	b := s.boot()
	m, g := s.create(b)
	g.Background("idle", "/bin/sleep", "1000")
	must(s, unix.Kill(s.HostPID(s, b.ID), unix.SIGKILL))
	if e := s.wait(m); e.Reason != sandbox.ReasonKilled && !strings.Contains(e.Detail, "does not tell") || e.Time.IsZero() {
		s.Errorf("exit = %+v, want killed", e)
	}
	if _, err := m.Dial(s.Context(), wire.ControlPort); !errs.Is(err, errs.Unavailable) {
		s.Errorf("dial a dead machine: %v", err)
	}
	if ids, err := s.p.List(s.Context()); err != nil || !slices.Contains(ids, b.ID) {
		s.Errorf("a dead machine's leftovers are not listed: %v, %v", ids, err)
	}
	must(s, s.p.Close())
	next := s.New(s)
	s.Cleanup(func() { _ = next.Close() })
	s.p = next
	if _, err := next.Attach(s.Context(), b.ID); !errs.Is(err, errs.NotFound) {
		s.Errorf("attach to a dead machine: %v", err)
	}
	must(s, next.Destroy(s.Context(), b.ID))
	Leaks(s, s.Dir, b.ID)
}

func testGuestShutdown(s *suite) {
	m, g := s.create(s.boot())
	_, err := g.Control.Shutdown(s.Context(), connect.NewRequest(&wire.ShutdownRequest{GraceMs: 10}))
	if err != nil {
		s.Logf("shutdown: %v", err) // the guest may be gone before the answer is
	}
	if e := s.wait(m); e.Reason != sandbox.ReasonExited {
		s.Errorf("exit = %+v, want exited", e)
	}
}

func testWait(s *suite) {
	m, _ := s.create(s.boot(odd(s, "hello")))
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("Wait with a deadline: %v", err)
	}
	exits := make(chan sandbox.Exit, 3)
	for range cap(exits) {
		go func() {
			e, _ := m.Wait(context.Background())
			exits <- e
		}()
	}
	must(s, m.Destroy(s.Context()))
	for range cap(exits) {
		if e := <-exits; e.Reason != sandbox.ReasonDestroyed {
			s.Errorf("exit = %+v", e)
		}
	}
}

func testDestroyEveryState(s *suite) {
	never := s.boot(odd(s, "hello"))
	for range 2 {
		if err := s.p.Destroy(s.Context(), never.ID); err != nil {
			s.Errorf("destroy of nothing: %v", err)
		}
	}
	live := s.boot()
	m, g := s.create(live)
	g.Background("tree", "/bin/sh", "-c", "setsid sleep 1000 & sleep 1000 & wait")
	for range 3 {
		must(s, m.Destroy(s.Context()))
		must(s, s.p.Destroy(s.Context(), live.ID))
	}
	Leaks(s, s.Dir, live.ID)

	closed := s.boot(odd(s, "hello"))
	mc, _ := s.create(closed)
	must(s, mc.Close())
	must(s, mc.Destroy(s.Context()))
	Leaks(s, s.Dir, closed.ID)

	again := s.boot(odd(s, "hello"))
	s.create(again)
	must(s, s.p.Destroy(s.Context(), again.ID))
	s.create(again) // the name is free again
}

func testDestroyDuringCreate(s *suite) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
		b := s.boot(odd(s, "silent"))
		done := make(chan error, 1)
		go func() {
			_, err := s.p.Create(s.Context(), b)
			done <- err
		}()
		Eventually(s, "the create to begin", func() bool {
			ids, err := s.p.List(s.Context())
			return err == nil && slices.Contains(ids, b.ID)
		})
		<-time.After(delay)
		must(s, s.p.Destroy(s.Context(), b.ID))
		if err := <-done; !errs.Is(err, errs.Conflict) {
			s.Errorf("create that was overtaken by destroy: %v", err)
		}
		Leaks(s, s.Dir, b.ID)
	}
}

func testCreateCancelled(s *suite) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
		b := s.boot(odd(s, "absent"))
		ctx, cancel := context.WithTimeout(s.Context(), after)
		patience.Within(s, 10*time.Second, fmt.Sprintf("the end of a create with %v", after), func() {
			if _, err := s.p.Create(ctx, b); !errors.Is(err, context.DeadlineExceeded) {
				s.Errorf("create with %v: %v", after, err)
			}
		})
		cancel()
		Leaks(s, s.Dir, b.ID)
	}
}

func testConcurrent(s *suite) {
	const n = 8
	boots := make([]sandbox.Boot, n)
	for i := range boots {
		boots[i] = s.boot()
	}
	var wg sync.WaitGroup
	for i := range boots {
		wg.Go(func() {
			ctx, cancel := patience.Context(s.Context(), 2*time.Minute)
			defer cancel()
			m, err := s.p.Create(ctx, boots[i])
			if err != nil {
				s.Errorf("create: %v", err)
				return
			}
			defer m.Close()
			res, err := NewGuest(s, m).Exec(s.Context(), Start("/bin/sh", "-c", fmt.Sprintf("echo %d > own; cat own", i)))
			if err != nil || res.Stdout != fmt.Sprintln(i) {
				s.Errorf("machine %d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
	ids, err := s.p.List(s.Context())
	must(s, err)
	if len(ids) != n {
		s.Errorf("List has %d machines, want %d", len(ids), n)
	}
	for _, b := range boots {
		wg.Go(func() {
			if err := s.p.Destroy(context.Background(), b.ID); err != nil {
				s.Errorf("destroy: %v", err)
			}
		})
	}
	wg.Wait()
	if ids, err := s.p.List(s.Context()); err != nil || len(ids) != 0 {
		s.Errorf("List after the end of all: %v, %v", ids, err)
	}
}

// testCycles makes and ends machines one after the other: whatever each
// leaves would add up.
func testCycles(s *suite) {
	cycle := func() sandbox.ID {
		b := s.boot(odd(s, "hello"))
		ctx, cancel := patience.Context(s.Context(), time.Minute)
		defer cancel()
		m, err := s.p.Create(ctx, b)
		if err != nil {
			s.Fatal(err)
		}
		must(s, m.Destroy(s.Context()))
		return b.ID
	}
	cycle() // what the first one opens for good
	before := openFiles(s)
	var ids []sandbox.ID
	for range 10 {
		ids = append(ids, cycle())
	}
	Leaks(s, s.Dir, ids...)
	if after := openFiles(s); after > before+2 {
		s.Errorf("open files: %d before, %d after", before, after)
	}
	if got, err := s.p.List(s.Context()); err != nil || len(got) != 0 {
		s.Errorf("List: %v, %v", got, err)
	}
	if entries, err := os.ReadDir(s.Dir); err != nil {
		s.Error(err)
	} else {
		for _, e := range entries {
			if strings.Contains(e.Name(), "sbx_") {
				s.Errorf("left: %s", e.Name())
			}
		}
	}
}

// testOddGuests: whatever answers in the guest's place, Create ends in time
// with a clear error and leaves nothing.
func testOddGuests(s *suite) {
	for mode, want := range map[string]errs.Class{
		"silent": errs.Unavailable, "absent": errs.Unavailable, "exit": errs.Unavailable, "chatty": errs.Unavailable,
		"garbage": errs.Unavailable, "flood": errs.Unavailable, "huge": errs.Limit,
	} {
		b := s.boot(odd(s, mode))
		limit := max(time.Second, s.Fixture.Boot)
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		if mode == "exit" {
			ctx, cancel = patience.Context(s.Context(), limit+20*time.Second)
		}
		var err error
		patience.Within(s, limit+30*time.Second, "the end of a create with a guest that is "+mode, func() { _, err = s.p.Create(ctx, b) })
		if mode == "exit" && ctx.Err() != nil {
			s.Errorf("%s: only its deadline ended the create: %v", mode, err)
		}
		cancel()
		if err == nil {
			s.Errorf("%s: a machine came up", mode)
			continue
		}
		if class := errs.Of(err); class != errs.Unavailable && class != want {
			s.Errorf("%s: class %s: %v", mode, class, err)
		}
		Leaks(s, s.Dir, b.ID)
	}
}
