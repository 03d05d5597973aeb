package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/internal/clip"
)

//go:embed peer/deepagents.py
var deepagents string

// peer does tasks with another agent, in a directory of its own. The agent and
// the checker see the host read-only, by bubblewrap: what a model runs is not
// to be trusted.
type peer struct{ config }

// question is what the peer's program reads.
type question struct {
	Task   string `json:"task"`
	Model  string `json:"model"`
	URL    string `json:"url"`
	KeyEnv string `json:"key_env"`
}

// answer is what it writes.
type answer struct {
	State        string `json:"state"`
	Reason       string `json:"reason"`
	Said         string `json:"said"`
	Steps        int    `json:"steps"`
	InputTokens  int    `json:"input_tokens"`
	OutputTokens int    `json:"output_tokens"`
}

// missing says what the peer lacks here.
func (p peer) missing() error {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return errors.New("the peer needs bubblewrap: scripts/need bwrap:bubblewrap")
	}
	if _, err := os.Stat(filepath.Join(p.peers, ".done")); err != nil {
		return errors.New("the peer is not installed: scripts/peer-deepagents " + p.peers)
	}
	return nil
}

func (p peer) try(ctx context.Context, t task, l *line) {
	dir, err := os.MkdirTemp("", "skete-eval-peer-")
	if err != nil {
		l.fail("make a directory", err)
		return
	}
	defer os.RemoveAll(dir)
	if err := p.prepare(ctx, t, dir); err != nil {
		l.fail("prepare the directory", err)
		return
	}
	p.work(ctx, t, dir, l)
	if ctx.Err() == nil {
		p.judge(ctx, t, dir, l)
	}
}

func (p peer) prepare(ctx context.Context, t task, dir string) error {
	if files := t.files(); files != "" {
		if err := os.CopyFS(dir, os.DirFS(files)); err != nil {
			return err
		}
	}
	if t.setup == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareMax)
	defer cancel()
	if out, err := within(ctx, dir, "sh", "-c", t.setup).CombinedOutput(); err != nil {
		return fmt.Errorf("setup.sh: %w: %s", err, words(string(out)))
	}
	return nil
}

// within is a command that can write to a directory and to nothing else, and
// that ends with all that it has started.
func within(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bwrap", append([]string{
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", dir, dir,
		"--unshare-pid", "--die-with-parent", "--new-session", "--setenv", "HOME", "/tmp", "--chdir", dir, "--",
	}, argv...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

func (p peer) work(ctx context.Context, t task, dir string, l *line) {
	python, err := filepath.Abs(filepath.Join(p.peers, "bin/python"))
	if err != nil {
		l.fail("find the peer", err)
		return
	}
	input, _ := json.Marshal(question{Task: t.text, Model: p.model, URL: p.modelURL, KeyEnv: p.keyEnv}) // plain data
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	cmd := within(limited, dir, python, "-c", deepagents)
	cmd.Env = append(os.Environ(), "LANGSMITH_TRACING=false", "LANGCHAIN_TRACING_V2=false", "PYTHONDONTWRITEBYTECODE=1")
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &complaint
	began := time.Now()
	err = cmd.Run()
	l.took(time.Since(began), p.limit)
	var a answer
	switch {
	case ctx.Err() != nil:
		l.fail("run the peer", context.Cause(ctx))
	case limited.Err() != nil:
		a.State, a.Reason = "timed_out", "wall"
	case err != nil:
		l.fail("run the peer", fmt.Errorf("%w: %s", err, words(complaint.String())))
	default:
		l.fail("read the peer's answer", json.Unmarshal(out.Bytes(), &a))
	}
	l.State, l.Reason, l.Said = a.State, a.Reason, clip.Line(a.Said, wordsMax)
	l.Steps, l.InputTokens, l.OutputTokens = a.Steps, a.InputTokens, a.OutputTokens
}

func (p peer) judge(ctx context.Context, t task, dir string, l *line) {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	out, err := within(ctx, dir, "sh", "-c", t.check).CombinedOutput()
	l.Success, l.Words = err == nil, words(string(out))
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		l.Words = "the checker was ended: timeout"
	case err != nil && !errors.As(err, &exit):
		l.fail("run the checker", err)
	}
}
