package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestKeepThreads(t *testing.T) {
	const n = 40
	keepThreads(n)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) < n {
		t.Errorf("%d threads, want %d", len(tasks), n)
	}
}

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		most, now string
		want      int
	}{
		"some":       {"164\n", "40\n", 164 - 40 - threadsSpare},
		"none":       {"164\n", "164\n", 0},
		"no bound":   {"max\n", "40\n", math.MaxInt},
		"not told":   {"", "", math.MaxInt},
		"half told":  {"164\n", "", math.MaxInt},
		"hard to do": {"164\n", "many\n", math.MaxInt},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"pids.max": c.most, "pids.current": c.now} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := room([]string{filepath.Join(dir, "none"), dir}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
