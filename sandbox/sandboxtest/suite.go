package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
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
		{"StreamsOfTheGuest", testStreamsOfTheGuest},
		{"Network", testNetwork},
		{"Restart", testRestart},
		{"SuperviseKilled", testSuperviseKilled},
		{"Pause", testPause},
		{"ClockAfterPause", testClockAfterPause},
		{"Snapshot", testSnapshot},
		{"SnapshotDamaged", testSnapshotDamaged},
		{"SnapshotFails", testSnapshotFails},
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
			s := &suite{T: t, Fixture: newFixture(t), want: map[sandbox.ID]bool{}}
			s.p = s.open()
			part.test(s)
		})
	}
}

// suite is one part's world: a fixture and the provider opened on it.
type suite struct {
	*testing.T
	Fixture
	p    sandbox.Provider
	ids  []sandbox.ID
	want map[sandbox.ID]bool // that want the tool, which create brings in
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
		ID: sandbox.NewID(), Rootfs: s.Rootfs, Dir: filepath.Join(dir, "machine"),
		Spec: sandbox.Spec{
			CPUs: 1, MemoryMB: 512, DiskMB: 128, PidsMax: 256, Network: "none", Workdir: sandbox.WorkspaceDir,
			Env: map[string]string{"COLOUR": "green"},
		},
	}
	must(s, os.Mkdir(b.Dir, 0o700))
	for _, e := range edits {
		e(&b)
	}
	switch {
	case b.Workspace != "" || b.Disk != "":
	case s.p.Capabilities().HostWorkspace:
		b.Workspace = filepath.Join(dir, "workspace")
		must(s, os.Mkdir(b.Workspace, 0o755))
	default:
		b.Disk = s.Disk(s, 128<<20)
	}
	if b.Guest == "" {
		b.Guest = guesttest.Binary(s)
	}
	s.ids = append(s.ids, b.ID)
	return b
}

// twoCPUs is for what all processors of a machine have a part in. Other machines
// have one: an emulated one more is work for nothing.
func twoCPUs(b *sandbox.Boot) { b.Spec.CPUs = 2 }

// odd makes the guest one that misbehaves. How is written behind the end of
// the program: there is no other way to tell that reaches every kind of guest
// before it answers.
func odd(t testing.TB, mode string) func(*sandbox.Boot) {
	return func(b *sandbox.Boot) {
		program := Build(t, module+"oddguest")
		b.Guest = filepath.Join(filepath.Dir(program), "oddguest-"+mode)
		oddMu.Lock()
		defer oddMu.Unlock()
		data, err := os.ReadFile(program)
		must(t, err)
		data = append(data, "\nODD="+mode...)
		if old, err := os.ReadFile(b.Guest); err == nil && bytes.Equal(old, data) {
			return
		}
		tmp, err := os.MkdirTemp(filepath.Dir(program), "odd-*") //nolint:usetesting // beside what it replaces; other test processes make it too
		must(t, err)
		defer os.RemoveAll(tmp)
		must(t, os.WriteFile(filepath.Join(tmp, "new"), data, 0o755))
		must(t, os.Rename(filepath.Join(tmp, "new"), b.Guest))
	}
}

var oddMu sync.Mutex

// tool puts the test's own program into the workspace, where the host can see
// that; else create does it through the guest. Its path inside the machine is
// relative to the working directory.
func (s *suite) tool(b sandbox.Boot) string {
	s.Helper()
	if b.Workspace == "" {
		s.want[b.ID] = true
		return "./tool"
	}
	must(s, os.WriteFile(filepath.Join(b.Workspace, "tool"), Tool(s), 0o755))
	return "./tool"
}

// Tool is the program that the suite runs inside.
func Tool(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(Build(t, module+"tool"))
	must(t, err)
	return data
}

func (s *suite) create(b sandbox.Boot) (sandbox.Machine, Guest) {
	s.Helper()
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	m, err := s.p.Create(ctx, b)
	if err != nil {
		s.Fatalf("create: %v", err)
	}
	s.Cleanup(func() { _ = m.Close() })
	g := NewGuest(s, m)
	if s.want[b.ID] {
		g.Write("tool", 0o755, Tool(s))
	}
	return m, g
}

// wait returns the machine's exit, which must come soon.
func (s *suite) wait(m sandbox.Machine) sandbox.Exit {
	s.Helper()
	ctx, cancel := patience.Context(context.Background(), 30*time.Second)
	defer cancel()
	e, err := m.Wait(ctx)
	if err != nil {
		s.Fatalf("wait: %v", err)
	}
	return e
}
