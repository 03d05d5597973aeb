package route

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
)

// Steps makes calls that may change the files of a sandbox steps of its
// history: what was there before is a revision, and what the call changed is
// one of its own, by who called and what was asked for.
type Steps interface {
	// Begin begins a step, once what is on disk is kept. It never fails: a call
	// goes on where no history can be kept.
	Begin(ctx context.Context, tenant, sandbox, who, what string) Step
}

// Step is a call that is under way.
type Step interface {
	// End keeps what the call changed. It may be repeated.
	End()
	// Follow lets the step last until wait returns; the caller goes on.
	Follow(wait func(context.Context))
}

// Naming says how a route becomes a step. Every route beneath a sandbox with
// the scope Write is one, also those that say nothing here.
type Naming struct {
	of   reflect.Type // the input that what takes; nil = the operation's ID is the name
	what func(in any) string
	mode stepMode
}

type stepMode int

const (
	stepAround stepMode = iota // of the handler, up to the first byte of the answer
	stepOwn                    // the handler calls Begin
	stepNone
)

// Named names a step by what was asked for.
func Named[I any](what func(in *I) string) Naming {
	return Naming{of: reflect.TypeFor[I](), what: func(in any) string { return what(in.(*I)) }}
}

// OwnStep is for handlers that learn late what is asked for, or return before
// it is done: they call Begin, and end it before they answer.
func OwnStep() Naming { return Naming{mode: stepOwn} }

// NoStep is for routes that change no files, or whose changes are another's.
func NoStep() Naming { return Naming{mode: stepNone} }

// programHeader names the program that makes a call for the caller; it stands in the
// history beside the key.
const (
	programHeader = "Skete-Program"
	programMax    = 64 // bytes
)

// beneathSandbox is where the routes of one sandbox are.
const beneathSandbox = "/v1/sandboxes/{id}/"

// noRevision is the parameter that lets a call be no step: what it changed
// becomes a revision with all else, once it is quiet.
const noRevision = "no_revision"

// step reports whether an operation is one.
func (o Operation) step() bool {
	return o.Scope == key.Write && strings.HasPrefix(o.Path, beneathSandbox) && o.Step.mode != stepNone
}

// declareStep documents what a step takes.
func (o Operation) declareStep(op *huma.Operation) {
	if !o.step() {
		return
	}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: noRevision, In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean},
		Description: "make no revision before and after this call; what it changes becomes one when it is quiet",
	})
}

// begin begins the step of a request, if it is one by its declaration.
func begin[I any](ctx context.Context, o Operation, in *I) (end func()) {
	if !o.step() || o.Step.mode != stepAround {
		return func() {}
	}
	what := o.ID
	if o.Step.what != nil {
		what = o.Step.what(in)
	}
	return Begin(ctx, what).End
}

// checkStep refuses a name that is made of another route's input.
func checkStep[I any](o Operation) {
	if o.Step.of != nil && o.Step.of != reflect.TypeFor[I]() {
		panic("route " + o.Method + " " + o.Path + " names its step by another input")
	}
}

// caller is what a request tells the step that it becomes.
type caller struct {
	steps   Steps // nil = none is made
	sandbox string
	program string // by which the caller calls, as it says; "" = nothing is said
}

// callerOf reads it.
func (t *Table) callerOf(r *http.Request) caller {
	c := caller{steps: t.steps, sandbox: r.PathValue("id"), program: clip.Line(r.Header.Get(programHeader), programMax)}
	if r.URL.RawQuery != "" {
		if no, err := strconv.ParseBool(r.URL.Query().Get(noRevision)); err == nil && no {
			c.steps = nil
		}
	}
	return c
}

// Begin begins a step of the request's sandbox, named by what is done.
func Begin(ctx context.Context, what string) Step {
	n := noteOf(ctx)
	n.what = what
	c := n.caller
	if c.steps == nil {
		return noStep{}
	}
	id := auth.From(ctx)
	who := id.Who()
	if c.program != "" {
		who += " by " + c.program
	}
	return c.steps.Begin(ctx, id.Tenant, c.sandbox, who, what)
}

// noStep is a call that becomes none.
type noStep struct{}

// End implements Step.
func (noStep) End() {}

// Follow implements Step.
func (noStep) Follow(func(context.Context)) {}
