package file

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/tool"
)

// This file has apply_patch, for models that were trained on its form of patches: files
// to add, to delete, and to update by hunks that are found by their lines and not by
// numbers.
//
//	*** Begin Patch
//	*** Update File: sum.go
//	@@ func sum(a, b int) int {
//	-	return a - b
//	+	return a + b
//	*** End Patch

// Bounds of a patch.
const (
	patchFilesMax = 50
	patchHunksMax = 500
)

// patchOp is what a patch does with a file.
type patchOp string

const (
	patchAdd    patchOp = "add"
	patchDelete patchOp = "delete"
	patchUpdate patchOp = "update"
)

// filePatch is the part of a patch that is about one file.
type filePatch struct {
	Op     patchOp
	Path   string
	MoveTo string   // with patchUpdate
	Lines  []string // with patchAdd
	Hunks  []hunk   // with patchUpdate
}

// hunk replaces lines.
type hunk struct {
	// After are lines before which it does not stand, each further down than the last.
	After    []string
	Old, New []string
	AtEnd    bool // of the file
}

// Marks of a patch.
const (
	markBegin  = "*** Begin Patch"
	markEnd    = "*** End Patch"
	markAdd    = "*** Add File: "
	markDelete = "*** Delete File: "
	markUpdate = "*** Update File: "
	markMove   = "*** Move to: "
	markEOF    = "*** End of File"
)

// parsePatch takes a patch apart. The error is for the model.
func parsePatch(text string) ([]filePatch, error) {
	p := patchParser{lines: strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n"), "\n")}
	if len(p.lines) < 2 || strings.TrimSpace(p.lines[0]) != markBegin || strings.TrimSpace(p.lines[len(p.lines)-1]) != markEnd {
		return nil, fmt.Errorf("a patch begins with the line %q and ends with the line %q", markBegin, markEnd)
	}
	p.lines, p.at = p.lines[:len(p.lines)-1], 1
	for p.at < len(p.lines) {
		if strings.TrimSpace(p.lines[p.at]) == "" {
			p.at++
			continue
		}
		if err := p.file(); err != nil {
			return nil, err
		}
	}
	if len(p.files) == 0 {
		return nil, fmt.Errorf("the patch is empty")
	}
	return p.files, nil
}

type patchParser struct {
	lines []string
	at    int
	hunks int
	files []filePatch
}

// file reads the part about one file.
func (p *patchParser) file() error {
	head := p.lines[p.at]
	f := filePatch{}
	for mark, op := range map[string]patchOp{markAdd: patchAdd, markDelete: patchDelete, markUpdate: patchUpdate} {
		if name, ok := strings.CutPrefix(head, mark); ok {
			f.Op, f.Path = op, strings.TrimSpace(name)
		}
	}
	switch {
	case f.Op == "":
		return fmt.Errorf("line %d: expected *** Add File, *** Delete File or *** Update File, got %q", p.at+1, clip.Text(head, 80))
	case len(p.files) == patchFilesMax:
		return fmt.Errorf("a patch is about at most %d files", patchFilesMax)
	}
	p.at++
	var err error
	switch f.Op {
	case patchAdd:
		err = p.added(&f)
	case patchUpdate:
		err = p.updated(&f)
	}
	p.files = append(p.files, f)
	return err
}

// next returns the next line of the part about a file; false: it ends here.
func (p *patchParser) next() (string, bool) {
	if p.at == len(p.lines) {
		return "", false
	}
	line := p.lines[p.at]
	for _, mark := range []string{markAdd, markDelete, markUpdate} {
		if strings.HasPrefix(line, mark) {
			return "", false
		}
	}
	p.at++
	return line, true
}

func (p *patchParser) added(f *filePatch) error {
	for {
		line, more := p.next()
		if !more {
			return nil
		}
		text, ok := strings.CutPrefix(line, "+")
		if !ok {
			return fmt.Errorf("line %d: each line of an added file begins with +, this one is %q", p.at, clip.Text(line, 80))
		}
		f.Lines = append(f.Lines, text)
	}
}

func (p *patchParser) updated(f *filePatch) error {
	if p.at < len(p.lines) {
		if name, ok := strings.CutPrefix(p.lines[p.at], markMove); ok {
			f.MoveTo = strings.TrimSpace(name)
			p.at++
		}
	}
	var h *hunk
	begin := func() *hunk {
		f.Hunks = append(f.Hunks, hunk{})
		p.hunks++
		return &f.Hunks[len(f.Hunks)-1]
	}
	for {
		line, more := p.next()
		if !more {
			break
		}
		if h == nil || strings.HasPrefix(line, "@@") && len(h.Old)+len(h.New) > 0 {
			h = begin()
		}
		if p.hunks > patchHunksMax {
			return fmt.Errorf("a patch has at most %d hunks", patchHunksMax)
		}
		if err := h.take(line, p.at); err != nil {
			return err
		}
	}
	for i, h := range f.Hunks {
		if slices.Equal(h.Old, h.New) {
			return fmt.Errorf("hunk %d of %s changes nothing", i+1, show(f.Path))
		}
	}
	if len(f.Hunks) == 0 && f.MoveTo == "" {
		return fmt.Errorf("the update of %s has no hunk", show(f.Path))
	}
	return nil
}

func (h *hunk) take(line string, at int) error {
	switch {
	case strings.HasPrefix(line, "@@"):
		if after := strings.TrimSpace(strings.Trim(line, "@")); after != "" {
			h.After = append(h.After, after)
		}
	case strings.TrimSpace(line) == markEOF:
		h.AtEnd = true
	case line == "":
		h.Old, h.New = append(h.Old, ""), append(h.New, "")
	case line[0] == ' ':
		h.Old, h.New = append(h.Old, line[1:]), append(h.New, line[1:])
	case line[0] == '-':
		h.Old = append(h.Old, line[1:])
	case line[0] == '+':
		h.New = append(h.New, line[1:])
	default:
		return fmt.Errorf("line %d: a line of a hunk begins with a space, - or +, this one is %q", at, clip.Text(line, 80))
	}
	return nil
}

// apply makes the hunks in a text. What a file's lines end with stays.
func (f filePatch) apply(text string) (string, error) {
	crlf := strings.Contains(text, "\r\n")
	if crlf {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	ended := text == "" || strings.HasSuffix(text, "\n")
	var lines []string
	if text != "" {
		lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	var out []string
	done := 0 // lines that are in out
	for i, h := range f.Hunks {
		at, wrong := h.find(lines, done)
		if wrong != "" {
			return "", fmt.Errorf("hunk %d of %s: %s", i+1, show(f.Path), wrong)
		}
		out = append(append(out, lines[done:at]...), h.New...)
		done = at + len(h.Old)
	}
	out = append(out, lines[done:]...)
	changed := strings.Join(out, "\n")
	if ended && len(out) > 0 {
		changed += "\n"
	}
	if crlf {
		changed = strings.ReplaceAll(changed, "\n", "\r\n")
	}
	return changed, nil
}

// find returns where a hunk's old lines stand, from a line on.
func (h hunk) find(lines []string, from int) (at int, wrong string) {
	for _, after := range h.After {
		found := slices.IndexFunc(lines[from:], func(l string) bool { return strings.TrimSpace(l) == after })
		if found < 0 {
			found = slices.IndexFunc(lines[from:], func(l string) bool { return strings.Contains(l, after) })
		}
		if found < 0 {
			return 0, fmt.Sprintf("there is no line %q after line %d", clip.Text(after, 80), from)
		}
		from += found + 1
	}
	if len(h.Old) == 0 { // only additions: behind the line that was named, else at the end
		if len(h.After) > 0 && !h.AtEnd {
			return from, ""
		}
		return len(lines), ""
	}
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b },
		func(a, b string) bool { return strings.TrimRight(a, " \t") == strings.TrimRight(b, " \t") },
		func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) },
	} {
		if at := h.among(lines, from, same); at >= 0 {
			return at, ""
		}
	}
	return 0, fmt.Sprintf("these lines are not in the file after line %d, read it again:\n%s", from, clip.Text(strings.Join(h.Old, "\n"), 500))
}

func (h hunk) among(lines []string, from int, same func(a, b string) bool) int {
	last := len(lines) - len(h.Old)
	if h.AtEnd {
		from = max(from, last)
	}
	for at := from; at <= last; at++ {
		if slices.EqualFunc(lines[at:at+len(h.Old)], h.Old, same) {
			return at
		}
	}
	return -1
}

// applyPatch changes several files.
type applyPatch struct{ base }

type patchArgs struct {
	Patch string `json:"patch"`
}

// patchPlan is what tool.started keeps: each file's hash before and after.
type patchPlan struct {
	Files []plannedFile `json:"files"`
}

type plannedFile struct {
	Path string `json:"path"`
	plan
}

// fileChange is what becomes of one file; content nil = it is deleted.
type fileChange struct {
	plannedFile
	content []byte
	verb    string
}

// Effect implements tool.Tool.
func (t applyPatch) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[patchArgs](args)
	e := tool.Effect{Class: tool.Keyed}
	files, err := parsePatch(a.Patch)
	for _, f := range files {
		for _, p := range []string{f.Path, f.MoveTo} {
			if p != "" {
				e.Touches = append(e.Touches, tool.Touch{Path: orAll(t.absolute(p)), Write: true})
			}
		}
	}
	if err != nil {
		e.Touches = writes("").Touches
	}
	return e
}

// absolute is a path of a patch, which may be relative to where commands run.
func (t applyPatch) absolute(p string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return path.Join(searchDir(t.env), p)
}

func (t applyPatch) files(req tool.Request) ([]filePatch, *tool.Result) {
	a, bad := decode[patchArgs](req.Args)
	if bad != nil {
		return nil, bad
	}
	files, err := parsePatch(a.Patch)
	if err != nil {
		return nil, refuse("Error: " + err.Error())
	}
	seen := map[string]bool{}
	for i := range files {
		for _, p := range []*string{&files[i].Path, &files[i].MoveTo} {
			if *p == "" {
				continue
			}
			if *p, bad = t.clean(t.absolute(*p)); bad != nil {
				return nil, bad
			}
			if seen[*p] {
				return nil, refuse("Error: the patch is about " + show(*p) + " twice")
			}
			seen[*p] = true
		}
	}
	return files, nil
}

// changes applies the patch in memory: all of it, or it is refused.
func (t applyPatch) changes(ctx context.Context, files []filePatch) ([]fileChange, *tool.Result, error) {
	var all []fileChange
	for _, f := range files {
		some, bad, err := t.change(ctx, f)
		if bad != nil || err != nil {
			return nil, bad, err
		}
		all = append(all, some...)
	}
	return all, nil, nil
}

func (t applyPatch) change(ctx context.Context, f filePatch) ([]fileChange, *tool.Result, error) {
	if f.Op == patchAdd {
		before, err := t.hash(ctx, f.Path)
		if err != nil {
			bad, err := ended(err)
			return nil, bad, err
		}
		if before != tool.Absent {
			return nil, refuse("Error: " + show(f.Path) + " is there already; update it, or delete it first"), nil
		}
		return []fileChange{changeOf(f.Path, before, []byte(joined(f.Lines)), "Added")}, nil, nil
	}
	content, hash, err := t.env.Files.Read(ctx, f.Path, editBytesMax)
	if err != nil {
		bad, err := ended(err)
		return nil, bad, err
	}
	gone := fileChange{plannedFile{f.Path, plan{hash, tool.Absent}}, nil, "Deleted"}
	if f.Op == patchDelete {
		return []fileChange{gone}, nil, nil
	}
	text, err := f.apply(string(content))
	switch {
	case err != nil:
		return nil, refuse("Error: " + err.Error()), nil
	case len(text) > editBytesMax:
		return nil, refuse(fmt.Sprintf("Error: %s would have more than %d bytes", show(f.Path), editBytesMax)), nil
	case f.MoveTo == "":
		return []fileChange{changeOf(f.Path, hash, []byte(text), "Updated")}, nil, nil
	}
	before, err := t.hash(ctx, f.MoveTo)
	if err != nil {
		bad, err := ended(err)
		return nil, bad, err
	}
	if before != tool.Absent {
		return nil, refuse("Error: " + show(f.MoveTo) + " is there already"), nil
	}
	return []fileChange{changeOf(f.MoveTo, before, []byte(text), "Added"), gone}, nil, nil
}

func changeOf(p, before string, content []byte, verb string) fileChange {
	return fileChange{plannedFile{p, plan{before, hashOf(content)}}, content, verb}
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// Plan implements tool.Planner.
func (t applyPatch) Plan(ctx context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	files, bad := t.files(req)
	if bad != nil {
		return nil, bad, nil
	}
	all, bad, err := t.changes(ctx, files)
	if bad != nil || err != nil {
		return nil, bad, err
	}
	var p patchPlan
	for _, c := range all {
		p.Files = append(p.Files, c.plannedFile)
	}
	raw, err := json.Marshal(p)
	return raw, nil, err
}

// Run implements tool.Tool. A run that was cut short is gone on with: each file is as
// it was before, or as it is to be; else another writer changed it, and it is left alone.
func (t applyPatch) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	files, bad := t.files(req)
	if bad != nil {
		return *bad, nil
	}
	var p patchPlan
	if err := json.Unmarshal(req.Plan, &p); err != nil || len(p.Files) == 0 {
		return whole(tool.Fail(tool.CodeInterrupted, "Error: interrupted: it is not known what was done of this patch; look at its files")), nil
	}
	var did []string
	for _, f := range files {
		lines, end, err := t.one(ctx, f, p)
		did = append(did, lines...)
		if err != nil {
			return tool.Result{}, err
		}
		if end != nil {
			return partly(*end, did), nil
		}
	}
	return whole(tool.Text("Applied the patch:\n" + strings.Join(did, "\n"))), nil
}

// partly is the end of a patch that was made in part.
func partly(r tool.Result, did []string) tool.Result {
	if len(did) > 0 {
		r.Blocks[0].Text += "\nBefore that was done:\n" + strings.Join(did, "\n")
	}
	return r
}

// one does what the patch wants of one file, and tells what that was.
func (t applyPatch) one(ctx context.Context, f filePatch, p patchPlan) (did []string, end *tool.Result, err error) {
	planned := func(path string) plan {
		i := slices.IndexFunc(p.Files, func(x plannedFile) bool { return x.Path == path })
		if i < 0 {
			return plan{}
		}
		return p.Files[i].plan
	}
	target, verb := f.Path, map[patchOp]string{patchAdd: "Added", patchDelete: "Deleted", patchUpdate: "Updated"}[f.Op]
	if f.MoveTo != "" {
		target, verb = f.MoveTo, "Moved "+show(f.Path)+" to"
	}
	if f.Op != patchDelete {
		done, r, err := t.again(ctx, target, planned(target))
		if r != nil || err != nil {
			return nil, r, err
		}
		if !done {
			text, end, err := t.content(ctx, f, planned(f.Path))
			if end != nil || err != nil {
				return nil, end, err
			}
			if _, err := t.env.Files.Write(ctx, target, text, planned(target).Before); err != nil {
				end, err := ended(err)
				return nil, end, err
			}
		}
	}
	if f.Op == patchDelete || f.MoveTo != "" {
		done, r, err := t.again(ctx, f.Path, planned(f.Path))
		if r != nil || err != nil {
			return nil, r, err
		}
		if !done {
			if err := t.env.Files.Delete(ctx, f.Path); err != nil {
				end, err := ended(err)
				return nil, end, err
			}
		}
	}
	return []string{verb + " " + show(target)}, nil, nil
}

// content is what a file is to hold. Precondition: it is as it was planned for.
func (t applyPatch) content(ctx context.Context, f filePatch, p plan) ([]byte, *tool.Result, error) {
	if f.Op == patchAdd {
		return []byte(joined(f.Lines)), nil, nil
	}
	content, hash, err := t.env.Files.Read(ctx, f.Path, editBytesMax)
	if err != nil {
		bad, err := ended(err)
		return nil, bad, err
	}
	if hash != p.Before {
		r := unsure(f.Path)
		return nil, &r, nil
	}
	text, err := f.apply(string(content))
	if err != nil {
		return nil, refuse("Error: " + err.Error()), nil
	}
	return []byte(text), nil, nil
}

// Settle implements tool.Settler: a patch that was made whole by an earlier run.
func (t applyPatch) Settle(ctx context.Context, req tool.Request) (*tool.Result, error) {
	var p patchPlan
	if err := json.Unmarshal(req.Plan, &p); err != nil || len(p.Files) == 0 {
		return nil, nil
	}
	for _, f := range p.Files {
		now, err := t.hash(ctx, f.Path)
		if err != nil || now != f.After {
			return nil, err
		}
	}
	r := whole(tool.Text("Applied the patch."))
	return &r, nil
}
