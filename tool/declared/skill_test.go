package declared_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/declared"
)

func skillTree(name, manifest string) skill.Tree {
	return skill.Tree{Folder: name, Files: []skill.Entry{
		{Path: skill.File, Content: []byte("---\nname: " + name + "\ndescription: x\n---\nDo it.\n")}, {Path: "tool.yaml", Content: []byte(manifest)},
	}}
}

func TestOfSkill(t *testing.T) {
	m, ok, err := declared.OfSkill(skillTree("word-count", "description: Counts.\ncommand: wc -w\nsandbox: {timeout: 5s}\n"))
	if err != nil || !ok || m.Name != "word-count" || m.Description != "Counts." {
		t.Errorf("%+v, %v, %v", m, ok, err)
	}
	if _, ok, err := declared.OfSkill(skill.Tree{}); ok || err != nil {
		t.Errorf("without a manifest: %v, %v", ok, err)
	}
	for manifest, why := range map[string]string{
		"command: wc\n":    "description",
		"description: x\n": "needs a command",
		"description: x\ncommand: wc\nnetwork: open\n":                "not a key here",
		"description: x\nhttp: {url: \"https://x.example/\"}\n":       "no request for a skill",
		"description: x\ncommand: wc\nsandbox: {scope: \"{call}\"}\n": "runs in the run's sandbox",
		"description: x\ncommand: wc\nsandbox: {network: open}\n":     "without a scope",
		"description: x\ncommand: wc\nsandbox: {env: {A: b}}\n":       "without a scope",
		"description: x\ncommand: wc\nrequires_sandbox: false\n":      "never run on the host",
		"openapi: 3.0.0\n": "not a key here",
		"\xff":             "",
	} {
		if m, ok, err := declared.OfSkill(skillTree("a", manifest)); ok || !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), why) {
			t.Errorf("%q: %+v, %v", manifest, m, err)
		}
	}
}

// What a skill says of its tool is believed as far as its version is trusted, an agent has
// those of its skills alone, and a call after the trust has ended fails.
func TestSkillSource(t *testing.T) {
	ctx := t.Context()
	store, err := skill.Open(ctx, kvtest.NewMemory(), kvtest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	install := func(tree skill.Tree, by string, agents ...string) {
		t.Helper()
		if _, err := store.Install(ctx, "acme", skill.Install{Tree: tree, TrustedBy: by, Agents: agents}); err != nil {
			t.Fatal(err)
		}
	}
	const manifest = "description: x\ncommand: wc\neffect: read\n"
	plain := skillTree("plain", "")
	plain.Files = plain.Files[:1]
	install(plain, "ann")
	install(skillTree("trusted", manifest), "ann")
	install(skillTree("asks", manifest+"approval: ask\n"), "ann")
	install(skillTree("unknown", manifest), "")
	install(skillTree("others", manifest), "ann", "reviewer")
	install(skillTree("unpicked", manifest), "ann")
	install(skillTree("broken", "command: [\n"), "ann")
	x := newShop(t)
	p := x.place
	p.Skill = func(name string) bool { return name != "unpicked" }
	s := declared.NewSkills(store, nil)
	found, notes, err := s.Find(ctx, p)
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "broken") {
		t.Errorf("%q, %v", notes, err)
	}
	got, byName := "", map[string]tool.External{}
	for _, e := range found {
		got += e.Spec.Name + ":" + string(e.Class)
		if e.Asks {
			got += ":asks"
		}
		got += " "
		byName[e.Spec.Name] = e
	}
	if want := "asks:read:asks trusted:read unknown:keyed:asks "; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if !s.Covers("acme", "trusted") || !s.Covers("acme", "trust*") || s.Covers("acme", "plain") || s.Covers("other", "trusted") || s.Covers("acme", "broken") {
		t.Error("it does not cover what it has, or more")
	}
	version := func(name string) string {
		i, err := store.Get(ctx, "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		return i.Current
	}
	mounted := []string{}
	p.Mount = func(_ context.Context, dir string, _ []byte) error { mounted = append(mounted, dir); return nil }
	call := func(key string) tool.Result {
		t.Helper()
		plan, err := json.Marshal(tool.Started{Boot: p.Boot})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Call(ctx, p, byName["trusted"], tool.Request{Call: key, Key: key, Args: json.RawMessage("{}"), Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := call("k1"); r.Failed || len(mounted) != 1 || mounted[0] != "/skills/trusted" {
		t.Errorf("%+v, %v", r, mounted)
	}
	if _, err := store.Change(ctx, "acme", "trusted", skill.Change{Distrust: version("trusted")}); err != nil {
		t.Fatal(err)
	}
	if r := call("k2"); !r.Failed || r.Code != tool.CodeDenied {
		t.Errorf("trusted no longer: %+v", r)
	}
	byName["trusted"] = byName["unknown"]
	if err := store.Remove(ctx, "acme", "unknown"); err != nil {
		t.Fatal(err)
	}
	if r := call("k3"); !r.Failed || r.Code != tool.CodeNotFound {
		t.Errorf("removed: %+v", r)
	}
	p.Mount = nil
	if found, _, err := s.Find(ctx, p); len(found) > 0 || err != nil {
		t.Errorf("where nothing isolates: %v, %v", found, err)
	}
}
