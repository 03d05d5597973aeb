package inside

import (
	"context"
	"encoding/json"
	"io"
	"iter"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file has, for the agent, what stays on the host. All of it is safe for concurrent
// use, and fails as Unavailable when the connection breaks.

// log is the log of the one thread.
type log struct{ remote }

// Append implements thread.Log.
func (l log) Append(ctx context.Context, _ thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	var appended []thread.Event
	if err := l.call(ctx, "append", []any{after, events}, &appended); err != nil {
		return 0, err
	}
	if len(appended) != len(events) {
		return 0, errs.New(errs.Invalid, "%d events were appended, not %d", len(appended), len(events))
	}
	copy(events, appended)
	return after + uint64(len(events)), nil
}

// Load implements thread.Log.
func (l log) Load(ctx context.Context, _ thread.ID, from uint64) iter.Seq2[thread.Event, error] {
	return func(yield func(thread.Event, error) bool) {
		for {
			var p page
			if err := l.call(ctx, "load", []any{from}, &p); err != nil {
				yield(thread.Event{}, err)
				return
			}
			for _, e := range p.Events {
				if !yield(e, nil) {
					return
				}
				from = e.Seq + 1
			}
			if !p.More || len(p.Events) == 0 {
				return
			}
		}
	}
}

// Watch, Head, List and Delete are nothing that an agent in a sandbox does.
func (l log) Watch(context.Context, thread.ID, uint64) iter.Seq2[thread.Event, error] {
	return func(yield func(thread.Event, error) bool) { yield(thread.Event{}, errNotHere) }
}
func (l log) Head(context.Context, thread.ID) (uint64, error) { return 0, errNotHere } // Head: see Watch.
func (l log) List(context.Context, thread.ID) iter.Seq2[thread.ID, error] { // List: see Watch.
	return func(yield func(thread.ID, error) bool) { yield("", errNotHere) }
}
func (l log) Delete(context.Context, thread.ID) error { return errNotHere } // Delete: see Watch.

var errNotHere = errs.New(errs.Unsupported, "an agent in a sandbox cannot do this")

// blobs are those of the tenant, whose hash the agent knows.
type blobs struct{ remote }

// Put implements thread.Blobs.
func (b blobs) Put(ctx context.Context, content []byte) (hash string, err error) {
	return hash, b.call(ctx, "put", []any{content}, &hash)
}

// Get implements thread.Blobs.
func (b blobs) Get(ctx context.Context, hash string) (content []byte, err error) {
	return content, b.call(ctx, "get", []any{hash}, &content)
}

// ReadAt implements thread.Blobs.
func (b blobs) ReadAt(ctx context.Context, hash string, p []byte, off int64) (int, int64, error) {
	var c chunk
	if err := b.call(ctx, "read", []any{hash, off, len(p)}, &c); err != nil {
		return 0, 0, err
	}
	n := copy(p, c.Data)
	if c.EOF || n < len(p) {
		return n, c.Size, io.EOF
	}
	return n, c.Size, nil
}

// model is the run's.
type model struct {
	p    *peer
	info llm.Info
}

// Info implements llm.Model.
func (m model) Info() llm.Info { return m.info }

// Stream implements llm.Model.
func (m model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		var a answer
		err := m.p.Call(ctx, methodModel, req, &a, func(data json.RawMessage) error {
			var d llm.Delta
			if err := json.Unmarshal(data, &d); err != nil {
				return err
			}
			if !yield(d, nil) {
				return errLeft
			}
			return nil
		})
		switch {
		case err == errLeft: //nolint:errorlint // it is ours, and nothing wraps it
		case ended(ctx, err):
			yield(llm.Delta{}, context.Cause(ctx))
		case err != nil && llm.TroubleOf(err) == "" && errs.Temporary(err):
			yield(llm.Delta{}, &llm.Error{Trouble: llm.Transport, Model: m.info.Name, Cause: err})
		case err != nil:
			yield(llm.Delta{}, err)
		default:
			yield(llm.Delta{Kind: llm.DeltaDone, Response: &llm.Response{Message: a.Message, Usage: a.Usage, Stop: a.Stop, Model: a.Model}}, nil)
		}
	}
}

// errLeft: the caller of Stream left the loop.
var errLeft = errs.New(errs.Unavailable, "nothing more is wanted")

// files are /memories.
type files struct{ remote }

// List implements tool.Files.
func (f files) List(ctx context.Context, dir string) (list []tool.FileInfo, err error) {
	return list, f.call(ctx, "list", []any{dir}, &list)
}

// Stat implements tool.Files.
func (f files) Stat(ctx context.Context, path string) (info tool.FileInfo, err error) {
	return info, f.call(ctx, "stat", []any{path}, &info)
}

// Read implements tool.Files.
func (f files) Read(ctx context.Context, path string, max int64) (content []byte, hash string, err error) {
	return content, hash, f.call(ctx, "read", []any{path, max}, &content, &hash)
}

// ReadAt implements tool.Files.
func (f files) ReadAt(ctx context.Context, path string, off int64, max int) (content []byte, bytes int64, err error) {
	return content, bytes, f.call(ctx, "readat", []any{path, off, max}, &content, &bytes)
}

// Write implements tool.Files.
func (f files) Write(ctx context.Context, path string, content []byte, ifHash string) (hash string, err error) {
	return hash, f.call(ctx, "write", []any{path, content, ifHash}, &hash)
}

// Delete implements tool.Files.
func (f files) Delete(ctx context.Context, path string) error {
	return f.call(ctx, "delete", []any{path})
}

// Glob implements tool.Files.
func (f files) Glob(ctx context.Context, dir, pattern string, limit int) (list []tool.FileInfo, truncated bool, err error) {
	return list, truncated, f.call(ctx, "glob", []any{dir, pattern, limit}, &list, &truncated)
}

// Grep implements tool.Files.
func (f files) Grep(ctx context.Context, dir string, pattern tool.Pattern, glob string, limit int) (list []tool.Match, truncated bool, err error) {
	return list, truncated, f.call(ctx, "grep", []any{dir, pattern, glob, limit}, &list, &truncated)
}

// past is the history of the machine's files.
type past struct{ remote }

// Revisions implements tool.Past.
func (p past) Revisions(ctx context.Context, path string, last int) (list []tool.PastRevision, more bool, err error) {
	return list, more, p.call(ctx, "revisions", []any{path, last}, &list, &more)
}

// Diff implements tool.Past.
func (p past) Diff(ctx context.Context, from, to uint64, path string, bytesMax int) (text string, err error) {
	return text, p.call(ctx, "diff", []any{from, to, path, bytesMax}, &text)
}

// Content implements tool.Past.
func (p past) Content(ctx context.Context, n uint64, path string, bytesMax int64) (content []byte, err error) {
	return content, p.call(ctx, "content", []any{n, path, bytesMax}, &content)
}

// PlanUndo implements tool.Past.
func (p past) PlanUndo(ctx context.Context, u tool.PastUndo) (plan tool.PastPlan, err error) {
	return plan, p.call(ctx, "plan", []any{u}, &plan)
}

// Undo implements tool.Past.
func (p past) Undo(ctx context.Context, plan string, by tool.PastRevision) (n uint64, kept []string, err error) {
	return n, kept, p.call(ctx, "undo", []any{plan, by}, &n, &kept)
}

// tasks are the thread's sub-agents.
type tasks struct{ remote }

// Spawn implements tool.Spawner.
func (t tasks) Spawn(ctx context.Context, req tool.SpawnRequest) (r tool.SpawnResult, err error) {
	return r, t.call(ctx, "spawn", []any{req}, &r)
}

// Task implements tool.Tasks.
func (t tasks) Task(ctx context.Context, _ thread.ID, id string) (task tool.Task, err error) {
	return task, t.call(ctx, "task", []any{id}, &task)
}

// Tasks implements tool.Tasks.
func (t tasks) Tasks(ctx context.Context, _ thread.ID) (list []tool.Task, err error) {
	return list, t.call(ctx, "tasks", nil, &list)
}

// Send implements tool.Tasks.
func (t tasks) Send(ctx context.Context, _ thread.ID, id, key, text string) error {
	return t.call(ctx, "send", []any{id, key, text})
}

// Cancel implements tool.Tasks.
func (t tasks) Cancel(ctx context.Context, _ thread.ID, id, key string) error {
	return t.call(ctx, "cancel", []any{id, key})
}

// skills are those of the run.
type skills struct {
	remote
	unlisted int
}

// Learn implements tool.Skills.
func (s skills) Learn(ctx context.Context, name string) (l tool.Lesson, err error) {
	return l, s.call(ctx, "learn", []any{name}, &l)
}

// Unlisted implements tool.Skills.
func (s skills) Unlisted() int { return s.unlisted }

// Find implements tool.Skills.
func (s skills) Find(ctx context.Context, query string) (list []tool.SkillEntry, err error) {
	return list, s.call(ctx, "find", []any{query}, &list)
}

// tell is agent.Parts.TellSkills.
func (s skills) tell(ctx context.Context, about *thread.Context) error {
	var t told
	err := s.call(ctx, "tell", nil, &t)
	about.Skills, about.Pinned = t.Skills, t.Pinned
	return err
}
