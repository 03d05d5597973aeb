package inside

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// faultTextMax bounds the texts of a fault.
const faultTextMax = 8 << 10

// fault is an error on its way: what users may read of it, and what is done about it.
// Causes, and where a model's server is, stay where they are.
type fault struct {
	Class  errs.Class      `json:"class"`
	Text   string          `json:"text,omitempty"`
	Hint   string          `json:"hint,omitempty"`
	Code   string          `json:"code,omitempty"`
	Exit   int             `json:"exit,omitempty"`
	File   *tool.FileError `json:"file,omitempty"`
	Model  *modelFault     `json:"model,omitempty"`
	Fenced bool            `json:"fenced,omitempty"`
}

// modelFault is of a model call.
type modelFault struct {
	Trouble      llm.Trouble   `json:"trouble"`
	Status       int           `json:"status,omitempty"`
	RetryAfter   time.Duration `json:"retry_after_ns,omitempty"`
	Model        string        `json:"model,omitempty"`
	WindowTokens int           `json:"window_tokens,omitempty"`
	PromptTokens int           `json:"prompt_tokens,omitempty"`
	Said         string        `json:"said,omitempty"`
}

// faultOf tells an error; nil of nil.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	if errors.Is(err, agent.ErrFenced) {
		return &fault{Class: errs.Conflict, Fenced: true}
	}
	if m, ok := errors.AsType[*llm.Error](err); ok {
		return &fault{Class: errs.Of(err), Model: &modelFault{
			Trouble: m.Trouble, Status: m.Status, RetryAfter: m.RetryAfter, Model: m.Model, WindowTokens: m.WindowTokens, PromptTokens: m.PromptTokens, Said: m.Said,
		}}
	}
	if f, ok := errors.AsType[*tool.FileError](err); ok {
		return &fault{Class: errs.Invalid, File: f}
	}
	f := &fault{Class: errs.Of(err), Text: errs.Public(err)}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		f.Hint, f.Code, f.Exit = e.Hint, e.Code, e.Exit
	}
	return f
}

// errTold is the cause of an error that came over the connection.
var errTold = errors.New("so the other side says")

// err makes it an error again. Of what the other side says, only the kind is believed.
func (f *fault) err() error {
	switch {
	case f.Fenced:
		return agent.ErrFenced
	case f.Model != nil:
		m := f.Model
		return &llm.Error{
			Trouble: m.Trouble, Status: m.Status, RetryAfter: max(m.RetryAfter, 0), Model: clip.Text(m.Model, 200), WindowTokens: max(m.WindowTokens, 0),
			PromptTokens: max(m.PromptTokens, 0), Said: clip.Text(m.Said, 700), Cause: errTold,
		}
	case f.File != nil:
		return &tool.FileError{Code: clip.Text(f.File.Code, 64), Path: clip.Text(f.File.Path, tool.PathBytesMax), Hint: clip.Text(f.File.Hint, faultTextMax)}
	}
	class := f.Class
	if !slices.Contains(errs.Classes, class) {
		class = errs.Internal
	}
	return &errs.Error{Class: class, Msg: clip.Text(f.Text, faultTextMax), Hint: clip.Text(f.Hint, faultTextMax), Code: clip.Text(f.Code, 64), Exit: f.Exit, Cause: errTold}
}

// ended reports whether an error is that of the caller's own context.
func ended(ctx context.Context, err error) bool { return err != nil && ctx.Err() != nil }
