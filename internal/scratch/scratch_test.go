package scratch_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/internal/scratch"
)

const childEnv = "SKETE_TEST_SCRATCH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		dir, err := scratch.Dir("probe")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
		}
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(dir + "\n")
		select {}
	}
	os.Exit(m.Run())
}

// What a killed test process left is gone when the next one makes its own;
// what a living one has is not touched.
func TestDir_theNextRemovesWhatTheKilledLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	child := func() (dir string, kill func()) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line[:len(line)-1], func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	}
	living, end := child()
	defer end()
	killed, kill := child()
	kill()
	if _, err := os.Stat(killed); err != nil {
		t.Fatal(err)
	}
	own, err := scratch.Dir("probe")
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{living: true, own: true, killed: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", dir, err, want)
		}
	}
	if other, err := scratch.Dir("another"); err != nil || other == own {
		t.Errorf("%s, %v", other, err)
	}
}
