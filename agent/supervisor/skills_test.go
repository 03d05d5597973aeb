package supervisor

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
)

func skillMD(name, about, do string) []byte {
	return []byte("---\nname: " + name + "\ndescription: " + about + "\n---\n" + do + "\n")
}

// shop is a store of skills, a machine that they are put into, and a thread.
type shop struct {
	store   *skill.Store
	content kv.Store
	files   tool.Files
	blobs   thread.Blobs
	state   *runs.State
	mounted map[string]int // by directory, how often
	full    error          // of the machine's disk
	session *session
}

func newShop(t *testing.T) *shop {
	t.Helper()
	content := kvtest.NewMemory()
	store, err := skill.Open(t.Context(), kvtest.NewMemory(), content)
	if err != nil {
		t.Fatal(err)
	}
	blobs := thread.NewMemory()
	x := &shop{store: store, content: content, blobs: blobs, mounted: map[string]int{}, files: backend.NewStore(kvtest.NewMemory(), blobs, "a")}
	x.state = &runs.State{Agent: definition.Definition{Name: "coder"}, Run: &runs.CurrentRun{}}
	x.session = newSession(sessionConfig{Tenant: "a", State: x.state, Blobs: blobs, Skills: store})
	x.session.machine = agent.Machine{Files: x.files, Dir: "/workspace", Mount: func(_ context.Context, dir string, _ []byte) error {
		x.mounted[dir]++
		return x.full
	}}
	return x
}

func (x *shop) install(t *testing.T, name, about, do string, agents ...string) {
	t.Helper()
	in := skill.Install{Tree: skill.Tree{Files: []skill.Entry{{Path: skill.File, Content: skillMD(name, about, do)}, {Path: "a.py", Content: []byte("x")}}}, Agents: agents}
	if _, err := x.store.Install(t.Context(), "a", in); err != nil {
		t.Fatal(err)
	}
}

func (x *shop) write(t *testing.T, path string, content []byte) {
	t.Helper()
	if _, err := x.files.Write(t.Context(), path, content, ""); err != nil {
		t.Fatal(err)
	}
}

// skills are those that a new driver finds.
func (x *shop) skills(t *testing.T) *found {
	t.Helper()
	f, err := x.session.skills(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// begin lets a run begin: what it was told is in the state.
func (x *shop) begin(t *testing.T) *found {
	t.Helper()
	x.state.Run.Steps = 0
	f := x.skills(t)
	about := thread.Context{}
	if err := f.tell(t.Context(), x.blobs, &about); err != nil {
		t.Fatal(err)
	}
	x.state.Context, x.state.Run.Steps = &about, 1
	return f
}

// What an agent may use: what is installed for it, then what the workspace has; nothing else.
func TestSkills_found(t *testing.T) {
	x := newShop(t)
	if x.skills(t) != nil {
		t.Error("there are some before there are any")
	}
	x.install(t, "forms", "Fills forms.", "Do it.")
	x.install(t, "review", "Reviews.", "Do it.", "reviewer")
	x.write(t, "/workspace/.agents/skills/lint/SKILL.md", skillMD("lint", "Lints:\u0007 \"all\".", "Run it."))
	x.write(t, "/workspace/.claude/skills/lint/SKILL.md", skillMD("lint", "The second.", "No."))
	x.write(t, "/workspace/.claude/skills/forms/SKILL.md", skillMD("forms", "Takes the place of another.", "No."))
	x.write(t, "/workspace/.claude/skills/large/SKILL.md", []byte(strings.Repeat("x", mdBytesMax+1)))
	x.write(t, "/workspace/.claude/skills/broken/SKILL.md", []byte("\xff"))
	x.write(t, "/workspace/.claude/skills/Bad Name/SKILL.md", skillMD("../x", "x", "No."))
	x.write(t, "/workspace/.claude/skills/README.md", []byte("x"))
	f := x.skills(t)
	text, rest := f.catalogue()
	if d := cmp.Diff("- forms: Fills forms.\n- lint: Lints: \"all\".", strings.ReplaceAll(text, "\u0007", "")); d != "" || rest > 0 {
		t.Error(d, rest)
	}
	l, err := f.Learn(t.Context(), "lint")
	if err != nil || l.Instructions != "Run it." || l.Dir != "/workspace/.agents/skills/lint" || l.Changed {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := f.Learn(t.Context(), "review"); !errs.Is(err, errs.NotFound) {
		t.Errorf("another agent's: %v", err)
	}
}

// An agent that names skills has no others, wherever they are.
func TestSkills_picked(t *testing.T) {
	x := newShop(t)
	for _, name := range []string{"forms", "forms-old", "review"} {
		x.install(t, name, "Helps.", "Do it.")
	}
	x.write(t, "/workspace/.agents/skills/lint/SKILL.md", skillMD("lint", "Lints.", "Run it."))
	x.state.Agent.Skills = []string{"forms*", "!*-old", "nowhere"}
	f := x.skills(t)
	if text, _ := f.catalogue(); text != "- forms: Helps." {
		t.Errorf("%q", text)
	}
	if _, err := f.Learn(t.Context(), "review"); !errs.Is(err, errs.NotFound) {
		t.Errorf("one that it does not name: %v", err)
	}
}

// A run keeps the versions that it began with; the next one has the new ones.
func TestSkills_changeDuringRun(t *testing.T) {
	x := newShop(t)
	x.install(t, "forms", "Fills forms.", "First.")
	x.write(t, "/workspace/.agents/skills/lint/SKILL.md", skillMD("lint", "Lints.", "First."))
	x.begin(t)
	x.install(t, "forms", "Fills better.", "Second.")
	x.install(t, "more", "More.", "More.")
	x.write(t, "/workspace/.agents/skills/lint/SKILL.md", skillMD("lint", "Lints.", "Second."))
	f := x.skills(t) // of another driver, as after kill -9
	l, err := f.Learn(t.Context(), "forms")
	if err != nil || l.Instructions != "First." || !cmp.Equal(l.Files, []string{"a.py"}) || x.mounted["/skills/forms"] != 1 {
		t.Errorf("%+v, %v, %v", l, err, x.mounted)
	}
	if l, err := f.Learn(t.Context(), "lint"); err != nil || !l.Changed {
		t.Errorf("what the workspace changed is not told: %+v, %v", l, err)
	}
	if _, err := f.Learn(t.Context(), "more"); !errs.Is(err, errs.NotFound) {
		t.Errorf("one that came later: %v", err)
	}
	x.state.Learned = []string{"forms", "lint"}
	if x.skills(t); x.mounted["/skills/forms"] != 2 { // the machine has lost it
		t.Errorf("not put back: %v", x.mounted)
	}
	f = x.begin(t)
	if l, err := f.Learn(t.Context(), "forms"); err != nil || l.Instructions != "Second." {
		t.Errorf("the next run: %+v, %v", l, err)
	}
}

// A trusted version approves its allowed-tools beforehand for what has learned it, as long as
// it is trusted; an upgrade, another skill, and a workspace that says the same approve nothing.
func TestSkills_grants(t *testing.T) {
	x := newShop(t)
	const tools = "x\nallowed-tools: Bash(git:*) Bash(:*) Read"
	x.install(t, "forms", tools, "First.")
	x.install(t, "other", tools, "First.")
	x.write(t, "/workspace/.agents/skills/lint/SKILL.md", skillMD("lint", tools, "Run it."))
	version := func() string {
		i, err := x.store.Get(t.Context(), "a", "forms")
		if err != nil {
			t.Fatal(err)
		}
		return i.Current
	}
	change := func(c skill.Change) {
		t.Helper()
		if _, err := x.store.Change(t.Context(), "a", "forms", c); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, f *found, learned []string, want []policy.Grant) {
		t.Helper()
		got, err := f.Grants(t.Context(), learned)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(what, d, err)
		}
	}
	all, first := []string{"forms", "other", "lint"}, version()
	f := x.begin(t)
	is("not trusted", f, all, nil)
	change(skill.Change{Trust: first, By: "ann"})
	want := []policy.Grant{{By: "skill forms version " + first, Rules: []definition.Rule{
		{Action: definition.Allow, Tools: []string{"execute"}, Commands: []string{"git *"}}, {Action: definition.Allow, Tools: []string{"read_file"}},
	}}}
	is("trusted", f, all, want)
	is("not learned", f, []string{"other", "lint"}, nil)
	x.install(t, "forms", tools, "Second.")
	is("the run's own version", x.skills(t), all, want) // of another driver
	is("an upgrade", x.begin(t), all, nil)
	change(skill.Change{Distrust: first})
	is("trusted no longer", f, all, nil)
}

// A machine whose disk is full, and files that are damaged, are told to the agent that asks
// for the skill; the run goes on.
func TestSkills_faults(t *testing.T) {
	x := newShop(t)
	x.install(t, "forms", "Fills forms.", "Do it.")
	x.begin(t)
	x.state.Learned = []string{"forms"} // by a machine that was lost
	x.full = errs.New(errs.Limit, "no space left in the sandbox")
	if _, err := x.skills(t).Learn(t.Context(), "forms"); !errs.Is(err, errs.Limit) {
		t.Errorf("a full disk: %v", err)
	}
	x.full = nil
	if _, err := x.skills(t).Learn(t.Context(), "forms"); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if err := x.content.List(t.Context(), "data/", func(key string, _ []byte, revision uint64) error {
		return x.content.Delete(t.Context(), key, revision)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.skills(t).Learn(t.Context(), "forms"); !errs.Is(err, errs.Corrupt) {
		t.Errorf("lost files: %v", err)
	}
	x.full = errs.New(errs.Unavailable, "the machine does not answer")
	x.install(t, "forms", "Fills forms.", "Do it.")
	if _, err := x.session.skills(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("what is tried again: %v", err)
	}
}

// An entry costs at most 100 tokens whatever its author wrote, all of them have a bound, and
// what the list has no room for is found by a query.
func TestSkills_catalogue(t *testing.T) {
	f := &found{}
	const all = 1000
	for i := range all {
		f.list = append(f.list, pinned{Name: strings.Repeat("n", 60) + fmt.Sprint(i), Description: strings.Repeat("word\n<skill> ", 80)})
	}
	f.list[990].Description = "Counts seahorses in pictures." + f.list[0].Description
	text, rest := f.catalogue()
	shown := 0
	for line := range strings.Lines(text) {
		if n := prompt.Tokens([]llm.Block{llm.Text(line)}); n > 100 {
			t.Fatalf("%d tokens: %s", n, line)
		}
		shown++
	}
	if shown--; shown+rest != all || rest == 0 || f.Unlisted() != rest {
		t.Errorf("%d are shown, and %d are not", shown, rest)
	}
	if len(text) > catalogueBytesMax+100 || !strings.HasSuffix(text, fmt.Sprintf("… and %d more: call skill with a query to find one", rest)) {
		t.Errorf("%d bytes: %s", len(text), text[len(text)-100:])
	}
	got, err := f.Find(t.Context(), "count the seahorses")
	if err != nil || len(got) == 0 || got[0].Name != f.list[990].Name {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, e := range got {
		if n := prompt.Tokens([]llm.Block{llm.Text("- " + e.Name + ": " + e.Description)}); n > 100 {
			t.Errorf("%d tokens: %v", n, e)
		}
	}
	few := &found{list: f.list[:10]}
	if _, rest := few.catalogue(); rest != 0 || few.Unlisted() != 0 {
		t.Errorf("%d of ten are not shown", rest)
	}
}
