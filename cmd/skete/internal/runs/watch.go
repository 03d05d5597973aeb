package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file shows a run of an agent while it goes on, and lets people steer
// it: on a terminal with what is happening beneath what has happened, elsewhere
// as plain lines or JSON.
//
// It returns when the run has ended, with its exit status (ended), when the
// person leaves, or when no person here can give an approval that it waits for.
// The run never depends on it.

// watchOptions say how a run is watched.
type watchOptions struct {
	Policy string // about approvals: ask, all, none
	Begun  bool   // we started it: show it from the beginning
	All    bool   // show it from the beginning anyway
}

// Exit statuses.
const (
	exitFailed    = 1
	exitWaits     = 3
	exitCancelled = 4
	exitTimedOut  = 5
)

// ended is the exit status of a run's end.
func ended(state string) error {
	switch state {
	case "failed":
		return app.Exit(exitFailed)
	case "cancelled":
		return app.Exit(exitCancelled)
	case "timed_out":
		return app.Exit(exitTimedOut)
	}
	return nil
}

// viewOf is what we print to. Without a terminal lines are long and plain.
func viewOf(a *app.App) screen.View {
	v := screen.View{Width: 100, Height: 24, Now: time.Now()}
	if f, ok := a.Terminal(); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			v.Width, v.Height = w, h
		}
		v.Colour = os.Getenv("NO_COLOR") == ""
	}
	return v
}

// printBlocks writes blocks as lines.
func printBlocks(a *app.App, blocks []screen.Block) error {
	for _, line := range viewOf(a).Render(blocks) {
		if _, err := fmt.Fprintln(a.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// Times of a watcher.
const (
	frameEvery = 100 * time.Millisecond
	// waitsEvery is how often it is asked whether a run can do nothing but wait.
	waitsEvery = 500 * time.Millisecond
	// callTimeout bounds a call to the server that the user waits for.
	callTimeout = 30 * time.Second
)

// pastMax is how many lines of what was before an attach are shown.
const pastMax = 30

// runWatcher shows one run. One goroutine, that of loop, owns it all.
type runWatcher struct {
	*app.App
	run  api.Run
	c    *client.Client
	r    *client.Run
	opts watchOptions

	story  *screen.Story
	dialog screen.Dialog
	term   *screen.Terminal // nil = plain lines
	keys   *keyboard        // nil = the user cannot be asked
	past   bool             // what comes was before us
	lines  []string         // of the past
	result json.RawMessage
	text   string
	asked  map[string]bool // decided by policy
	places int             // how often it was looked for where the run works
}

// watchNews is what the stream brought.
type watchNews struct {
	client.News
	err error
}

// watchRun shows a run until it ends, with all that it started, and returns the exit
// status of the last run of the thread that came of it.
func watchRun(ctx context.Context, a *app.App, c *client.Client, run api.Run, opts watchOptions) error {
	w := &runWatcher{App: a, run: run, c: c, r: c.Run(run.ID), opts: opts, story: screen.NewStory(), asked: map[string]bool{}}
	w.past = !opts.Begun && !opts.All && run.LastSeq > run.FirstSeq
	if out, ok := a.Terminal(); ok && !a.JSON && !a.Quiet {
		w.term = screen.NewTerminal(out)
		if a.HasKeyboard() && opts.Policy == "ask" {
			w.keys = newKeyboard(a.In, out)
			w.dialog.Complete = filesBeginning
		}
	}
	if !a.JSON && !a.Quiet {
		if err := printBlocks(a, []screen.Block{screen.Head(run)}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ch := make(chan watchNews, 64)
	var wg sync.WaitGroup
	wg.Go(func() { w.listen(ctx, ch) })
	defer wg.Wait()
	defer cancel()
	err := w.loop(ctx, ch)
	if w.term != nil {
		err = errors.Join(err, w.term.Close())
	}
	return w.end(ctx, err)
}

func (w *runWatcher) listen(ctx context.Context, ch chan<- watchNews) {
	for n, err := range w.r.Tree(ctx, 0) {
		select {
		case ch <- watchNews{n, err}:
		case <-ctx.Done():
			return
		}
	}
}

// errLeft: the user left, the run goes on. errWaits: no approval can be given here.
var (
	errLeft  = errors.New("left")
	errWaits = errors.New("the run waits for an approval")
)

func (w *runWatcher) loop(ctx context.Context, ch <-chan watchNews) error {
	winch := make(chan os.Signal, 1)
	signal.Notify(winch, syscall.SIGWINCH)
	defer signal.Stop(winch)
	if w.keys != nil {
		if err := w.keys.start(); err != nil {
			return err
		}
		defer func() { w.keys.stop() }()
	}
	frame, waits := time.NewTicker(frameEvery), time.NewTicker(waitsEvery)
	defer frame.Stop()
	defer waits.Stop()
	for {
		var err error
		select {
		case n := <-ch:
			err = w.take(ctx, n, ch)
		case pressed := <-w.keys.pressed():
			err = w.press(ctx, pressed)
		case <-winch:
		case <-frame.C:
			if w.term == nil || !w.story.Busy() {
				continue
			}
		case <-waits.C:
			w.place(ctx)
			err = w.checkWaits(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if err := w.draw(nil); err != nil {
			return err
		}
	}
}

// errEnd: the run is over and all of it was shown.
var errEnd = errors.New("end")

// take shows news, and those that are there already: a long history in one go.
func (w *runWatcher) take(ctx context.Context, n watchNews, ch <-chan watchNews) error {
	var stay []string
	for {
		if n.err != nil {
			return n.err
		}
		lines, err := w.show(n.News)
		if err != nil {
			return err
		}
		stay = append(stay, lines...)
		if n.End != nil {
			return errors.Join(w.draw(append(stay, w.flushPast()...)), errEnd)
		}
		if err := w.byPolicy(ctx); err != nil {
			return err
		}
		select {
		case n = <-ch:
			continue
		default:
		}
		return w.draw(stay)
	}
}

// show folds one piece and returns its lines.
func (w *runWatcher) show(n client.News) ([]string, error) {
	if w.JSON {
		return nil, w.showJSON(n)
	}
	blocks := w.story.Apply(n)
	if n.Event != nil && n.Thread == "" {
		if b, ok := screen.EventOf(*n.Event).Body.(thread.RunEnded); ok {
			w.text, w.result = b.Text, b.Result
		}
	}
	if w.Quiet {
		return nil, nil
	}
	v := viewOf(w.App)
	if w.past {
		w.lines = append(w.lines, v.Render(blocks)...)
		if n.Event != nil && n.Thread == "" && n.Event.Seq >= w.run.LastSeq {
			return w.flushPast(), nil
		}
		return nil, nil
	}
	return v.Render(blocks), nil
}

// flushPast returns the last lines of what was before.
func (w *runWatcher) flushPast() []string {
	if !w.past {
		return nil
	}
	w.past = false
	lines := w.lines
	w.lines = nil
	if len(lines) <= pastMax {
		return lines
	}
	note := screen.Block{Mark: "·", Style: screen.Dim, Text: fmt.Sprintf("%d lines before these: `skete show %s` tells all", len(lines)-pastMax, w.run.ID), Tone: screen.Dim}
	return append(viewOf(w.App).Render([]screen.Block{note}), lines[len(lines)-pastMax:]...)
}

// eventLine is what --json prints of an event.
type eventLine struct {
	Thread string        `json:"thread,omitempty"`
	Event  *api.RunEvent `json:"event"`
}

func (w *runWatcher) showJSON(n client.News) error {
	w.story.Apply(n)
	if n.Event == nil {
		return nil
	}
	return app.PrintJSONLine(w.Out, eventLine{n.Thread, n.Event})
}

// draw puts lines above what changes, or prints them.
func (w *runWatcher) draw(stay []string) error {
	if w.term == nil {
		for _, line := range stay {
			if _, err := fmt.Fprintln(w.Out, line); err != nil {
				return err
			}
		}
		return nil
	}
	v := viewOf(w.App)
	asks := w.story.Asks()
	var dialog []screen.Block
	help := ""
	if w.keys != nil {
		dialog, help = w.dialog.Blocks(asks), w.dialog.Help()
	}
	if w.past {
		return nil
	}
	return w.term.Draw(stay, w.story.Tail(v, dialog, help))
}

// byPolicy decides what --approve says about everything that asks.
func (w *runWatcher) byPolicy(ctx context.Context) error {
	if w.opts.Policy == "ask" {
		return nil
	}
	for _, ask := range w.story.Asks() {
		key := ask.Thread + " " + ask.Call
		if w.asked[key] {
			continue
		}
		w.asked[key] = true
		d := api.Decide{Call: ask.Call, Thread: ask.Thread, Decision: api.DecisionApprove}
		switch {
		case ask.Kind == api.AskForm:
			d.Decision = api.DecisionDismiss
		case ask.Kind == api.AskQuestion:
			d.Decision, d.Text = api.DecisionReject, "There is no person to ask: decide for yourself, and say what you assumed."
		case w.opts.Policy == "none":
			d.Decision, d.Text = api.DecisionReject, "there is no terminal at which it could be approved"
		}
		if err := w.decide(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// decide sends a decision. That another client was quicker is no error: the
// event is on its way.
func (w *runWatcher) decide(ctx context.Context, d api.Decide) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := w.r.Decide(ctx, d)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) {
		w.Log.Info("the call was decided elsewhere", "call", d.Call, "error", err)
		return nil
	}
	return err
}

// checkWaits ends a watch in which no approval can be given, when the run can do
// nothing but wait.
func (w *runWatcher) checkWaits(ctx context.Context) error {
	if w.keys != nil || w.opts.Policy != "ask" || len(w.story.Asks()) == 0 {
		return nil
	}
	run, err := w.r.Get(ctx)
	if err != nil {
		return err
	}
	if run.State == "interrupted" {
		return errWaits
	}
	return nil
}

// waits says what the run waits for, and how it is given.
func (w *runWatcher) waits() string {
	for _, ask := range w.story.Asks() {
		switch ask.Kind {
		case api.AskQuestion, api.AskForm:
			return fmt.Sprintf("the run waits for an answer: `skete answer %s TEXT` gives it", w.run.ID)
		case api.AskPlan:
			return fmt.Sprintf("the run waits for its plan to be accepted: `skete approve %s` does, with --reject TEXT it is made anew", w.run.ID)
		}
	}
	return fmt.Sprintf("the run waits for an approval: `skete approve %s` decides", w.run.ID)
}

// press acts on keys.
func (w *runWatcher) press(ctx context.Context, pressed []screen.Key) error {
	for _, k := range pressed {
		act := w.dialog.Press(k, w.story.Asks())
		var err error
		switch {
		case act.Detach:
			return errLeft
		case act.Cancel:
			_, err = w.r.Cancel(ctx, "")
		case act.Decide != nil:
			err = w.decide(ctx, *act.Decide)
		case act.Edit != nil:
			err = w.edit(ctx, *act.Edit)
		case act.View != nil:
			err = w.view(ctx, *act.View)
		case act.Send != "":
			err = w.send(ctx, act.Send)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			w.dialog.Say(err.Error())
		}
	}
	return nil
}

// send sends a message, with the images that it names.
func (w *runWatcher) send(ctx context.Context, text string) error {
	images, err := commands{w.App}.images(nil, text)
	if err == nil {
		_, err = w.r.Send(ctx, text, images...)
	}
	return err
}

// completionsMax bounds how many files are offered.
const completionsMax = 50

// filesBeginning lists files and directories whose paths begin with one.
func filesBeginning(prefix string) []string {
	dir, base := filepath.Split(prefix)
	entries, err := os.ReadDir(filepath.Clean("./" + dir))
	if filepath.IsAbs(dir) {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" || strings.ContainsAny(name, " \n") {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		if found = append(found, dir+name); len(found) == completionsMax {
			break
		}
	}
	return found
}

// placesMax bounds how often it is looked for a run's sandbox.
const placesMax = 20

// place says where the run works, once its sandbox is known: how isolated it is, and
// whether it has a network.
func (w *runWatcher) place(ctx context.Context) {
	if w.term == nil || w.places == placesMax {
		return
	}
	w.places++
	run, err := w.r.Get(ctx)
	if err != nil || run.Sandbox == "" { // it may have none
		return
	}
	w.places = placesMax
	sb, err := w.c.Sandbox(run.Sandbox).Get(ctx)
	if err != nil {
		return
	}
	network := "network " + sb.Network
	if sb.Network == "" || sb.Network == "none" {
		network = "no network"
	}
	w.story.Place(run.Model, sb.Isolation, network)
}

// end says how it ended; err is the loop's.
func (w *runWatcher) end(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errLeft):
		w.Note("the run goes on: `skete attach %s` shows it again", w.run.ID)
		return nil
	case errors.Is(err, errWaits):
		w.Note("%s", w.waits())
		if w.JSON {
			if err := w.printRun(ctx); err != nil {
				return err
			}
		}
		return app.Exit(exitWaits)
	case ctx.Err() != nil:
		w.Note("the run goes on: `skete attach %s` shows it again, `skete cancel %s` ends it", w.run.ID, w.run.ID)
		return context.Canceled
	case !errors.Is(err, errEnd):
		return err
	}
	// The log is ahead of the run's record, and of its sandbox's: the command that
	// comes after this one shall find the run over.
	run, err := w.r.Wait(ctx)
	if err != nil {
		w.Log.Warn("the run has ended; its record is behind", "run", w.run.ID, "error", err)
		run = w.run
	}
	next, more, err := w.background(ctx, run)
	if ctx.Err() != nil {
		return w.end(ctx, ctx.Err()) // the user leaves
	}
	if err != nil {
		return err
	}
	if w.JSON {
		if err := w.printRun(ctx); err != nil {
			return err
		}
	}
	state := ""
	if e := w.story.Ended(); e != nil {
		state = string(e.State)
	}
	if more {
		return watchRun(ctx, w.App, w.c, next, watchOptions{Policy: w.opts.Policy, Begun: true})
	}
	if w.Quiet {
		if err := w.printResult(state); err != nil {
			return err
		}
	}
	return ended(state)
}

// background waits for the sub-agents that go on when a run is over, and returns the run
// that the end of one has started; false: none has, and nothing is left.
func (w *runWatcher) background(ctx context.Context, run api.Run) (next api.Run, more bool, err error) {
	for told := false; ; told = true {
		// In this order: a sub-agent is over when the run that it starts is there.
		if told {
			if run, err = w.r.Get(ctx); err != nil {
				return next, false, err
			}
		}
		for r, err := range w.c.Runs(ctx, client.RunFilter{Thread: w.run.Thread, PageSize: 1}) {
			if err != nil {
				return next, false, err
			}
			if r.ID != w.run.ID && r.FirstSeq > run.LastSeq && r.By == startedByTask {
				return r, true, nil
			}
			break
		}
		if run.Background == 0 {
			return next, false, nil
		}
		if !told {
			w.Note("%s in the background: waiting for the end (Ctrl-C leaves, `skete cancel %s` ends all)", agents(run.Background), w.run.ID)
		}
		select {
		case <-time.After(waitsEvery):
		case <-ctx.Done():
			return next, false, ctx.Err()
		}
	}
}

// startedByTask is who started a run that a sub-agent's end began.
const startedByTask = "task in the background"

func agents(n int) string {
	if n == 1 {
		return "a sub-agent goes on"
	}
	return fmt.Sprintf("%d sub-agents go on", n)
}

// printRun is the last line of --json.
func (w *runWatcher) printRun(ctx context.Context) error {
	run, err := w.r.Get(ctx)
	if err != nil {
		return err
	}
	return app.PrintJSONLine(w.Out, struct {
		Run api.Run `json:"run"`
	}{run})
}

// printResult is all that -q prints: the result, or the last words.
func (w *runWatcher) printResult(state string) error {
	if state != "succeeded" {
		if w.text != "" {
			fmt.Fprintf(w.Err, "skete: the run has %s: %s\n", state, app.Printable(w.text))
		}
		return nil
	}
	text := w.text
	if len(w.result) > 0 {
		text = string(w.result)
	} else if f, ok := w.Terminal(); ok && f != nil {
		text = screen.Clean(text)
	}
	_, err := fmt.Fprintln(w.Out, text)
	return err
}
