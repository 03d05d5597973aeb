// Command eval lets an agent do the small tasks of the folder tasks, each in a
// sandbox of its own, with whatever model, and says how many it did:
//
//	make eval MODEL=ollama/qwen3:8b   # or: go run ./test/eval -model MODEL [-only fix] [-calling json]
//
// It prints one JSON line per task and, on stderr, a table at the end. A task
// counts as done when its checker says so, which looks at the sandbox after the
// run: what the agent says of itself does not count. Each run gets a limit of
// time; the evaluation verifies that the run keeps to it, and never waits longer
// for a run than that and graceOfRun.
//
// The status is 1 when a run could not be judged or did not keep to its limit.
// How many tasks were done does not matter for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// config is what the flags say.
type config struct {
	model, calling, only string
	modelURL, keyEnv     string
	url, skete           string
	peer, peers          string
	jobs, each           int
	limit                time.Duration
	tasks                string
}

func flags(args []string, errOut io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("eval", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&c.model, "model", "", "the model, as `skete run --model` takes it; with -model-url, its id at that server")
	fs.StringVar(&c.modelURL, "model-url", "", "an OpenAI-compatible server that has the model, such as http://127.0.0.1:8080/v1")
	fs.StringVar(&c.keyEnv, "model-key-env", "", "the variable with the key of that server")
	fs.StringVar(&c.calling, "calling", "", "native or json: how the model asks for tools; \"\" = as the model can")
	fs.StringVar(&c.only, "only", "", "tasks whose names begin so, such as fix or fix-rounding")
	fs.StringVar(&c.url, "url", "", "a server that runs already, with $SKETE_KEY; \"\" is the one of $SKETE_URL or $SKETE_HOME, else one that is started for this")
	fs.StringVar(&c.skete, "skete", "bin/skete", "the program to start a server with")
	fs.StringVar(&c.peer, "peer", "", "another agent in place of ours: deepagents; needs -model-url")
	fs.StringVar(&c.peers, "peers", ".build/peer", "where scripts/peer-deepagents has put it")
	fs.IntVar(&c.each, "each", 0, "only so many tasks of each kind; 0 = all")
	fs.IntVar(&c.jobs, "jobs", 1, "tasks at once")
	fs.DurationVar(&c.limit, "limit", 5*time.Minute, "the time of each run")
	fs.StringVar(&c.tasks, "tasks", "test/eval/tasks", "the folder of the tasks")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	return c, c.wrong(fs.Args())
}

func (c config) wrong(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("not expected: %q", rest)
	case c.model == "":
		return errors.New("-model is needed")
	case c.calling != "" && c.calling != "native" && c.calling != "json":
		return errors.New("-calling is native or json")
	case c.peer != "" && c.peer != "deepagents":
		return errors.New("-peer is deepagents")
	case c.peer != "" && c.modelURL == "":
		return errors.New("-peer needs -model-url")
	case c.url != "" && c.modelURL != "" && c.peer == "":
		return errors.New("-model-url is for a server that is started for this: configure the model there")
	case c.jobs < 1, c.limit < time.Second:
		return errors.New("-jobs and -limit must be positive")
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	c, err := flags(args, errOut)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(errOut, "eval:", err)
		}
		return 2
	}
	lines, err := c.evaluate(ctx, out, errOut)
	if len(lines) > 0 {
		table(errOut, lines)
	}
	if err != nil {
		fmt.Fprintln(errOut, "eval:", err)
		return 1
	}
	for _, l := range lines {
		if l.Error != "" || !l.InTime {
			return 1
		}
	}
	return 0
}

// evaluate does all tasks and prints their lines as they come.
func (c config) evaluate(ctx context.Context, out, errOut io.Writer) (lines []line, err error) {
	tasks, err := load(c.tasks, c.only, c.each)
	if err != nil {
		return nil, err
	}
	try, end, err := c.agent(ctx, errOut)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	about := c.about()
	var mu sync.Mutex
	each(tasks, c.jobs, func(t task) {
		if ctx.Err() != nil {
			return
		}
		l := about
		l.Task, l.Kind = t.name, t.kind
		try(ctx, t, &l)
		mu.Lock()
		defer mu.Unlock()
		l.print(out)
		lines = append(lines, l)
	})
	return lines, context.Cause(ctx)
}

// attempt lets an agent do a task and writes down what came of it.
type attempt func(ctx context.Context, t task, l *line)

// agent returns who does the tasks, and how to clean up behind it.
func (c config) agent(ctx context.Context, errOut io.Writer) (attempt, func() error, error) {
	if c.peer != "" {
		p := peer{config: c}
		return p.try, func() error { return nil }, p.missing()
	}
	s, err := c.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := runner{c: s.c, config: c, warn: func(text string) { fmt.Fprintln(errOut, "eval:", text) }}
	return r.try, s.stop, nil
}

// each calls do for all tasks, as many at once as jobs.
func each(tasks []task, jobs int, do func(task)) {
	var wg sync.WaitGroup
	next := make(chan task)
	for range jobs {
		wg.Go(func() {
			for t := range next {
				do(t)
			}
		})
	}
	for _, t := range tasks {
		next <- t
	}
	close(next)
	wg.Wait()
}
