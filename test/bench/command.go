package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// commands measures the program as people call it: what each call costs before
// it does anything, and `vm temp` again and again, with a server that nothing
// was configured of.
func (b *bench) commands() error {
	s, err := b.start("--set", "pool_demand=1")
	if err != nil {
		return err
	}
	return errors.Join(b.commandsOf(s), s.stop())
}

func (b *bench) commandsOf(s *server) error {
	var version, busy, temp []time.Duration
	resident := 0.0
	for range b.count(40) {
		if err := s.full(b.ctx, 1); err != nil {
			return err
		}
		took, state, err := b.call(s, "version")
		if err != nil {
			return err
		}
		version = append(version, took)
		busy = append(busy, state.UserTime()+state.SystemTime())
		if usage, is := state.SysUsage().(*syscall.Rusage); is {
			resident = max(resident, float64(usage.Maxrss)/1024)
		}
		if took, _, err = b.call(s, "vm", "temp", "--mem", "512", "--", "/bin/true"); err != nil {
			return err
		}
		temp = append(temp, took)
	}
	v := b.Millis("skete version", version, "", "the whole process")
	b.Millis("skete version: processor time", busy, "<= 15 ms", "")
	b.Value("skete version: resident memory, at most", resident, "MB", "<= 25 MB", "pages of the program's file count")
	t := b.Millis("skete vm temp true, a machine of its shape is warm", temp, "", "create, command, destroy")
	b.Value("vm temp - version (p50 - p50)", t-v, "ms", "<= 40 ms", "")
	return nil
}

func (b *bench) call(s *server, args ...string) (time.Duration, *os.ProcessState, error) {
	cmd := exec.CommandContext(b.ctx, b.skete, args...)
	cmd.Env = append(os.Environ(), "SKETE_HOME="+s.home)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, nil, fmt.Errorf("skete %q: %w\n%s", args, err, out)
	}
	return time.Since(began), cmd.ProcessState, nil
}
