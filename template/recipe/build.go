package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/apt"
)

// stepsKept is how many trees of steps are kept for later builds.
const stepsKept = 48

// Templates is what a Builder needs of *template.Store.
type Templates interface {
	Rootfs(ctx context.Context, name string) (template.Rootfs, error)
	Get(ctx context.Context, name string) (template.Info, error)
	ImportOver(ctx context.Context, name, over string, tar io.Reader) (template.Info, error)
	Alias(ctx context.Context, name, second string) (template.Info, error)
	Remove(ctx context.Context, name string) error
}

// Machines gives a Builder sandboxes in which commands may be root.
type Machines interface {
	// Open boots one from a template; network: it reaches what the profile default allows,
	// else nothing. close ends it and leaves nothing.
	Open(ctx context.Context, template string, network bool) (guest *wire.Client, close func(context.Context) error, err error)
}

// Packages fetches packages for a tree.
type Packages interface {
	Fetch(ctx context.Context, tree string, names []string, say func(string)) ([]apt.Deb, error)
}

// Config of a Builder.
type Config struct {
	Templates Templates
	Machines  Machines
	Packages  Packages
	// Prepare makes a ready template that is not there yet; nil = none is made.
	Prepare func(ctx context.Context, name string, say func(string)) (template.Info, error)
	// Pull brings an image of a registry and names the template that it became;
	// nil = Unsupported.
	Pull func(ctx context.Context, reference string, say func(string)) (name string, err error)
	// Dir remembers which steps were used when; it is the Builder's alone.
	Dir string
	Log *slog.Logger // nil = none
}

// Builder builds templates.
type Builder struct {
	c    Config
	used *usage
	// builds of one name, and steps of one key, happen one after the other.
	names, keys turns
}

// Request asks for a template.
type Request struct {
	Name   string
	Folder *Folder
	Fresh  bool // do every step, also those that were done before
}

// Kinds of News.
const (
	progress = "progress" // a line about what happens
	Step     = "step"     // a step begins, or was done before
	Output   = "output"   // a piece of what a step writes
)

// News is one piece of what happens in a build.
type News struct {
	Kind     string
	Text     string
	N, Steps int  // number of the step, from 1, and how many there are
	Cached   bool // the step was done before
}

// New returns a Builder.
func New(c Config) (*Builder, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	used, err := openUsage(c.Dir)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot remember the steps of builds")
	}
	return &Builder{c: c, used: used}, nil
}

// Build makes a template of a recipe. tell is called from one goroutine at a
// time. When a step fails, or ctx ends, those before it are kept and are not
// done again by the next build.
//
// Invalid: a step failed; the text names its place in the recipe and the last
// that it wrote.
func (b *Builder) Build(ctx context.Context, r Request, tell func(News)) (template.Info, error) {
	if template.IsReady(r.Name) || template.Step(r.Name) {
		return template.Info{}, errs.New(errs.Invalid, "the name %s is taken by a template that skete makes itself", r.Name)
	}
	done, err := b.names.take(ctx, r.Name)
	if err != nil {
		return template.Info{}, err
	}
	defer done()
	say := func(line string) { tell(News{Kind: progress, Text: line}) }
	base, err := b.base(ctx, r.Folder.Recipe.From, say)
	if err != nil {
		return template.Info{}, fmt.Errorf("%s: %w", r.Folder.Recipe.Place("from"), err)
	}
	steps, err := r.Folder.plan(ctx, base.Hash)
	if err != nil {
		return template.Info{}, err
	}
	x := build{b: b, r: r, say: say, tell: tell, steps: steps}
	last, err := x.run(ctx, base.Name)
	if err != nil {
		return template.Info{}, err
	}
	info, err := b.c.Templates.Alias(ctx, last, r.Name)
	if err != nil {
		return template.Info{}, err
	}
	b.forget(ctx)
	return info, nil
}

// reference is how an image of a registry differs from a template's name.
var reference = pattern.Lazy(`[/:@]`)

// base finds what the recipe starts from.
func (b *Builder) base(ctx context.Context, from string, say func(string)) (template.Rootfs, error) {
	name := from
	switch {
	case reference().MatchString(from):
		if b.c.Pull == nil {
			return template.Rootfs{}, errs.New(errs.Unsupported, "this server pulls no images").WithHint("`skete template import` makes a template of a tar")
		}
		var err error
		if name, err = b.c.Pull(ctx, from, say); err != nil {
			return template.Rootfs{}, err
		}
	case template.IsReady(from) && b.c.Prepare != nil:
		if _, err := b.c.Prepare(ctx, from, say); err != nil {
			return template.Rootfs{}, err
		}
	}
	root, err := b.c.Templates.Rootfs(ctx, name)
	if err == nil && name == template.HostName {
		err = errs.New(errs.Invalid, "a build cannot start from the template host")
	}
	return root, err
}

// forget removes the trees of the steps that were not used for longest.
func (b *Builder) forget(ctx context.Context) {
	for _, name := range b.used.old(stepsKept) {
		err := b.c.Templates.Remove(ctx, name)
		if err != nil && !errs.Is(err, errs.NotFound) {
			continue // in use: the next build tries again
		}
		b.used.drop(name)
	}
}

// build is one build.
type build struct {
	b     *Builder
	r     Request
	say   func(string)
	tell  func(News)
	steps []step
}

// run does what is not done yet and names the last tree.
func (x *build) run(ctx context.Context, base string) (string, error) {
	at := base
	for i, s := range x.steps {
		name := template.StepPrefix + s.key[:40]
		if err := x.ensure(ctx, i, s, at, name); err != nil {
			return "", err
		}
		at = name
	}
	return at, nil
}

// ensure makes the tree of a step from the one before, unless it is there.
func (x *build) ensure(ctx context.Context, i int, s step, from, name string) error {
	done, err := x.b.keys.take(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	news := News{Kind: Step, Text: s.text, N: i + 1, Steps: len(x.steps)}
	if !x.r.Fresh {
		// The tree may be gone although its name is there: then it is made again.
		if _, err := x.b.c.Templates.Rootfs(ctx, name); err == nil {
			news.Cached = true
			x.tell(news)
			x.b.used.touch(name)
			return nil
		}
	}
	x.tell(news)
	start := time.Now()
	if err := x.do(ctx, s, from, name); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return stepError(s, err)
	}
	x.b.used.touch(name)
	x.b.c.Log.Info("a step of a template was done", "template", x.r.Name, "step", i+1, "kind", s.kind, "took", time.Since(start))
	return nil
}

// do does one step in a sandbox of its own and keeps the root that comes of it.
func (x *build) do(ctx context.Context, s step, from, name string) (err error) {
	network := s.kind == kindRun && x.r.Folder.Recipe.Network == NetworkDefault
	guest, end, err := x.b.c.Machines.Open(ctx, from, network)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	w := &worker{guest: guest, recipe: x.r.Folder.Recipe, output: func(text string) { x.tell(News{Kind: Output, Text: text}) }}
	switch s.kind {
	case kindPackages:
		err = x.packages(ctx, w, from)
	case kindFiles:
		err = w.copyFiles(ctx, x.r.Folder)
	case kindRun:
		err = w.command(ctx, "root", s.run, stepTimeout)
		if err == nil && network {
			err = w.leaveNetwork(ctx)
		}
	case kindFinish:
		return x.finish(ctx, w, from, name)
	}
	if err != nil {
		return err
	}
	return x.keep(ctx, w, from, name)
}

// keep makes a tree of the sandbox's root, which began as that of from.
func (x *build) keep(ctx context.Context, w *worker, from, name string) error {
	_, err := x.b.c.Templates.ImportOver(ctx, name, from, w.root(ctx))
	return err
}

func (x *build) packages(ctx context.Context, w *worker, from string) error {
	root, err := x.b.c.Templates.Rootfs(ctx, from)
	if err != nil {
		return err
	}
	debs, err := x.b.c.Packages.Fetch(ctx, root.Dir, x.r.Folder.Recipe.Packages, x.say)
	if err != nil || len(debs) == 0 {
		return err
	}
	return w.install(ctx, debs)
}

// finish writes what the template says of itself, keeps the tree, and tries
// whether what it starts gets ready. A tree that is not ready keeps no name.
func (x *build) finish(ctx context.Context, w *worker, from, name string) error {
	s, _ := x.r.Folder.Recipe.settings()
	if err := w.write(ctx, settingsPath, s.encode()); err != nil {
		return err
	}
	if err := x.keep(ctx, w, from, name); err != nil {
		return err
	}
	if err := w.ready(ctx, x.say); err != nil {
		return errors.Join(err, x.b.c.Templates.Remove(context.WithoutCancel(ctx), name))
	}
	return nil
}

// stepError names the step and its place in the recipe.
func stepError(s step, err error) error {
	if failed, is := errors.AsType[*failedError](err); is {
		return errs.Wrap(errs.Invalid, err, "%s: %s: %s%s", s.place, s.text, failed.how, tail(failed.last)).
			WithHint("%s", hint(failed.last))
	}
	return fmt.Errorf("%s: %s: %w", s.place, s.text, err)
}

func tail(last string) string {
	if last == "" {
		return ""
	}
	return "; it wrote last:\n" + last
}

// hint is for what goes wrong most often: a step that wants the network.
func hint(last string) string {
	for _, sign := range []string{
		"Temporary failure in name resolution", "Could not resolve", "Name or service not known", "Network is unreachable",
		"getaddrinfo", "Temporary failure resolving", "bad address", "ENOTFOUND", "EAI_AGAIN", "no such host",
	} {
		if strings.Contains(last, sign) {
			return "steps have no network: name Debian packages in `packages` and bring everything else by `files`, or say `network: default` for package registries and git hosts"
		}
	}
	return "what was finished before is kept; the next build goes on here"
}
