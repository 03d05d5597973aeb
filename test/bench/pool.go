package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// warmed gives a measurement a server that keeps machines warm, and looks at
// what it leaves.
func (b *bench) warmed(pool string, do func(*server) error) func() error {
	return func() error {
		s, err := b.start("--pool", pool)
		if err != nil {
			return err
		}
		err = errors.Join(do(s), s.noneOfNoUse())
		home := s.home
		return errors.Join(err, s.stop(), nothingLeft(home))
	}
}

// noneOfNoUse looks whether a create that had claimed a machine booted another:
// then what was measured is not what it says.
func (s *server) noneOfNoUse() error {
	if strings.Contains(s.log.String(), "a warm machine is of no use") {
		return fmt.Errorf("claims fell back to a cold boot; `make build` embeds a guest that knows how:\n%s", s.log.String())
	}
	return nil
}

// claimed fails if not all creates of a shape got a warm machine, but for those
// of before the pool was full.
func (s *server) claimed(ctx context.Context, before api.Pool, memoryMB, n int) error {
	after, err := s.c.Pool(ctx)
	if err != nil {
		return err
	}
	claims, misses := counts(after, memoryMB)
	c, m := counts(before, memoryMB)
	if claims-c != uint64(n) || misses != m {
		return fmt.Errorf("of %d creates %d claimed a warm machine and %d found none", n, claims-c, misses-m)
	}
	return nil
}

func counts(p api.Pool, memoryMB int) (claims, misses uint64) {
	for _, k := range p.Kinds {
		if k.MemoryMB == memoryMB {
			claims, misses = claims+k.Claims, misses+k.Misses
		}
	}
	return claims, misses
}

// nothingLeft looks for what a server should have taken away with it.
func nothingLeft(home string) error {
	if _, err := os.Lstat(home); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is left of the pool: %w", home, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), home) {
		return errors.New("a mount is left of the pool")
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range procs {
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), home) {
			return fmt.Errorf("process %s is left of the pool", p.Name())
		}
	}
	return nil
}

// full waits until so many machines are warm and none is being made.
func (s *server) full(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		p, err := s.c.Pool(ctx)
		if err != nil {
			return err
		}
		warm, busy := 0, 0
		for _, k := range p.Kinds {
			warm += k.Warm
			busy += k.Making + k.Ending
		}
		if warm >= n && busy == 0 {
			return nil
		}
		if text := s.log.String(); strings.Contains(text, "cannot make a warm machine") {
			return fmt.Errorf("the pool cannot be filled; `make build` embeds a guest that can be adopted:\n%s", text)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d are warm: %w", warm, n, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const poolSize = 5

// claim measures a create that finds a warm machine and its first command, and
// one that boots, in turn.
func (b *bench) claim(s *server) error {
	var warm, claim, cold []time.Duration
	if err := s.full(b.ctx, poolSize); err != nil {
		return err
	}
	before, err := s.c.Pool(b.ctx)
	if err != nil {
		return err
	}
	for range b.count(60) {
		if err := s.full(b.ctx, poolSize); err != nil {
			return err
		}
		for _, memory := range []int{512, 500} { // only the first is kept warm
			var boot time.Duration
			var sb *client.Sandbox
			d, err := timed(func() error {
				info, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: memory})
				if err != nil {
					return err
				}
				sb, boot = s.c.Sandbox(info.ID), time.Duration(info.BootMS*float64(time.Millisecond))
				return sb.Command("/bin/true").Run(b.ctx)
			})
			if err != nil {
				return err
			}
			if memory == 512 {
				warm, claim = append(warm, d), append(claim, boot)
			} else {
				cold = append(cold, d)
			}
			if err := sb.Destroy(b.ctx); err != nil {
				return err
			}
		}
	}
	if err := s.claimed(b.ctx, before, 512, b.count(60)); err != nil {
		return err
	}
	w := b.Millis("pool: warm claim to first command done", warm, "p50 <= 15 ms", fmt.Sprintf("gVisor, pool of %d", poolSize))
	b.Millis("pool: warm claim to answering guest", claim, "", "the server's own measure, part of the line above")
	c := b.Millis("pool: cold create to first command done", cold, "", "in the same run, in turn")
	b.Value("ratio: cold create / warm claim", c/w, "x", "", "")
	return nil
}

// claims creates a hundred at once out of a pool of a hundred.
func (b *bench) claims(n int) func(*server) error {
	return func(s *server) error {
		if err := s.full(b.ctx, n); err != nil {
			return err
		}
		before, err := s.c.Pool(b.ctx)
		if err != nil {
			return err
		}
		var mu sync.Mutex
		var ds, boots []time.Duration
		var failed []error
		var wg sync.WaitGroup
		began := time.Now()
		for range n {
			wg.Go(func() {
				var boot float64
				d, err := timed(func() error {
					sb, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 256, DiskMB: 256, CPUs: 0.5})
					if err != nil {
						return err
					}
					boot = sb.BootMS
					return s.c.Sandbox(sb.ID).Command("/bin/true").Run(b.ctx)
				})
				mu.Lock()
				defer mu.Unlock()
				ds, boots = append(ds, d), append(boots, time.Duration(boot*float64(time.Millisecond)))
				if err != nil {
					failed = append(failed, err)
				}
			})
		}
		wg.Wait()
		wall := time.Since(began)
		b.Value("pool: burst of warm claims that succeeded", float64(n-len(failed)), "sandboxes", strconv.Itoa(n), fmt.Sprintf("%d at once, each with a first command; %.2f s in all", n, wall.Seconds()))
		if len(failed) > 0 {
			return failed[0]
		}
		if err := s.claimed(b.ctx, before, 256, n); err != nil {
			return err
		}
		b.Millis("pool: burst, warm claim to first command done", ds, "p50 <= 300 ms", "")
		b.Millis("pool: burst, warm claim to answering guest", boots, "", "part of the line above")
		return nil
	}
}
