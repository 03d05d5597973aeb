package plugin

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// here starts plug-ins as processes of this host, as tests may do with their own.
type here struct {
	dir string // of the plug-ins
	env []string

	mu      sync.Mutex
	started int
	dropped int
}

// Launch implements Launcher.
func (l *here) Launch(_ context.Context, p *Plugin, tenant string) (Process, error) {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(l.dir, p.Name), append(append(os.Environ(), "TENANT="+tenant), l.env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Process{}, err
	}
	out, outTo := io.Pipe()
	errOut, errTo := io.Pipe()
	cmd.Stdout, cmd.Stderr = outTo, errTo
	if err := cmd.Start(); err != nil {
		return Process{}, err
	}
	l.mu.Lock()
	l.started++
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
		outTo.Close()
		errTo.Close()
	}()
	return Process{Stdin: stdin, Stdout: out, Stderr: errOut, Kill: func() {
		_ = cmd.Process.Kill()
		out.Close()
		errOut.Close()
		<-done
	}}, nil
}

// Drop implements Launcher.
func (l *here) Drop(context.Context, *Plugin, string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped++
	return nil
}

func (l *here) count() (started, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started, l.dropped
}

// needPython skips without the language of the plug-ins of tests.
func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: no python3, in which the plug-ins of tests are written")
	}
}

// load reads a plug-in of a folder.
func load(t *testing.T, dir string) *Plugin {
	t.Helper()
	p, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// written makes a plug-in of a manifest without name and version, and a program in Python.
func written(t *testing.T, name, offers, program string) (dir string, p *Plugin) {
	t.Helper()
	dir = t.TempDir()
	at := filepath.Join(dir, name)
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{ManifestName: "name: " + name + "\nversion: '1'\ncommand: [python3, main.py]\n" + offers, "main.py": program} {
		if err := os.WriteFile(filepath.Join(at, file), []byte(strings.TrimLeft(text, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, load(t, at)
}
