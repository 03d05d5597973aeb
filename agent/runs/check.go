package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

const (
	InputBytesMax = 4 << 20  // of text
	MediaBytesMax = 20 << 20 // of images
	TitleMax      = 120
	labelsMax     = 32
	labelBytesMax = 256
)

// Check refuses what can be seen to be wrong without looking anything up.
func (s Start) Check() error {
	if len(s.Input) == 0 && s.Thread == "" {
		return errs.New(errs.Invalid, "a run needs a task")
	}
	if err := CheckInput(s.Input); err != nil {
		return err
	}
	if s.Thread != "" && (s.Agent != "" || s.Inline != nil) {
		return errs.New(errs.Invalid, "a thread keeps its agent").WithHint("start a new thread, or fork this one")
	}
	if s.Thread.Depth() > 0 {
		return errs.New(errs.Invalid, "%.80s is a sub-agent's thread", s.Thread).WithHint("start on its root, or fork it")
	}
	if len(s.Labels) > labelsMax {
		return errs.New(errs.Limit, "a run has at most %d labels", labelsMax)
	}
	for key, value := range s.Labels {
		if key == "" || len(key)+len(value) > labelBytesMax {
			return errs.New(errs.Invalid, "the label %.40q is empty, or longer than %d bytes", key, labelBytesMax)
		}
	}
	if len(s.Schema) > 0 {
		if _, err := definition.CompileResult(s.Schema); err != nil {
			return err
		}
	}
	if err := checkCheck(s.EndCheck); err != nil {
		return err
	}
	return CheckBudget(s.Budget)
}

// checkMax bounds a command and a rubric: both stand in an event.
const checkMax = 8 << 10

func checkCheck(c *thread.RunCheck) error {
	switch {
	case c == nil:
	case strings.TrimSpace(c.Command) == "" && strings.TrimSpace(c.Rubric) == "":
		return errs.New(errs.Invalid, "a check needs a command or a rubric")
	case len(c.Command) > checkMax || len(c.Rubric) > checkMax:
		return errs.New(errs.Limit, "the command and the rubric of a check have at most %d bytes each", checkMax)
	case strings.ContainsRune(c.Command, 0):
		return errs.New(errs.Invalid, "the command of a check has a NUL in it")
	}
	return nil
}

// CheckBudget refuses what is no budget.
func CheckBudget(b thread.Budget) error {
	if b.Steps < 0 || b.Tokens < 0 || b.CostUSD < 0 || b.Wall < 0 {
		return errs.New(errs.Invalid, "a budget is not negative")
	}
	return nil
}

// CheckInput refuses what is no task or message, or is too large for one.
func CheckInput(blocks []llm.Block) error {
	text, media := 0, 0
	for _, b := range blocks {
		switch {
		case b.Kind == llm.KindMedia && b.Media != nil:
			media += len(b.Media.Data)
		case b.Kind != llm.KindText:
			return errs.New(errs.Invalid, "a message is made of text and images, not of %.40q", b.Kind)
		}
		text += len(b.Text)
	}
	if text > InputBytesMax {
		return errs.New(errs.Limit, "a message has at most %d bytes of text; this one has %d", InputBytesMax, text).WithHint("put it into a file of the sandbox")
	}
	if media > MediaBytesMax {
		return errs.New(errs.Limit, "the images of a message have at most %d bytes; these have %d", MediaBytesMax, media).WithHint("put them into the sandbox")
	}
	return nil
}

// HasMedia reports whether a message shows an image.
func HasMedia(blocks []llm.Block) bool {
	return slices.ContainsFunc(blocks, func(b llm.Block) bool { return b.Media != nil })
}

// scriptPrefix begins the names of models that are files of the host.
const scriptPrefix = "script/"

// MayName keeps those who are not the operator from naming files of the host,
// in the request or in a definition that came with it.
func (s Start) MayName(d definition.Definition) error {
	if s.Operator || s.Replay != "" {
		return nil
	}
	names := []string{s.Model}
	if s.Inline != nil {
		names = append(names, d.Model)
		for _, sub := range d.Subagents {
			names = append(names, sub.Model)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, scriptPrefix) {
			return errs.New(errs.Denied, "only the operator may name a script by its path").
				WithHint("name it in `models:` of the configuration, or use the local socket or a key with scope admin")
		}
	}
	return nil
}

// Opened is the first event of the thread that s asks for.
func (s Start) Opened(d definition.Definition) (thread.Opened, error) {
	if s.Spec != nil {
		d.Sandbox = s.Spec
	}
	content, err := json.Marshal(d)
	if err != nil {
		return thread.Opened{}, errs.Wrap(errs.Invalid, err, "the agent's definition cannot be written down")
	}
	if len(content) > definition.ResolvedBytesMax {
		return thread.Opened{}, errs.New(errs.Limit, "the agent with its sub-agents has %d bytes; at most %d", len(content), definition.ResolvedBytesMax)
	}
	return thread.Opened{Agent: content, Name: d.Name, Title: s.Headline(), Labels: s.Labels}, nil
}

// Headline is the given title, or the task's first line.
func (s Start) Headline() string {
	title := s.Title
	for _, b := range s.Input {
		if title == "" {
			title, _, _ = strings.Cut(strings.TrimSpace(b.Text), "\n")
		}
	}
	return clip.Text(title, TitleMax)
}

// KeepInput moves what is too large for an event to blobs.
func KeepInput(ctx context.Context, blobs thread.Blobs, in thread.Input) (thread.Input, error) {
	for i, b := range in.Blocks {
		if b.Media == nil {
			continue
		}
		m, err := KeepMedia(ctx, blobs, *b.Media)
		if err != nil {
			return in, err
		}
		in.Blocks[i].Media = &m
	}
	content, err := json.Marshal(in.Blocks)
	if err != nil || len(content) <= thread.InlineBytesMax {
		return in, err
	}
	if in.Shown, err = blobs.Put(ctx, content); err != nil {
		return in, err
	}
	in.ShownTokens = len(content) / 4
	in.Blocks = []llm.Block{llm.Text(clip.Text((llm.Message{Blocks: in.Blocks}).String(), TextMax))}
	return in, nil
}

// KeepMedia stores an image and returns it as an event may name it: an event never
// names a blob that is not stored. Invalid: it has no bytes, and its hash names no
// blob.
func KeepMedia(ctx context.Context, blobs thread.Blobs, m llm.Media) (llm.Media, error) {
	if len(m.Data) > 0 {
		hash, err := blobs.Put(ctx, m.Data)
		return llm.Media{Type: m.Type, Hash: hash}, err
	}
	_, _, err := blobs.ReadAt(ctx, m.Hash, make([]byte, 1), 0)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return llm.Media{Type: m.Type, Hash: m.Hash}, nil
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Invalid):
		return llm.Media{}, errs.Wrap(errs.Invalid, err, "an image has no content")
	}
	return llm.Media{}, err
}

// MayRewind says whether a thread's conversation can be taken back to an event.
// Conflict: its run is under way. Invalid: there is no such event before the last.
func MayRewind(s *State, to uint64) error {
	switch {
	case s.Run == nil:
		return errs.New(errs.Invalid, "the thread has no run")
	case s.Run.Ended == nil:
		return errs.New(errs.Conflict, "the run is under way").WithHint("`skete cancel %s` first", s.Run.ID)
	case to == 0 || to >= s.Seq:
		return errs.New(errs.Invalid, "a rewind goes to an event between 1 and %d", s.Seq-1)
	}
	return nil
}
