package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// keepThreads makes the runtime have at least n threads, as far as the bound of
// this machine's tasks leaves room. A runtime never ends a thread that is idle,
// and ends the process when it needs one more and is refused: where commands
// count together with us, they could do that to us with a fork bomb.
func keepThreads(n int) {
	n = min(n, room(cgroupDirs))
	var up, down sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		up.Add(1)
		down.Go(func() {
			runtime.LockOSThread() // or they would share
			defer runtime.UnlockOSThread()
			up.Done()
			<-gate
		})
	}
	up.Wait()
	close(gate)
	down.Wait()
}

// cgroupDirs is where a container sees its own control group: of version 2,
// and of version 1.
var cgroupDirs = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"}

// threadsSpare stay free of what there is room for.
const threadsSpare = 8

// room is how many threads can be made: the files of the control group are
// asked, and believed to have room for all if they do not tell.
func room(dirs []string) int {
	for _, dir := range dirs {
		most, err := number(filepath.Join(dir, "pids.max"))
		if err != nil {
			continue
		}
		if now, err := number(filepath.Join(dir, "pids.current")); err == nil {
			return max(0, most-now-threadsSpare)
		}
	}
	return int(^uint(0) >> 1)
}

func number(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
