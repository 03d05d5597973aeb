package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

func (s *service) registerStory(t *route.Table) {
	const tag, base = "runs", "/v1/runs/{id}"
	get := func(path, id, summary string) route.Operation {
		return route.Operation{Method: http.MethodGet, Path: base + path, Scope: key.RunsRead, ID: id, Tag: tag, Summary: summary}
	}
	route.JSON(t, get("/transcript", "get-run-transcript", "Tell the story of a run, one record a step"), s.transcript)
	route.JSON(t, get("/outline", "get-run-outline", "Say where things are in a run, one small record a step"), s.outline)
	route.JSON(t, get("/todos", "get-run-todos", "Get the agent's plan"), s.todos)
	route.JSON(t, get("/calls/{call}", "get-call", "Get a tool call, its arguments whole"), s.call)
	output := get("/calls/{call}/output", "read-call-output", "Read the whole output of a tool call, or a range of it")
	output.Sends = route.Bytes("application/octet-stream", "The output")
	route.Raw(t, output, s.callOutput)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/blobs/{hash}", Scope: key.RunsRead, ID: "read-blob", Tag: tag,
		Summary: "Read content that an event names by its hash", Sends: route.Bytes("application/octet-stream", "The content"),
	}, s.blob)
}

// events loads the run's events from its first on. Answers that were too large
// for an event are filled in.
func (f found) events(ctx context.Context) (iter.Seq2[thread.Event, error], error) {
	log, err := f.Log(ctx, f.tenant)
	if err != nil {
		return nil, err
	}
	blobs, err := f.Blobs(ctx, f.tenant)
	if err != nil {
		return nil, err
	}
	return func(yield func(thread.Event, error) bool) {
		for e, err := range log.Load(ctx, f.run.Thread, max(f.run.First, 1)) {
			if err == nil {
				e, err = whole(ctx, blobs, e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}, nil
}

// whole fills in an answer that is kept as a blob. One that is missing stays
// what it is: who looks at a run should see what there is of it.
func whole(ctx context.Context, blobs thread.Blobs, e thread.Event) (thread.Event, error) {
	b, is := e.Body.(thread.ModelCompleted)
	if !is || b.Blob == "" {
		return e, nil
	}
	data, err := blobs.Get(ctx, b.Blob)
	if errs.Is(err, errs.NotFound) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	var m llm.Message
	if err := json.Unmarshal(data, &m); err != nil {
		return e, errs.Wrap(errs.Corrupt, err, "event %d: the answer in blob %.64s cannot be read", e.Seq, b.Blob)
	}
	b.Message = m
	e.Body = b
	return e, nil
}

func (f found) fold(ctx context.Context) (*transcript.Fold, error) {
	return f.foldInto(ctx, transcript.New(f.run.Thread, f.run.ID))
}

func (f found) foldInto(ctx context.Context, fold *transcript.Fold) (*transcript.Fold, error) {
	events, err := f.events(ctx)
	if err != nil {
		return nil, err
	}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		fold.Add(e)
	}
	return fold, nil
}

type transcriptIn struct {
	RunPath
	Last   int `query:"last" minimum:"0" maximum:"1000" doc:"only so many steps, the last ones; default 100"`
	Before int `query:"before" minimum:"0" doc:"that stand before this step"`
}

type transcriptOut struct{ Body api.Transcript }

const transcriptLast = 100

func (s *service) transcript(ctx context.Context, in *transcriptIn) (*transcriptOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	fold, err := f.fold(ctx)
	if err != nil {
		return nil, err
	}
	if in.Last == 0 {
		in.Last = transcriptLast
	}
	return &transcriptOut{transcript.Page(fold.Transcript(), in.Last, in.Before)}, nil
}

type outlineIn struct {
	RunPath
	Last   int `query:"last" minimum:"0" maximum:"20000" doc:"only so many steps, the last ones; default 20000"`
	Before int `query:"before" minimum:"0" doc:"that stand before this step"`
}

type outlineOut struct{ Body api.RunOutline }

func (s *service) outline(ctx context.Context, in *outlineIn) (*outlineOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	fold, err := f.foldInto(ctx, transcript.NewBrief(f.run.Thread, f.run.ID))
	if err != nil {
		return nil, err
	}
	o := fold.Outline(in.Last, in.Before)
	return &outlineOut{o}, f.lookAtAgents(ctx, o.Agents)
}

// lookAtAgents says of sub-agents what the log above them does not: how far those are
// that go on, and how those ended that work in the background.
func (f found) lookAtAgents(ctx context.Context, agents []api.OutlineAgent) error {
	for i := range agents {
		a := &agents[i]
		running := a.State == string(thread.RunRunning)
		if !running && a.State != api.OutlineEnded {
			continue
		}
		page, err := f.List(ctx, f.tenant, runs.Filter{Thread: thread.ID(a.Thread), Subagents: true, PageSize: 1})
		if err != nil {
			return err
		}
		if len(page.Runs) == 0 {
			continue // it has no record yet
		}
		r := page.Runs[0] // the newest
		a.State = string(r.State)
		if running {
			a.Steps, a.CostUSD = r.Steps+r.Below, r.CostUSD
		}
	}
	return nil
}

type todosOut struct{ Body api.TodoList }

// todos reads the log: the run's record may lag behind it.
func (s *service) todos(ctx context.Context, in *RunPath) (*todosOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	fold, err := f.fold(ctx)
	if err != nil {
		return nil, err
	}
	items := fold.Transcript().Todos
	if items == nil {
		items = []api.Todo{}
	}
	return &todosOut{api.TodoList{Items: items}}, nil
}

// CallPath names a tool call of a run.
type CallPath struct {
	RunPath
	Call string `path:"call" maxLength:"64" doc:"id of the tool call"`
}

type callOut struct{ Body api.CallDetail }

func (s *service) call(ctx context.Context, in *CallPath) (*callOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	fold, err := f.fold(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := fold.Call(in.Call)
	if !ok {
		return nil, noCall(in.Call)
	}
	return &callOut{d}, nil
}

func noCall(id string) error {
	return errs.New(errs.NotFound, "the run has no call %.64q", id).WithHint("its transcript lists them")
}

// completed finds the result of a call; nil = it has none yet.
func (f found) completed(ctx context.Context, call string) (*thread.ToolCompleted, error) {
	log, err := f.Log(ctx, f.tenant)
	if err != nil {
		return nil, err
	}
	asked := false
	for e, err := range log.Load(ctx, f.run.Thread, max(f.run.First, 1)) {
		if err != nil {
			return nil, err
		}
		switch b := e.Body.(type) {
		case thread.ModelCompleted:
			for _, c := range b.Message.Calls() {
				asked = asked || c.ID == call
			}
		case thread.ToolCompleted:
			if b.Call == call {
				return &b, nil
			}
		}
	}
	if !asked {
		return nil, noCall(call)
	}
	return nil, nil
}

type callOutputIn struct {
	CallPath
	Offset int64  `query:"offset" minimum:"0" doc:"the first byte that is wanted"`
	Range  string `header:"Range" doc:"one range of bytes; counts from offset 0"`
}

func (s *service) callOutput(w http.ResponseWriter, r *http.Request, in *callOutputIn) error {
	ctx := r.Context()
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return err
	}
	done, err := f.completed(ctx, in.Call)
	if err != nil {
		return err
	}
	if done == nil {
		return errs.New(errs.Conflict, "the call %s has no output yet", in.Call).WithHint("follow the run's events with live=true to see it come")
	}
	if done.Blob != "" {
		return f.sendBlob(w, r, done.Blob, in.Offset, in.Range)
	}
	text := []byte(llm.Message{Blocks: done.Blocks}.String())
	return send(w, r, int64(len(text)), in.Offset, in.Range, func(p []byte, off int64) (int, error) {
		return copy(p, text[off:]), nil
	})
}

type blobIn struct {
	Hash   string `path:"hash" maxLength:"64" doc:"SHA-256, hex"`
	Offset int64  `query:"offset" minimum:"0" doc:"the first byte that is wanted"`
	Range  string `header:"Range" doc:"one range of bytes; counts from offset 0"`
}

var hashForm = pattern.Lazy(`^[0-9a-f]{64}$`)

func (s *service) blob(w http.ResponseWriter, r *http.Request, in *blobIn) error {
	k, tenant, err := s.supervisor(r.Context())
	if err != nil {
		return err
	}
	if !hashForm().MatchString(in.Hash) {
		return errs.New(errs.Invalid, "%.80q is not a hash", in.Hash)
	}
	return found{Supervisor: k, tenant: tenant}.sendBlob(w, r, in.Hash, in.Offset, in.Range)
}

func (f found) sendBlob(w http.ResponseWriter, r *http.Request, hash string, offset int64, ranges string) error {
	ctx := r.Context()
	blobs, err := f.Blobs(ctx, f.tenant)
	if err != nil {
		return err
	}
	var one [1]byte
	_, size, err := blobs.ReadAt(ctx, hash, one[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.Header().Set("ETag", strconv.Quote(hash))
	return send(w, r, size, offset, ranges, func(p []byte, off int64) (int, error) {
		n, _, err := blobs.ReadAt(ctx, hash, p, off)
		return n, err
	})
}

// chunkBytes is how much of an output is read at once.
const chunkBytes = 256 << 10

// send answers with the bytes of something that does not change.
func send(w http.ResponseWriter, r *http.Request, size, offset int64, ranges string, read func(p []byte, off int64) (int, error)) error {
	from, to, partial, err := window(size, offset, ranges)
	h := w.Header()
	if err != nil {
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		return err
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // an agent wrote it: never a page of this server
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(to-from, 10))
	status := http.StatusOK
	if partial {
		h.Set("Content-Range", "bytes "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(to-1, 10)+"/"+strconv.FormatInt(size, 10))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	buf := make([]byte, min(chunkBytes, to-from))
	for from < to {
		n, err := read(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 {
			route.Note(r, err)
			panic(http.ErrAbortHandler) // half of it must not look whole
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return nil // the client is gone
		}
		from += int64(n)
	}
	return nil
}

var rangeForm = pattern.Lazy(`^bytes=([0-9]{0,18})-([0-9]{0,18})$`)

// window is what part of size bytes is meant. An offset at the end is empty
// and no error: so a reader that asks for more is told that there is none.
func window(size, offset int64, ranges string) (from, to int64, partial bool, err error) {
	if ranges == "" {
		if offset > size {
			return 0, 0, false, unsatisfiable(size)
		}
		return offset, size, false, nil
	}
	if offset != 0 {
		return 0, 0, false, errs.New(errs.Invalid, "offset or Range, not both")
	}
	m := rangeForm().FindStringSubmatch(ranges)
	if m == nil || m[1]+m[2] == "" {
		return 0, 0, false, unsatisfiable(size)
	}
	first, _ := strconv.ParseInt(m[1], 10, 64)
	last, _ := strconv.ParseInt(m[2], 10, 64)
	switch {
	case m[1] == "": // the last bytes
		first, last = max(0, size-last), size-1
	case m[2] == "":
		last = size - 1
	}
	last = min(last, size-1)
	if first > last {
		return 0, 0, false, unsatisfiable(size)
	}
	return first, last + 1, true, nil
}

func unsatisfiable(size int64) error {
	return problem.At(http.StatusRequestedRangeNotSatisfiable, errs.New(errs.Invalid, "there are %d bytes", size))
}
