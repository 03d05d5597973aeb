package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
)

const module = "github.com/skete-dev/skete/sandbox/sandboxtest/internal/"

// Run runs the suite. newFixture is called once for each part of it.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for _, part := range []struct {
		name string
		test func(*suite)
	}{
		{"Boot", testBoot},
		{"Refusals", testRefusals},
		{"Exec", testExec},
		{"Stdin", testStdin},
		{"Terminal", testTerminal},
		{"Files", testFiles},
		{"Ports", testPorts},
		{"Restart", testRestart},
		{"SuperviseKilled", testSuperviseKilled},
		{"Pause", testPause},
		{"HostKilled", testHostKilled},
		{"GuestShutdown", testGuestShutdown},
		{"Wait", testWait},
		{"DestroyEveryState", testDestroyEveryState},
		{"DestroyDuringCreate", testDestroyDuringCreate},
		{"CreateCancelled", testCreateCancelled},
		{"Concurrent", testConcurrent},
		{"Cycles", testCycles},
		{"OddGuests", testOddGuests},
		{"MemoryLimit", testMemoryLimit},
		{"CPULimit", testCPULimit},
		{"ProcessLimit", testProcessLimit},
		{"DiskLimit", testDiskLimit},
	} {
		t.Run(part.name, func(t *testing.T) {
			s := &suite{T: t, Fixture: newFixture(t)}
			s.p = s.open()
			part.test(s)
		})
	}
}

// suite is one part's world: a fixture and the provider opened on it.
type suite struct {
	*testing.T
	Fixture
	p   sandbox.Provider
	ids []sandbox.ID
}

// open opens a provider and makes sure at the end that nothing is left of
// what the test made.
func (s *suite) open() sandbox.Provider {
	s.Helper()
	p := s.New(s)
	s.Cleanup(func() {
		for _, id := range s.ids {
			if err := p.Destroy(context.Background(), id); err != nil {
				s.Errorf("destroy %s at the end: %v", id, err)
			}
		}
		if err := p.Close(); err != nil {
			s.Errorf("close the provider: %v", err)
		}
		Leaks(s, s.Dir, s.ids...)
	})
	return p
}

// boot describes a new machine; the parts that a test changes come as edits.
func (s *suite) boot(edits ...func(*sandbox.Boot)) sandbox.Boot {
	s.Helper()
	dir := s.TempDir()
	b := sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: s.Rootfs, Dir: filepath.Join(dir, "machine"), Workspace: filepath.Join(dir, "workspace"),
		Spec: sandbox.Spec{
			CPUs: 2, MemoryMB: 512, DiskMB: 128, PidsMax: 256, Network: "none", Workdir: sandbox.WorkspaceDir,
			Env: map[string]string{"COLOUR": "green"},
		},
	}
	must(s, os.Mkdir(b.Dir, 0o700))
	must(s, os.Mkdir(b.Workspace, 0o755))
	for _, e := range edits {
		e(&b)
	}
	if b.Guest == "" {
		b.Guest = guesttest.Binary(s)
	}
	s.ids = append(s.ids, b.ID)
	return b
}

func odd(t testing.TB, mode string) func(*sandbox.Boot) {
	return func(b *sandbox.Boot) {
		b.Guest = Build(t, module+"oddguest")
		b.Spec.Env = map[string]string{"ODD": mode}
	}
}

// tool puts the test's own program into the workspace; its path inside the
// machine is the working directory's.
func (s *suite) tool(b sandbox.Boot) string {
	s.Helper()
	data, err := os.ReadFile(Build(s, module+"tool"))
	must(s, err)
	must(s, os.WriteFile(filepath.Join(b.Workspace, "tool"), data, 0o755))
	return "./tool"
}

func (s *suite) create(b sandbox.Boot) (sandbox.Machine, Guest) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	m, err := s.p.Create(ctx, b)
	if err != nil {
		s.Fatalf("create: %v", err)
	}
	s.Cleanup(func() { _ = m.Close() })
	return m, NewGuest(s, m)
}

// wait returns the machine's exit, which must come soon.
func (s *suite) wait(m sandbox.Machine) sandbox.Exit {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	e, err := m.Wait(ctx)
	if err != nil {
		s.Fatalf("wait: %v", err)
	}
	return e
}
