package gvisor

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	skipUnlessItBoots(t)
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir:     dir,
			New:     func(t testing.TB) sandbox.Provider { return open(t, dir) },
			Rootfs:  sandboxtest.Rootfs(t),
			Volume:  sandboxtest.TmpfsVolume,
			HostPID: func(t testing.TB, id sandbox.ID) int { return recordOf(t, dir, id).Sentry.PID },
		}
	})
}

func recordOf(t testing.TB, dir string, id sandbox.ID) record {
	t.Helper()
	rec, err := readRecord((&Provider{c: Config{Dir: dir}}).dir(id))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
