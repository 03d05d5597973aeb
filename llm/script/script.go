// Package script is a model that says what a file tells it to: for tests, for
// trying an agent without a real model, and for users' own tests. The format is
// in docs/script.md.
//
//	m, err := script.Load("testdata/fix.yaml")
//
// Which reply comes is a function of the request: of the number of the model
// call in its run, of the instructions, of the last words of the user and the
// last results. Nothing is counted in memory, so a run that goes on after a
// kill -9 goes on where it was, and several runs may share one Model. The one
// exception is `fail`: how often an attempt has failed cannot be seen in a
// request, so that is remembered, and begins anew with the process.
//
// A Model is safe for concurrent use.
package script

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/llm"
)

// Model plays a script.
type Model struct {
	file *file
	info llm.Info

	mu     sync.Mutex
	failed map[uint64]int // how often a reply to a request has failed
}

var _ llm.Model = (*Model)(nil)

const (
	failedMax    = 4096 // requests whose failures are remembered
	pieceDefault = 24   // bytes of a delta, about
	hangDefault  = 5 * time.Minute
)

// Load reads a script from a file. The model, and what is said of the script
// to users, has the file's name without its folder: models are shown to people
// who need not know how the host is laid out.
func Load(path string) (*Model, error) {
	name := filepath.Base(path)
	in, err := os.Open(path)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "the script %s cannot be read", name)
	}
	defer in.Close()
	data := make([]byte, yamlfile.BytesMax+1)
	n := 0
	for n < len(data) {
		k, err := in.Read(data[n:])
		if n += k; err != nil {
			break // the end; a directory or a bad disk leaves too little to parse
		}
	}
	return New(name, data[:n])
}

// New makes a model of the text of a script. name is how messages call the
// file, and the model.
func New(name string, data []byte) (*Model, error) {
	f, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	info := llm.Info{
		Name: "script:" + name, Vendor: "script", ID: name, Calling: llm.Calling(f.Model.Calling), Media: f.Model.Media, Documents: f.Model.Media,
		WindowTokens: f.Model.WindowTokens, OutputTokensMax: f.Model.OutputTokensMax,
		Price: llm.Price{Input: f.Model.Price.Input, Output: f.Model.Price.Output, CacheRead: f.Model.Price.CacheRead, CacheWrite: f.Model.Price.CacheWrite},
	}
	return &Model{file: f, info: info, failed: map[uint64]int{}}, nil
}

// WithInfo returns a copy that says this of itself; what the script says of
// its window stays.
func (m *Model) WithInfo(info llm.Info) *Model {
	info.Vendor = "script"
	if info.ID == "" {
		info.ID = m.info.ID
	}
	if m.info.WindowTokens > 0 {
		info.WindowTokens = m.info.WindowTokens
	}
	return &Model{file: m.file, info: info, failed: map[uint64]int{}}
}

// Info implements llm.Model.
func (m *Model) Info() llm.Info { return m.info }

// Stream implements llm.Model.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if err := m.play(ctx, req, yield); err != nil {
			yield(llm.Delta{}, err)
		}
	}
}

// play says the reply. It returns nil after the response, and when the caller
// has left.
func (m *Model) play(ctx context.Context, req *llm.Request, yield func(llm.Delta, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := look(req)
	usage := llm.Usage{Input: s.tokens, Estimated: true}
	if w := m.file.Model.WindowTokens; w > 0 && s.tokens > w {
		return m.trouble(llm.Overflow, "%d tokens, the window of this script has %d", s.tokens, w)
	}
	r, nth, err := m.file.pick(s)
	if err != nil {
		return m.trouble(llm.BadRequest, "%w", err)
	}
	said, err := r.fill(s, nth)
	if err != nil {
		return m.trouble(llm.BadRequest, "%s: %w", r.where, err)
	}
	if err := sleep.For(ctx, r.Delay); err != nil {
		return err
	}
	deltas := said.deltas(m.file.pieceOr())
	if f := r.Fail; f != nil && m.fails(r, req) {
		return m.fail(ctx, f, deltas, yield)
	}
	if left, err := m.pace(ctx, deltas, yield); left || err != nil {
		return err
	}
	usage.Output = (said.bytes() + 3) / 4
	if r.Usage != nil {
		usage = llm.Usage{Input: r.Usage.Input, Output: r.Usage.Output, Reasoning: r.Usage.Reasoning, CacheRead: r.Usage.CacheRead, CacheWrite: r.Usage.CacheWrite}
	}
	yield(llm.Delta{Kind: llm.DeltaDone, Response: &llm.Response{
		Message: llm.Assistant(said.blocks...), Usage: usage, Stop: said.stop, Model: m.info.ID,
	}}, nil)
	return nil
}

// pace yields deltas, with the script's pause between them.
func (m *Model) pace(ctx context.Context, deltas []llm.Delta, yield func(llm.Delta, error) bool) (left bool, err error) {
	for _, d := range deltas {
		if err := sleep.For(ctx, m.file.Pace); err != nil {
			return false, err
		}
		if !yield(d, nil) {
			return true, nil
		}
	}
	return false, nil
}

func (m *Model) trouble(t llm.Trouble, format string, args ...any) error {
	return &llm.Error{Trouble: t, Model: m.info.Name, Cause: fmt.Errorf(format, args...)}
}

// fails reports whether this attempt fails, and counts it.
func (m *Model) fails(r *reply, req *llm.Request) bool {
	if r.Fail.Always {
		return true
	}
	k := fingerprint(r, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed[k] >= max(1, r.Fail.Times) {
		return false
	}
	if len(m.failed) >= failedMax {
		clear(m.failed)
	}
	m.failed[k]++
	return true
}

var seed = maphash.MakeSeed()

// fingerprint tells requests apart.
func fingerprint(r *reply, req *llm.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	fmt.Fprint(&h, r.where, req.Step, req.CacheKey)
	for _, b := range req.System {
		_, _ = h.WriteString(b.Text) // never fails
	}
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			_, _ = h.WriteString(b.Text)
			if b.Result != nil {
				_, _ = h.WriteString(textOf(b.Result.Blocks))
			}
		}
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// fail plays what goes wrong.
func (m *Model) fail(ctx context.Context, f *failure, deltas []llm.Delta, yield func(llm.Delta, error) bool) error {
	switch f.With {
	case "drop", "hang":
		if left, err := m.pace(ctx, deltas[:len(deltas)/2], yield); left || err != nil {
			return err
		}
		if f.With == "drop" {
			return m.trouble(llm.Transport, "the script drops the connection here")
		}
		after := f.After
		if after == 0 {
			after = hangDefault
		}
		if err := sleep.For(ctx, after); err != nil {
			return err
		}
		return m.trouble(llm.Transport, "the script was silent for %s", after)
	}
	return &llm.Error{Trouble: llm.Trouble(f.With), RetryAfter: f.RetryAfter, Model: m.info.Name, Cause: fmt.Errorf("the script fails here")}
}

// said is a reply with everything filled in.
type said struct {
	blocks []llm.Block
	stop   llm.Stop
}

func (s said) bytes() int {
	n := 0
	for _, b := range s.blocks {
		n += len(b.Text)
		if b.Call != nil {
			n += len(b.Call.Name) + len(written(b.Call))
		}
	}
	return n
}

// deltas cuts a reply into pieces.
func (s said) deltas(piece int) []llm.Delta {
	var all []llm.Delta
	calls := 0
	for _, b := range s.blocks {
		switch b.Kind {
		case llm.KindText, llm.KindReasoning:
			kind := llm.DeltaText
			if b.Kind == llm.KindReasoning {
				kind = llm.DeltaReasoning
			}
			for _, p := range pieces(b.Text, piece) {
				all = append(all, llm.Delta{Kind: kind, Text: p})
			}
		case llm.KindCall:
			all = append(all, llm.Delta{Kind: llm.DeltaCall, Index: calls, Name: b.Call.Name})
			for _, p := range pieces(written(b.Call), piece) {
				all = append(all, llm.Delta{Kind: llm.DeltaArgs, Index: calls, Text: p})
			}
			calls++
		}
	}
	return all
}

// written is what the model wrote as arguments.
func written(c *llm.Call) string {
	if !c.Raw {
		return string(c.Args)
	}
	return unquote(c.Args)
}

// pieces cuts a text between characters, after white space where it can.
func pieces(s string, n int) []string {
	var cut []string
	for len(s) > n {
		end := n
		if i := strings.LastIndexAny(s[:n], " \n"); i > n/2 {
			end = i + 1
		}
		for end < len(s) && !utf8.RuneStart(s[end]) {
			end++
		}
		cut, s = append(cut, s[:end]), s[end:]
	}
	if s != "" {
		cut = append(cut, s)
	}
	return cut
}
