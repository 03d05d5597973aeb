package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// A plug-in's model keeps what llm.Model promises: the suite of all drivers is run through a
// real process, which asks the suite's server over HTTP.
func TestModel(t *testing.T) {
	needPython(t)
	to := &routes{file: filepath.Join(t.TempDir(), "routes.json"), all: map[string]route{}}
	p := load(t, filepath.Join("testdata", "relay"))
	h := NewHost(Config{Plugins: []*Plugin{p}, Launcher: &here{dir: "testdata", env: []string{"RELAY_TO=" + to.file}}})
	t.Cleanup(func() { _ = h.Close() })
	if _, done, err := h.runner(p, "a").use(t.Context()); err != nil { // so that it runs before goroutines are counted
		t.Fatal(err)
	} else {
		done(true)
	}
	llmtest.Run(t, llmtest.Driver{Dialect: relayed{}, New: func(c llmtest.Config) llm.Model {
		id := to.add(t, route{c.URL, c.Key, c.Model})
		info := llm.Info{Name: "relay/" + id, Vendor: "plugin", ID: id, OutputTokensMax: c.OutputTokensMax}
		return &model{h: h, p: p, tenant: "a", info: info, silence: c.Silence, bytesMax: c.ReplyBytesMax}
	}})
}

// route is where the relay finds a model.
type route struct {
	URL   string `json:"url"`
	Key   string `json:"key"`
	Model string `json:"model"`
}

type routes struct {
	mu   sync.Mutex
	file string
	all  map[string]route
}

func (r *routes) add(t *testing.T, to route) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := "m" + strconv.Itoa(len(r.all))
	r.all[id] = to
	data, err := json.Marshal(r.all)
	if err = errors.Join(err, os.WriteFile(r.file+".new", data, 0o600), os.Rename(r.file+".new", r.file)); err != nil {
		t.Fatal(err)
	}
	return id
}

// relayed is what the relay and its server speak: the protocol's own parameters, and lines of
// deltas and a result.
type relayed struct{}

// Facts implements llmtest.Dialect.
func (relayed) Facts() llmtest.Facts {
	return llmtest.Facts{
		Dialect: "plugin/relay", Reasoning: true, Opaque: true, Redacted: true, Ordered: true, CacheHintsMax: 100, CacheKey: true, Schema: true,
		Serial: true, Effort: true, Temperature: true, StopTexts: true, Media: true, MediaInResults: true, FailedResults: true, Late: true,
		Stops: []llm.Stop{llm.StopEnd, llm.StopTools, llm.StopLength, llm.StopRefusal, llm.StopFilter, llm.StopPause},
	}
}

// Parse implements llmtest.Dialect.
func (relayed) Parse(r *http.Request, body []byte) (llmtest.Seen, error) {
	var q request
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return llmtest.Seen{}, err
	}
	seen := llmtest.Seen{Model: q.Model, Key: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), Stream: true}
	seen.Request = llm.Request{
		System: back(q.System), Tools: q.Tools, Serial: q.Serial, OutputTokensMax: q.OutputTokensMax, Temperature: q.Temperature,
		Effort: q.Effort, Schema: q.Schema, CacheKey: q.CacheKey, Stop: q.Stop, Step: q.Step,
	}
	if q.Choice != nil {
		seen.Request.Choice = llm.Choice{Mode: q.Choice.Mode, Name: q.Choice.Name}
	}
	for _, m := range q.Messages {
		seen.Request.Messages = append(seen.Request.Messages, llm.Message{Role: m.Role, Blocks: back(m.Blocks), Cache: m.Cache})
	}
	return seen, nil
}

// back makes what a plug-in reads what it was.
func back(list []block) []llm.Block {
	var out []llm.Block
	for _, b := range list {
		o := llm.Block{Kind: b.Kind, Text: b.Text, Cache: b.Cache}
		if b.Opaque != nil {
			o.Vendor = &llm.Vendor{Data: b.Opaque}
		}
		switch {
		case b.Call != nil:
			o.Call = &llm.Call{ID: b.Call.ID, Name: b.Call.Name, Args: b.Call.Args}
		case b.Result != nil:
			o.Result = &llm.Result{CallID: b.Result.CallID, Name: b.Result.Name, Blocks: back(b.Result.Blocks), Failed: b.Result.Failed}
		case b.Media != nil:
			o.Media = &llm.Media{Type: b.Media.Type, Data: b.Media.Data}
		}
		out = append(out, o)
	}
	return out
}

// Answer implements llmtest.Dialect.
func (relayed) Answer(seen llmtest.Seen, r llmtest.Reply) llmtest.Wire {
	w := llmtest.Wire{Header: http.Header{"Content-Type": {"application/jsonl"}}}
	add := func(v any) {
		text, _ := json.Marshal(v) // of plain values
		w.Chunks = append(w.Chunks, append(text, '\n'))
	}
	message := &talk{Role: llm.RoleAssistant}
	opaque, calls := false, 0
	for _, b := range r.Blocks {
		o := block{Kind: b.Kind, Text: b.Text}
		if b.Vendor != nil {
			o.Opaque, opaque = b.Vendor.Data, true
		}
		if b.Call != nil {
			text := string(b.Call.Args)
			if b.Call.Raw {
				text = writtenArgs(b.Call.Args)
			}
			o.Call = &callBlock{b.Call.ID, b.Call.Name, b.Call.Args}
			add(map[string]any{"delta": map[string]any{"kind": "tool_call", "index": calls, "call_id": b.Call.ID, "name": b.Call.Name}})
			for _, p := range cut(text, r.PieceOr()) {
				add(map[string]any{"delta": map[string]any{"kind": "tool_args", "index": calls, "text": p}})
			}
			calls++
		} else {
			for _, p := range cut(b.Text, r.PieceOr()) {
				add(map[string]any{"delta": map[string]any{"kind": b.Kind, "text": p}})
			}
		}
		message.Blocks = append(message.Blocks, o)
	}
	end := result{Usage: r.Usage, Stop: r.StopOr(), Model: seen.Model}
	if opaque { // else the pieces say all
		end.Message = message
	}
	add(map[string]any{"result": end})
	return w
}

// cut cuts a text into pieces of about n bytes, between characters.
func cut(s string, n int) []string {
	var list []string
	for len(s) > n {
		end := n
		for end < len(s) && !utf8.RuneStart(s[end]) {
			end++
		}
		list, s = append(list, s[:end]), s[end:]
	}
	if s != "" {
		list = append(list, s)
	}
	return list
}

var statuses = map[llm.Trouble]int{
	llm.RateLimited: 429, llm.Overloaded: 503, llm.Overflow: 400, llm.Refused: 401, llm.BadRequest: 400,
}

// Failure implements llmtest.Dialect.
func (relayed) Failure(f llmtest.Failure) llmtest.Wire {
	status := f.Status
	if status == 0 {
		status = statuses[f.Trouble]
	}
	said := map[string]any{"message": f.Text}
	if f.Trouble == llm.Overflow {
		said["trouble"] = f.Trouble
	}
	text, _ := json.Marshal(said) // of plain values
	w := llmtest.Wire{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Chunks: [][]byte{text}}
	if f.RetryAfter > 0 {
		w.Header.Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
	}
	return w
}

// Late implements llmtest.Dialect.
func (relayed) Late(f llmtest.Failure) []byte {
	said := map[string]any{"message": f.Text, "trouble": f.Trouble, "status": f.Status}
	text, _ := json.Marshal(map[string]any{"error": said}) // of plain values
	return slices.Concat(text, []byte("\n"))
}
