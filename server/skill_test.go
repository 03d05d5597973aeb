package server_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/skill"
)

func skillTar(t *testing.T, more string) []byte {
	t.Helper()
	data, err := skill.Tree{Files: []skill.Entry{
		{Path: "forms/SKILL.md", Content: []byte("---\nname: forms\ndescription: Fills " + more + ".\nallowed-tools: Read\n---\nRun scripts/fill.py.\n")},
		{Path: "forms/scripts/fill.py", Content: []byte("print('" + more + "')\n")},
	}}.Tar()
	must(t, err)
	return data
}

// A skill's life by the API: looked at, installed, upgraded, rolled back, for some agents,
// removed; another tenant sees nothing of it.
func TestSkills(t *testing.T) {
	w := newWorld(t)
	other, _ := w.key(t, "other", "read", "write")
	var s api.Skill
	w.call(t, w.admin, http.MethodPost, "/v1/skills", api.InstallSkill{Archive: skillTar(t, "one"), DryRun: true}, http.StatusOK, &s)
	first := s.Version
	if s.Name != "forms" || s.Instructions != "Run scripts/fill.py." || !slices.Equal(s.Files, []string{"SKILL.md", "scripts/fill.py"}) || !slices.Equal(s.AllowedTools, []string{"Read"}) {
		t.Errorf("looked at: %+v", s)
	}
	w.call(t, w.admin, http.MethodGet, "/v1/skills/forms", nil, http.StatusNotFound, nil)
	w.call(t, w.admin, http.MethodPost, "/v1/skills", api.InstallSkill{Archive: skillTar(t, "one"), From: "forms.zip"}, http.StatusOK, &s)
	if s.Version != first {
		t.Errorf("installed %s, looked at %s", s.Version, first)
	}
	w.call(t, w.admin, http.MethodPost, "/v1/skills", api.InstallSkill{Archive: skillTar(t, "two"), New: true}, http.StatusConflict, nil)
	agents := []string{"reviewer"}
	w.call(t, w.admin, http.MethodPost, "/v1/skills", api.InstallSkill{Archive: skillTar(t, "two"), Agents: &agents}, http.StatusOK, &s)
	if s.Version == first || len(s.Versions) != 2 || s.Description != "Fills two." || !slices.Equal(s.Agents, agents) {
		t.Errorf("upgraded: %+v", s)
	}
	w.call(t, w.admin, http.MethodPatch, "/v1/skills/forms", api.ChangeSkill{Version: first[:8]}, http.StatusOK, &s)
	if s.Version != first || s.Description != "Fills one." {
		t.Errorf("rolled back: %+v", s)
	}
	w.call(t, w.admin, http.MethodGet, "/v1/skills/forms?version="+s.Versions[1].Version, nil, http.StatusOK, &s)
	if s.Description != "Fills two." {
		t.Errorf("another version: %+v", s)
	}
	w.call(t, w.admin, http.MethodPatch, "/v1/skills/forms", api.ChangeSkill{Trust: first[:12]}, http.StatusNotFound, nil)
	if w.call(t, w.admin, http.MethodPatch, "/v1/skills/forms", api.ChangeSkill{Trust: first}, http.StatusOK, &s); !s.Trusted || s.Versions[0].TrustedBy == "" || s.Versions[1].TrustedBy != "" {
		t.Errorf("trusted: %+v", s)
	}
	s = api.Skill{}
	if w.call(t, w.admin, http.MethodPatch, "/v1/skills/forms", api.ChangeSkill{Distrust: first}, http.StatusOK, &s); s.Trusted || s.Versions[0].TrustedBy != "" {
		t.Errorf("trusted no longer: %+v", s)
	}
	s = api.Skill{}
	if w.call(t, w.admin, http.MethodPost, "/v1/skills", api.InstallSkill{Archive: skillTar(t, "three"), Trust: true}, http.StatusOK, &s); !s.Trusted {
		t.Errorf("installed with trust: %+v", s)
	}
	var list api.SkillList
	w.call(t, other, http.MethodGet, "/v1/skills", nil, http.StatusOK, &list)
	if len(list.Items) != 0 {
		t.Errorf("another tenant sees %+v", list.Items)
	}
	w.call(t, other, http.MethodDelete, "/v1/skills/forms", nil, http.StatusNotFound, nil)
	w.call(t, w.admin, http.MethodDelete, "/v1/skills/forms", nil, http.StatusNoContent, nil)
	w.call(t, w.admin, http.MethodGet, "/v1/skills", nil, http.StatusOK, &list)
	if len(list.Items) != 0 {
		t.Errorf("removed: %+v", list.Items)
	}
}
