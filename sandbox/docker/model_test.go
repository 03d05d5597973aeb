package docker

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// modelled opens a provider on a model of an engine and describes a machine.
func modelled(t *testing.T) (*enginetest.Model, *Provider, sandbox.Boot) {
	t.Helper()
	m := enginetest.NewModel(t)
	p, err := New(Config{Dir: t.TempDir(), Host: m.Host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	b := bootOf(t, sandboxtest.Rootfs(t))
	t.Cleanup(func() {
		m.Fail(nil)
		if err := p.Destroy(context.Background(), b.ID); err != nil {
			t.Error(err)
		}
		if names := m.Names(); len(names) > 0 {
			t.Errorf("left in the engine: %v", names)
		}
		sandboxtest.Leaks(t, p.c.Dir, b.ID)
	})
	return m, p, b
}

// once gives the fault to the first call of a kind only.
func once(call string, f enginetest.Fault) func(string) enginetest.Fault {
	var done atomic.Bool
	return func(c string) enginetest.Fault {
		if isCall(c, call) && done.CompareAndSwap(false, true) {
			return f
		}
		return enginetest.Fault{}
	}
}

// isCall compares, with "*" for a container.
func isCall(call, pattern string) bool {
	before, after, _ := strings.Cut(pattern, "*")
	return strings.HasPrefix(call, before) && strings.HasSuffix(call, after) && (before != pattern || call == pattern)
}

func TestModelBootsAndDestroys(t *testing.T) {
	m, p, b := modelled(t)
	machine := create(t, p, b)
	if _, err := p.Create(t.Context(), b); !errs.Is(err, errs.Exists) {
		t.Errorf("again: %v", err)
	}
	for _, act := range []func(context.Context) error{machine.Pause, machine.Pause, machine.Resume, machine.Resume} {
		if err := act(t.Context()); err != nil {
			t.Error(err)
		}
	}
	m.End(p.container(b.ID), 137, true)
	if exit := exitOfMachine(t, machine); exit.Reason != sandbox.ReasonOutOfMemory {
		t.Errorf("exit = %+v", exit)
	}
}

// Each fault of a call, once: Create succeeds all the same, or fails with a
// class that the caller can act on, and leaves nothing.
func TestFaultsOfCreate(t *testing.T) {
	refused := enginetest.Fault{Status: http.StatusInternalServerError}
	for name, c := range map[string]struct {
		call  string
		fault enginetest.Fault
		want  errs.Class // "" = success
	}{
		"create refused":          {"POST /containers/create", refused, errs.Unavailable},
		"create's answer lost":    {"POST /containers/create", enginetest.Fault{Drop: true}, errs.Unavailable},
		"create's answer garbage": {"POST /containers/create", enginetest.Fault{Garbage: "<html>"}, errs.Unavailable},
		"create without an id":    {"POST /containers/create", enginetest.Fault{Garbage: "{}"}, errs.Unavailable},
		"the image is gone":       {"POST /containers/create", enginetest.Fault{Status: http.StatusNotFound}, ""},
		"the name is taken":       {"POST /containers/create", enginetest.Fault{Status: http.StatusConflict}, ""},
		"a bad request":           {"POST /containers/create", enginetest.Fault{Status: http.StatusBadRequest}, errs.Invalid},
		"start refused":           {"POST /containers/*/start", refused, errs.Unavailable},
		"start's answer lost":     {"POST /containers/*/start", enginetest.Fault{Drop: true}, errs.Unavailable},
		"start finds nothing":     {"POST /containers/*/start", enginetest.Fault{Status: http.StatusNotFound}, errs.NotFound},
		"import refused":          {"POST /images/create", refused, errs.Unavailable},
		"import's answer lost":    {"POST /images/create", enginetest.Fault{Drop: true}, errs.Unavailable},
		"import fails late":       {"POST /images/create", enginetest.Fault{Garbage: `{"status":"x"}{"error":"disk full"}`}, errs.Unavailable},
		"images are not listed":   {"GET /images/json", enginetest.Fault{Status: http.StatusBadGateway}, errs.Unavailable},
		"images are listed later": {"GET /images/json", refused, ""}, // as Podman, while one comes or goes
		"a wait breaks off":       {"POST /containers/*/wait", enginetest.Fault{Status: http.StatusBadGateway}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, p, b := modelled(t)
			m.Fail(once(c.call, c.fault))
			_, err := p.Create(t.Context(), b)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || errs.Of(err) != c.want {
				t.Errorf("class %s, want %s: %v", errs.Of(err), c.want, err)
			}
			if names := m.Names(); len(names) > 0 {
				t.Errorf("left in the engine: %v", names)
			}
			sandboxtest.Leaks(t, p.c.Dir, b.ID)
		})
	}
}

// A container of that name that belongs to no machine, as left by a request that
// the engine finished after its caller had died, is replaced.
func TestCreateReplacesALeftover(t *testing.T) {
	m, p, b := modelled(t)
	m.Add(p.container(b.ID))
	create(t, p, b)
}

// The engine hangs in a create: Create gives up soon after its time, what comes
// later is listed and destroyed.
func TestEngineHangsInCreate(t *testing.T) {
	m, p, b := modelled(t)
	hang := make(chan struct{})
	var mu sync.Mutex
	hung := true
	m.Fail(func(call string) enginetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if hung && (call == "POST /containers/create" || strings.HasPrefix(call, "DELETE /containers/")) {
			return enginetest.Fault{Hang: hang}
		}
		return enginetest.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	patience.Within(t, giveUp+clearTimeout+5*time.Second, "the create to give up", func() {
		if _, err := p.Create(ctx, b); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	if _, err := os.Stat(p.dir(b.ID)); err != nil {
		t.Errorf("nothing says that there may be a container: %v", err)
	}
	mu.Lock()
	hung = false
	mu.Unlock()
	close(hang)
	sandboxtest.Eventually(t, "both requests to be done", func() bool {
		ids, err := p.List(t.Context())
		return err == nil && slices.Contains(ids, b.ID)
	})
}

// An engine may be away for as long as it likes: the machine has not ended.
func TestWaitSurvivesBrokenConnections(t *testing.T) {
	m, p, b := modelled(t)
	var n atomic.Int32
	m.Fail(func(call string) enginetest.Fault {
		switch {
		case isCall(call, "POST /containers/*/wait") && n.Add(1) <= 3:
			return enginetest.Fault{Status: http.StatusInternalServerError}
		case isCall(call, "GET /containers/*/json") && n.Load() == 2:
			return enginetest.Fault{Status: http.StatusInternalServerError}
		}
		return enginetest.Fault{}
	})
	machine := create(t, p, b)
	sandboxtest.Eventually(t, "the fourth wait", func() bool { return n.Load() >= 4 })
	m.End(p.container(b.ID), 143, false)
	if exit := exitOfMachine(t, machine); exit.Reason != sandbox.ReasonKilled || exit.Detail != "signal SIGTERM" {
		t.Errorf("exit = %+v", exit)
	}
}

func TestPauseWhoseAnswerIsLost(t *testing.T) {
	m, p, b := modelled(t)
	machine := create(t, p, b)
	for verb, act := range map[string]func(context.Context) error{"pause": machine.Pause, "unpause": machine.Resume} {
		m.Fail(once("POST /containers/*/"+verb, enginetest.Fault{Drop: true}))
		if verb == "unpause" {
			if err := machine.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := act(t.Context()); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	m.Fail(once("POST /containers/*/pause", enginetest.Fault{Status: http.StatusInternalServerError}))
	if err := errors.Join(machine.Resume(t.Context()), machine.Pause(t.Context())); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a pause that was refused: %v", err)
	}
}

// Destroy of a machine whose engine refuses for a while, is away, or has lost it.
func TestFaultsOfDestroy(t *testing.T) {
	for name, c := range map[string]struct {
		status, times int
		want          errs.Class
	}{
		"somebody else removes it": {http.StatusConflict, 3, ""},
		"it is stopping":           {http.StatusInternalServerError, 3, ""},
		"it is not there":          {http.StatusNotFound, 1, ""},
		"we may not":               {http.StatusForbidden, 1, errs.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			m, p, b := modelled(t)
			machine := create(t, p, b)
			var n atomic.Int32
			m.Fail(func(call string) enginetest.Fault {
				if isCall(call, "DELETE /containers/*") && int(n.Add(1)) <= c.times {
					return enginetest.Fault{Status: c.status}
				}
				return enginetest.Fault{}
			})
			if c.status == http.StatusNotFound {
				m.End(p.container(b.ID), 0, false)
			}
			err := machine.Destroy(t.Context())
			if c.want != "" && errs.Of(err) != c.want || c.want == "" && err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
}

// An engine that does not answer when the provider is made is asked again by
// each probe: what it can do is known from then on.
func TestEngineAnswersLate(t *testing.T) {
	m := enginetest.NewModel(t)
	var up atomic.Bool
	m.Fail(func(string) enginetest.Fault {
		if up.Load() {
			return enginetest.Fault{}
		}
		return enginetest.Fault{Status: 503}
	})
	p, err := New(Config{Dir: t.TempDir(), Host: m.Host})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if c := p.Capabilities(); c.LimitsMemory || !strings.Contains(strings.Join(c.Notes, " "), "does not answer") {
		t.Errorf("of an engine that is silent: %+v", c)
	}
	up.Store(true)
	_ = p.Probe(t.Context()) // without a guest program it goes no further than that
	if c := p.Capabilities(); !c.LimitsMemory || strings.Contains(strings.Join(c.Notes, " "), "does not answer") {
		t.Errorf("of one that answers: %+v", c)
	}
}
