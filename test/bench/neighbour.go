package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// neighbours measures what one tenant's sandbox that changes files as fast as it
// can costs another's commands, and the server: by renames, by new files, and by
// new files while each of many commands of its own makes a revision of them.
func (b *bench) neighbours(s *server) error {
	churn, err := b.program("churn")
	if err != nil {
		return err
	}
	defer os.Remove(churn)
	loud, err := s.tenant(b.ctx, "loud")
	if err != nil {
		return err
	}
	defer loud.Close()
	quiet, err := s.tenant(b.ctx, "quiet")
	if err != nil {
		return err
	}
	defer quiet.Close()
	defer func() { // the server's own tenant sees neither
		for _, name := range []string{"loud", "quiet"} {
			_, _ = s.c.EraseTenant(context.WithoutCancel(b.ctx), name)
		}
	}()
	ours, err := small(b.ctx, quiet)
	if err != nil {
		return err
	}
	var alone float64
	for _, l := range []load{{name: ""}, {name: "renames", churn: "rename"}, {name: "creates", churn: "create"}, {name: "creates that it keeps", churn: "create", kept: true}} {
		took, busy, rate, err := b.beside(s, loud, ours, churn, l)
		if err != nil {
			return err
		}
		name := "exec of /bin/true, no other sandbox works"
		if l.name != "" {
			name = "exec of /bin/true beside another tenant's " + l.name
		}
		v := b.Millis("tenants: "+name, took, "", "")
		b.Value("tenants: the server's share of a processor meanwhile", 100*busy, "%", "", l.name)
		if l.name == "" {
			alone = v
			continue
		}
		b.Value("tenants: "+l.name+" meanwhile", rate, "/s", "", "")
		b.Value("ratio: exec beside another tenant's "+l.name+" / alone", v/alone, "x", "", "")
	}
	return nil
}

// load is what the other tenant's sandbox does.
type load struct {
	name  string // "" = nothing
	churn string // the program's argument
	kept  bool   // by revisions, one for each of many commands
}

// beside measures commands in a sandbox while a new one of another tenant does
// something, and how often a second it does that.
func (b *bench) beside(s *server, loud *client.Client, ours *client.Sandbox, churn string, l load) (took []time.Duration, busy, rate float64, err error) {
	done := func() (int64, error) { return 0, nil }
	if l.churn != "" {
		sb, err := small(b.ctx, loud)
		if err != nil {
			return nil, 0, 0, err
		}
		defer func() { _ = sb.Destroy(context.WithoutCancel(b.ctx)) }()
		if err := upload(b.ctx, sb, churn, "/workspace/churn"); err != nil {
			return nil, 0, 0, err
		}
		if _, err := sb.StartProcess(b.ctx, api.StartProcess{Key: "churn", Background: true, Argv: []string{"/workspace/churn", l.churn}}); err != nil {
			return nil, 0, 0, err
		}
		if l.kept {
			stop := revisions(b.ctx, sb)
			defer stop()
		}
		done = func() (int64, error) {
			p, err := sb.Process(b.ctx, "churn")
			if err == nil && p.Exit != nil {
				err = fmt.Errorf("churn ended: %+v", *p.Exit)
			}
			return 1000 * p.Stdout.Size, err
		}
	}
	n, err := done()
	if err != nil {
		return nil, 0, 0, err
	}
	began := time.Now()
	before, err := s.processor()
	if err != nil {
		return nil, 0, 0, err
	}
	for range b.count(200) {
		d, err := timed(func() error { return ours.Command("/bin/true").Run(b.ctx) })
		if err != nil {
			return nil, 0, 0, err
		}
		took = append(took, d)
	}
	seconds := time.Since(began).Seconds()
	after, err := s.processor()
	if err != nil {
		return nil, 0, 0, err
	}
	m, err := done()
	return took, (after - before).Seconds() / seconds, float64(m-n) / seconds, err
}

// revisions runs commands one after the other until stop is called, which waits
// for the last one.
func revisions(ctx context.Context, sb *client.Sandbox) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = sb.Command("/bin/true").Run(ctx)
		}
	}()
	return func() { cancel(); <-done }
}

// tenant makes a tenant and returns its client.
func (s *server) tenant(ctx context.Context, name string) (*client.Client, error) {
	made, err := s.c.CreateKey(ctx, api.CreateKey{Name: name, Tenant: name})
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Socket: s.socket(), Key: made.Secret})
}

func small(ctx context.Context, c *client.Client) (*client.Sandbox, error) {
	sb, err := c.CreateSandbox(ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 256})
	if err != nil {
		return nil, err
	}
	return c.Sandbox(sb.ID), nil
}

// program builds one of test/bench's, static, and returns its path.
func (b *bench) program(name string) (string, error) {
	f, err := os.CreateTemp("", name+"-")
	if err != nil {
		return "", err
	}
	f.Close()
	cmd := exec.CommandContext(b.ctx, "go", "build", "-o", f.Name(), "./test/bench/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return f.Name(), cmd.Run()
}

// processor is how much processor time the server has used.
func (s *server) processor() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third field on
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q", text)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100 on all we run on
}
