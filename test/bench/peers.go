package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

//go:embed peers/deepagents.mjs peers/deepagents.py
var programs embed.FS

// peerMax is how long one run of a peer may take.
const peerMax = time.Minute

// outcome is what a run in a process of its own tells.
type outcome struct {
	MS    float64 `json:"ms"`
	Calls int     `json:"calls"`
	RSS   float64 `json:"rss_mb"` // at its highest
}

// contestant runs the script in a process of its own.
type contestant struct {
	name string
	ours bool
	argv func(steps int, dir string) []string
	why  string // it cannot run here, "" = it can
}

// peers runs the same script with us and with others, in turns.
func (c Config) peers(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "skete-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, programs); err != nil {
		return err
	}
	all, err := c.contestants(dir)
	if err != nil {
		return err
	}
	for _, steps := range []int{100, 250, 1000} {
		if c.Quick && steps > 100 {
			break
		}
		ours := 0.0
		for _, p := range all {
			name := fmt.Sprintf("%s: step, %d steps", p.name, steps)
			if p.why != "" {
				c.Report.Skipped(name, "µs", p.why)
				continue
			}
			o, err := p.run(ctx, steps, dir)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				c.Report.Skipped(name, "µs", fmt.Sprintf("it took more than %v", peerMax))
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			each := o.MS * 1000 / float64(steps)
			c.Report.Value(name, each, "µs", "", "mean, in a process of its own, the same script")
			c.Report.Value(fmt.Sprintf("%s: peak memory, %d steps", p.name, steps), o.RSS, "MB", "", "of the process, all that it loads included")
			if p.ours && ours == 0 {
				ours = each
			} else if !p.ours && ours > 0 {
				c.Report.Value(fmt.Sprintf("ratio: %s / brain, sync always, %d steps", p.name, steps), each/ours, "x", "", "")
			}
		}
	}
	return nil
}

func (c Config) contestants(dir string) ([]contestant, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(c.Peers)
	if err != nil {
		return nil, err
	}
	us := func(sync string) func(int, string) []string {
		return func(steps int, _ string) []string { return []string{self, "-child", sync + "," + strconv.Itoa(steps)} }
	}
	js := func(saver string) func(int, string) []string {
		return func(steps int, dir string) []string {
			return []string{"node", "--max-old-space-size=4096", filepath.Join(dir, "peers/deepagents.mjs"), filepath.Join(root, "js"), strconv.Itoa(steps), saver}
		}
	}
	py := func(saver string) func(int, string) []string {
		return func(steps int, dir string) []string {
			return []string{filepath.Join(root, "py/bin/python"), filepath.Join(dir, "peers/deepagents.py"), strconv.Itoa(steps), saver, filepath.Join(dir, fmt.Sprintf("%d.db", steps))}
		}
	}
	noJS, noPy := missing(root, "js"), missing(root, "py")
	return []contestant{
		{"brain, sync always", true, us("always"), ""},
		{"brain, sync by interval", true, us("interval"), ""},
		{"peer: deepagents JS, checkpoints in memory", false, js("memory"), noJS},
		{"peer: deepagents JS, no checkpoints", false, js("none"), noJS},
		{"peer: deepagents Python, checkpoints in SQLite", false, py("sqlite"), noPy},
		{"peer: deepagents Python, checkpoints in memory", false, py("memory"), noPy},
		{"peer: deepagents Python, no checkpoints", false, py("none"), noPy},
	}, nil
}

// missing says why a peer is not there, "" = it is.
func missing(root, kind string) string {
	if _, err := os.Stat(filepath.Join(root, kind, ".done")); err == nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(root, kind+".log")); err == nil {
		return "scripts/peers could not install it"
	}
	return "not installed: scripts/peers " + filepath.Base(filepath.Dir(root)) + "/" + filepath.Base(root)
}

func (p contestant) run(ctx context.Context, steps int, dir string) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerMax)
	defer cancel()
	argv := p.argv(steps, dir)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LANGSMITH_TRACING=false", "LANGCHAIN_TRACING_V2=false", "PYTHONDONTWRITEBYTECODE=1")
	var said, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &complaint
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return o, context.Cause(ctx)
	case err != nil:
		return o, fmt.Errorf("%w: %.2000s", err, complaint.String())
	}
	if err := json.Unmarshal([]byte(said.String()), &o); err != nil {
		return o, fmt.Errorf("it said %.200q: %w", said.String(), err)
	}
	if o.Calls != steps {
		return o, fmt.Errorf("%d of %d calls were made", o.Calls, steps)
	}
	return o, nil
}

// Child is our own contestant: it runs the script ("always,100") in this process and
// prints the outcome.
func Child(ctx context.Context, what string) (err error) {
	mode, count, _ := strings.Cut(what, ",")
	steps, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	sync := always
	if mode == "interval" {
		sync = interval
	}
	h, err := open(ctx, sync)
	if err != nil {
		return err
	}
	defer h.close(&err)
	began := time.Now()
	if _, err := h.run(ctx, &script{steps: steps, calls: 1}); err != nil {
		return err
	}
	o := outcome{MS: float64(time.Since(began).Microseconds()) / 1000, Calls: steps}
	if o.RSS, err = peak(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// peak is the most memory that this process had, in MB.
func peak() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("no peak memory on %s", runtime.GOOS)
}
