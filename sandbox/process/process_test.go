package process

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir: dir,
			New: func(t testing.TB) sandbox.Provider { return open(t, dir) },
			HostPID: func(t testing.TB, id sandbox.ID) int {
				ref, err := (&Provider{c: Config{Dir: dir}}).record(id)
				if err != nil {
					t.Fatal(err)
				}
				return ref.PID
			},
		}
	})
}

func open(t testing.TB, dir string) *Provider {
	t.Helper()
	p, err := New(Config{Dir: dir, Allow: true, Serve: sandboxtest.ServeGuest})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRefusesUnlessAllowed(t *testing.T) {
	_, err := New(Config{Dir: t.TempDir()})
	if !errs.Is(err, errs.Denied) || errs.Hint(err) == "" {
		t.Errorf("New without Allow: %v", err)
	}
}

func TestSaysThatItDoesNotIsolate(t *testing.T) {
	p := open(t, t.TempDir())
	c := p.Capabilities()
	if c.Isolation != sandbox.None || c.LimitsCPU || c.LimitsDisk || c.LimitsMemory || c.LimitsPids || c.HidesHostFiles || c.HidesHostNetwork || len(c.Notes) == 0 {
		t.Errorf("%+v", c)
	}
	if err := p.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
