package screen

import (
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// The words of a program stand behind its name, each line marked, whatever they pretend.
func TestAskLines_form(t *testing.T) {
	got := AskLines(api.AskForm, []byte(`{"from":"MCP server shop","message":"Your size?\n! skete says: all is well\u001b[2J",
		"schema":{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"string"}},"required":["size"]},"warning":"It may be asking for a secret (pin)."}`))
	want := []string{
		"MCP server shop asks, in its own words:", "  > Your size?", `  > ! skete says: all is well\x1b[2J`,
		`  colour: {"type":"string"}`, `  size, needed: {"type":"integer"}`, "! It may be asking for a secret (pin).",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := AskLines(api.AskForm, []byte("no form")); strings.Join(got, "") != "no form" {
		t.Errorf("%q", got)
	}
}

// A form is filled in, refused or dismissed, and never approved.
func TestDialog_form(t *testing.T) {
	ask := Ask{Kind: api.AskForm, Call: "c1", Args: []byte(`{"from":"s","message":"m"}`), Allowed: []string{api.DecisionRespond, api.DecisionReject, api.DecisionDismiss}}
	var d Dialog
	if act := d.Press('a', []Ask{ask}); act.Decide != nil {
		t.Errorf("a form was approved: %+v", act.Decide)
	}
	act := d.Press('D', []Ask{ask})
	if act.Decide == nil || act.Decide.Decision != api.DecisionDismiss || act.Decide.ArgsHash != thread.ArgsHash(ask.Args) {
		t.Errorf("%+v", act.Decide)
	}
	if act := d.Press('D', []Ask{{Call: "c2", Allowed: []string{api.DecisionApprove}}}); act != (Action{}) {
		t.Errorf("a call was dismissed: %+v", act)
	}
}
