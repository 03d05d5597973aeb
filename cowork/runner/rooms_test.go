package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// said is what a model's text means that is no answer: "CALL tool {args}", or "FAIL why".
func said(text string) (*llm.Response, error) {
	if why, is := strings.CutPrefix(text, "FAIL "); is {
		return nil, errs.New(errs.Denied, "%s", why)
	}
	call, is := strings.CutPrefix(text, "CALL ")
	if !is {
		return nil, nil
	}
	name, args, _ := strings.Cut(call, " ")
	block := llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "call_1", Name: name, Args: json.RawMessage(args)}}
	return &llm.Response{Message: llm.Assistant(block), Stop: llm.StopTools, Usage: llm.Usage{Input: 1, Output: 1}}, nil
}

// writes is a call by which a model writes a file, unless it did.
func writes(req *llm.Request, path, content, then string) string {
	if isResults(req.Messages[len(req.Messages)-1]) {
		return then
	}
	args, _ := json.Marshal(map[string]string{"file_path": "/workspace/" + path, "content": content})
	return "CALL write_file " + string(args)
}

// rooms are machines with files, and no more. They outlive servers.
type rooms struct {
	mu    sync.Mutex
	byKey map[string]string
	files map[string]map[string][]byte // by id, then path; nil = it is gone
	seed  map[string][]byte            // in each that is made
	specs map[string]map[string]any
	most  int // at once; 0 = any
	away  bool
	stops []string
	// late, if set, holds machines up that are removed until it is closed, as it is when there
	// was no place for another one.
	late chan struct{}
	// full, if set, says whether a file still fits.
	full func(id, path string) bool
}

func newRooms() *rooms {
	return &rooms{byKey: map[string]string{}, files: map[string]map[string][]byte{}, specs: map[string]map[string]any{}, seed: map[string][]byte{}}
}

// there are the machines that are not gone.
func (r *rooms) there() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.files))
}

func (r *rooms) made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}

func (r *rooms) content(id, path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.files[id]["/workspace/"+path])
}

// Check implements runner.Machines.
func (r *rooms) Check(spec map[string]any) error {
	if spec["template"] == "none" {
		return errs.New(errs.NotFound, "no template none")
	}
	return nil
}

// Make implements runner.Machines.
func (r *rooms) Make(_ context.Context, _, key string, spec map[string]any) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := r.byKey[key]; id != "" {
		return id, nil
	}
	if r.away {
		return "", errs.New(errs.Unavailable, "no machine can be made just now")
	}
	if r.most > 0 && len(r.files) >= r.most {
		if r.late != nil {
			close(r.late)
			r.late = nil
		}
		return "", errs.New(errs.Limit, "the tenant has %d sandboxes, at most %d", len(r.files), r.most)
	}
	id := fmt.Sprintf("sbx_%d", len(r.byKey)+1)
	r.byKey[key], r.specs[id], r.files[id] = id, spec, maps.Clone(r.seed)
	return id, nil
}

// CopyNow implements runner.Machines.
func (r *rooms) CopyNow(_ context.Context, _, from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[to] = maps.Clone(r.files[from])
	return nil
}

// Files implements runner.Machines.
func (r *rooms) Files(_ context.Context, _, id string) (tool.Files, string, func(), error) {
	if !slices.Contains(r.there(), id) {
		return nil, "", nil, errs.New(errs.NotFound, "no sandbox %s", id)
	}
	return roomFiles{nil, r, id}, "/workspace", func() {}, nil
}

// Stop implements runner.Machines.
func (r *rooms) Stop(_ context.Context, _, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, id)
	return nil
}

// Destroy implements runner.Machines.
func (r *rooms) Destroy(_ context.Context, _, id string) error {
	r.mu.Lock()
	late := r.late
	r.mu.Unlock()
	if late != nil {
		<-late
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.files, id)
	return nil
}

// Create implements supervisor.Machines.
func (r *rooms) Create(ctx context.Context, tenant, key string, _ thread.RunID, _ string, spec map[string]any) (string, error) {
	return r.Make(ctx, tenant, key, spec)
}

// Enter implements supervisor.Machines.
func (r *rooms) Enter(_ context.Context, _, id string, _ thread.RunID, _ string, _ bool) error {
	if !slices.Contains(r.there(), id) {
		return errs.New(errs.NotFound, "no sandbox %s", id)
	}
	return nil
}

// Leave implements supervisor.Machines.
func (r *rooms) Leave(context.Context, string, thread.RunID, definition.AfterRun) error { return nil }

// Entered implements supervisor.Machines.
func (r *rooms) Entered(func(string, thread.RunID)) {}

// Open implements supervisor.Machines.
func (r *rooms) Open(ctx context.Context, tenant, id string) (agent.Machine, func(), error) {
	files, dir, release, err := r.Files(ctx, tenant, id)
	return agent.Machine{Boot: "b", Dir: dir, Files: files}, release, err
}

// Copy implements supervisor.Machines.
func (r *rooms) Copy(ctx context.Context, tenant, from, to string, _ func(agent.Mark) supervisor.When) error {
	return r.CopyNow(ctx, tenant, from, to)
}

// Restore implements supervisor.Machines.
func (r *rooms) Restore(context.Context, string, string, func(agent.Mark) supervisor.When, string) ([]runs.Change, error) {
	return nil, errs.New(errs.Unsupported, "no history is kept")
}

// roomFiles are the files of one machine; of tool.Files it has what is used here.
type roomFiles struct {
	tool.Files
	r  *rooms
	id string
}

func (f roomFiles) find(path string) (tool.FileInfo, []byte, error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	content, is := f.r.files[f.id][path]
	if !is {
		return tool.FileInfo{}, nil, &tool.FileError{Code: tool.CodeNotFound, Path: path}
	}
	sum := sha256.Sum256(content)
	return tool.FileInfo{Path: path, Bytes: int64(len(content)), Hash: hex.EncodeToString(sum[:])}, content, nil
}

// Stat implements tool.Files.
func (f roomFiles) Stat(_ context.Context, path string) (tool.FileInfo, error) {
	info, _, err := f.find(path)
	return info, err
}

// Read implements tool.Files.
func (f roomFiles) Read(_ context.Context, path string, most int64) ([]byte, string, error) {
	info, content, err := f.find(path)
	if err == nil && info.Bytes > most {
		err = &tool.FileError{Code: tool.CodeTooLarge, Path: path}
	}
	return content, info.Hash, err
}

// Write implements tool.Files.
func (f roomFiles) Write(_ context.Context, path string, content []byte, ifHash string) (string, error) {
	info, _, err := f.find(path)
	if ifHash == tool.Absent && err == nil || ifHash != "" && ifHash != tool.Absent && info.Hash != ifHash {
		return "", &tool.FileError{Code: tool.CodeConflict, Path: path}
	}
	f.r.mu.Lock()
	if f.r.full != nil && f.r.full(f.id, path) {
		f.r.mu.Unlock()
		return "", errs.New(errs.Limit, "no space is left on the disk of %s", f.id)
	}
	f.r.files[f.id][path] = content
	f.r.mu.Unlock()
	info, _, err = f.find(path)
	return info.Hash, err
}
