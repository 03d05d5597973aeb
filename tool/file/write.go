package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/tool"
)

// Bounds of changes.
const (
	editBytesMax = 16 << 20 // of a file that edit_file changes
	triesMax     = 100      // of an edit whose file others change all the time
	hashBytesMax = 16 << 20
)

// plan is what tool.started keeps of a write: the file's hash before it and
// after it.
type plan struct {
	Before string `json:"before"` // tool.Absent = no file; "" = not known
	After  string `json:"after"`
}

func (p plan) json() json.RawMessage {
	b, _ := json.Marshal(p) // two strings
	return b
}

func parsePlan(raw json.RawMessage) (plan, bool) {
	var p plan
	return p, json.Unmarshal(raw, &p) == nil && p.After != ""
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// hash returns what a plan calls the file's content now.
func (b base) hash(ctx context.Context, p string) (string, error) {
	info, err := b.env.Files.Stat(ctx, p)
	if codeOf(err) == tool.CodeNotFound {
		return tool.Absent, nil
	}
	if err != nil {
		return "", err
	}
	if info.Dir {
		return "", &tool.FileError{Code: tool.CodeIsDirectory, Path: p}
	}
	if info.Hash != "" || info.Bytes > hashBytesMax {
		return info.Hash, nil
	}
	_, hash, err := b.env.Files.Read(ctx, p, hashBytesMax)
	switch codeOf(err) {
	case tool.CodeNotFound:
		return tool.Absent, nil
	case tool.CodeDenied, tool.CodeTooLarge:
		return "", nil // it may be writable all the same
	}
	return hash, err
}

func codeOf(err error) string {
	if fe, ok := errors.AsType[*tool.FileError](err); ok {
		return fe.Code
	}
	return ""
}

// ended is failed for those who return a result only when it ends the call.
func ended(err error) (*tool.Result, error) {
	r, err := failed(err)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// unsure is the answer when a call is run again and the file is neither as it
// was before nor as it would be after.
func unsure(p string) tool.Result {
	return whole(tool.Fail(tool.CodeInterrupted, "Error: interrupted: this call was interrupted, and "+show(p)+
		" has changed since; whether it was done cannot be known. Read the file before you go on"))
}

// write creates a file or replaces its content.
type write struct{ base }

type writeArgs struct {
	FilePath string `json:"file_path"`
	Content  string `json:"content"`
}

// Effect implements tool.Tool.
func (write) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[writeArgs](args)
	return writes(a.FilePath)
}

func (t write) args(req tool.Request) (writeArgs, *tool.Result) {
	a, bad := decode[writeArgs](req.Args)
	if bad == nil {
		a.FilePath, bad = t.clean(a.FilePath)
	}
	return a, bad
}

// Plan implements tool.Planner.
func (t write) Plan(ctx context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return nil, bad, nil
	}
	before, err := t.hash(ctx, a.FilePath)
	if err != nil {
		bad, err := ended(err)
		return nil, bad, err
	}
	return plan{Before: before, After: hashOf([]byte(a.Content))}.json(), nil, nil
}

// Run implements tool.Tool.
func (t write) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return *bad, nil
	}
	p, planned := parsePlan(req.Plan)
	if !planned {
		p = plan{After: hashOf([]byte(a.Content))}
	}
	if req.Again {
		done, r, err := t.again(ctx, a.FilePath, p)
		if err != nil || r != nil {
			return answer(r, err)
		}
		if done {
			return t.done(a, p), nil
		}
	}
	hash, err := t.env.Files.Write(ctx, a.FilePath, []byte(a.Content), p.Before)
	if codeOf(err) == tool.CodeConflict {
		return whole(tool.Fail(tool.CodeConflict, "Error: conflict: "+show(a.FilePath)+" was changed by another writer in this moment; it was not written. Read it before you write it again")), nil
	}
	if err != nil {
		return failed(err)
	}
	if hash != p.After {
		return tool.Result{}, fmt.Errorf("write %s: the backend has another hash than what was written", a.FilePath)
	}
	return t.done(a, p), nil
}

func answer(r *tool.Result, err error) (tool.Result, error) {
	if r != nil {
		return *r, err
	}
	return tool.Result{}, err
}

// Settle implements tool.Settler.
func (t write) Settle(ctx context.Context, req tool.Request) (*tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return bad, nil
	}
	return t.settle(ctx, a.FilePath, req.Plan, func(p plan) tool.Result { return t.done(a, p) })
}

// settle says what an earlier run did; nil: nothing, or it is not known.
func (b base) settle(ctx context.Context, file string, raw json.RawMessage, result func(plan) tool.Result) (*tool.Result, error) {
	p, ok := parsePlan(raw)
	if !ok {
		return nil, nil
	}
	done, r, err := b.again(ctx, file, p)
	if err != nil || r != nil || !done {
		return r, err
	}
	out := result(p)
	return &out, nil
}

// again says whether an earlier run of the call was done. A result that is
// not nil ends the call.
func (b base) again(ctx context.Context, file string, p plan) (done bool, end *tool.Result, err error) {
	now, err := b.hash(ctx, file)
	if err != nil {
		end, err = ended(err)
		return false, end, err
	}
	switch {
	case now == p.After:
		return true, nil, nil
	case p.Before != "" && now == p.Before:
		return false, nil, nil
	}
	r := unsure(file)
	return false, &r, nil
}

func (write) done(a writeArgs, p plan) tool.Result {
	verb := "Updated"
	if p.Before == tool.Absent {
		verb = "Created"
	}
	return whole(tool.Text(fmt.Sprintf("%s file %s (%d bytes)", verb, show(a.FilePath), len(a.Content))))
}

// edit replaces a text in a file.
type edit struct{ base }

type editArgs struct {
	FilePath string `json:"file_path"`
	replacement
	// Edits are several, one after the other, in place of the one above: all are
	// made, or none.
	Edits []replacement `json:"edits"`
}

type replacement struct {
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all"`
}

// Effect implements tool.Tool.
func (edit) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[editArgs](args)
	return writes(a.FilePath)
}

func (t edit) args(req tool.Request) (editArgs, *tool.Result) {
	a, bad := decode[editArgs](req.Args)
	if bad == nil {
		a.FilePath, bad = t.clean(a.FilePath)
	}
	switch {
	case bad != nil:
		return a, bad
	case len(a.Edits) > 0 && a.replacement != (replacement{}):
		return a, refuse("Error: either edits, or old_string and new_string")
	case len(a.Edits) == 0:
		a.Edits = []replacement{a.replacement}
	}
	for i, e := range a.Edits {
		switch e.OldString {
		case "":
			return a, refuse(a.which(i) + "old_string is empty; use write_file to make a file")
		case e.NewString:
			return a, refuse(a.which(i) + "old_string and new_string are the same; nothing would change")
		}
	}
	return a, nil
}

// which begins an error about one of several edits.
func (a editArgs) which(i int) string {
	if len(a.Edits) == 1 {
		return "Error: "
	}
	return fmt.Sprintf("Error: edit %d of %d: ", i+1, len(a.Edits))
}

func refuse(text string) *tool.Result {
	r := whole(tool.Fail(tool.CodeArgs, text))
	return &r
}

// change reads the file and replaces in memory.
type change struct {
	plan
	content []byte
	times   int
}

func (t edit) change(ctx context.Context, a editArgs) (change, *tool.Result, error) {
	content, hash, err := t.env.Files.Read(ctx, a.FilePath, editBytesMax)
	if err != nil {
		bad, err := ended(err)
		return change{}, bad, err
	}
	text, times := string(content), 0
	for i, e := range a.Edits {
		var n int
		var wrong string
		if text, n, wrong = replace(text, e); wrong != "" {
			return change{}, refuse(a.which(i) + wrong), nil
		}
		times += n
	}
	if len(a.Edits) > 1 && text == string(content) {
		return change{}, refuse("Error: together the edits change nothing"), nil
	}
	return change{plan{hash, hashOf([]byte(text))}, []byte(text), times}, nil, nil
}

// replace is the edit itself. In a file with CRLF, lines of the model's that
// end in LF mean the same.
func replace(text string, a replacement) (changed string, times int, wrong string) {
	old, with := a.OldString, a.NewString
	times = strings.Count(text, old)
	if times == 0 && strings.Contains(text, "\r\n") && strings.Contains(old, "\n") && !strings.Contains(old, "\r") {
		old, with = strings.ReplaceAll(old, "\n", "\r\n"), strings.ReplaceAll(strings.ReplaceAll(with, "\r\n", "\n"), "\n", "\r\n")
		times = strings.Count(text, old)
	}
	switch {
	case times == 0:
		return "", 0, fmt.Sprintf("String not found in file: '%s'", clip.Text(a.OldString, 500))
	case times > 1 && !a.ReplaceAll:
		return "", 0, fmt.Sprintf("String '%s' appears %d times in file. Use replace_all=true to replace all instances, or provide a more specific string with surrounding context", clip.Text(a.OldString, 500), times)
	case len(text)+times*(len(with)-len(old)) > editBytesMax:
		return "", 0, fmt.Sprintf("the file would have more than %d bytes", editBytesMax)
	}
	return strings.ReplaceAll(text, old, with), times, ""
}

// Plan implements tool.Planner.
func (t edit) Plan(ctx context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return nil, bad, nil
	}
	c, bad, err := t.change(ctx, a)
	if err != nil || bad != nil {
		return nil, bad, err
	}
	return c.json(), nil, nil
}

// Run implements tool.Tool. Others may change the file between the plan and
// the write, or all the time: as long as this call cannot have been done, it
// reads again and edits what is there now.
func (t edit) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return *bad, nil
	}
	if req.Again {
		p, ok := parsePlan(req.Plan)
		if !ok {
			return unsure(a.FilePath), nil
		}
		done, r, err := t.again(ctx, a.FilePath, p)
		if err != nil || r != nil {
			return answer(r, err)
		}
		if done {
			return edited(a, 0), nil
		}
	}
	for range triesMax {
		c, bad, err := t.change(ctx, a)
		if err != nil || bad != nil {
			return answer(bad, err)
		}
		_, err = t.env.Files.Write(ctx, a.FilePath, c.content, c.Before)
		if err == nil {
			return edited(a, c.times), nil
		}
		if codeOf(err) != tool.CodeConflict || req.Again {
			return failed(err)
		}
	}
	return whole(tool.Fail(tool.CodeConflict, "Error: conflict: "+show(a.FilePath)+" is changed by others all the time; it was not edited")), nil
}

// Settle implements tool.Settler.
func (t edit) Settle(ctx context.Context, req tool.Request) (*tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return bad, nil
	}
	return t.settle(ctx, a.FilePath, req.Plan, func(plan) tool.Result { return edited(a, 0) })
}

// edited tells about a done edit; times 0: by an earlier run.
func edited(a editArgs, times int) tool.Result {
	if times == 0 {
		return whole(tool.Text("Successfully edited " + show(a.FilePath)))
	}
	if n := len(a.Edits); n > 1 {
		return whole(tool.Text(fmt.Sprintf("Successfully made %d edits with %d replacements in '%s'", n, times, show(a.FilePath))))
	}
	return whole(tool.Text(fmt.Sprintf("Successfully replaced %d instance(s) of the string in '%s'", times, show(a.FilePath))))
}
