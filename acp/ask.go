package acp

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// Options that a person chooses from.
const (
	optAllow  = "allow"
	optAlways = "always"
	optReject = "reject"
	optOther  = "other"   // the answer is the next message
	optAnswer = "answer:" // and a number: that of the question's options
)

// findApproval asks the person about a call that the log says waits.
func (v *view) findApproval(ctx context.Context, thread, call string) {
	waiting, err := v.s.c.Run(v.s.run.ID).Approvals(ctx)
	if err != nil {
		v.a.Log.Warn("what a run waits for cannot be read", "error", err.Error())
		return
	}
	for _, w := range waiting {
		own := w.Thread == v.s.run.Thread && thread == ""
		if w.Call == call && (own || w.Thread == thread) {
			v.ask(ctx, w)
		}
	}
}

// ask puts a call that waits before the person, beside what else happens.
func (v *view) ask(ctx context.Context, w api.Approval) {
	id := v.approvalID(w)
	one, stop := context.WithCancel(ctx)
	v.decided.Lock()
	_, known := v.asked[id]
	if !known {
		v.asked[id] = stop
	}
	v.decided.Unlock()
	if known {
		stop()
		return
	}
	v.asking.Go(func() {
		defer stop()
		d, ok := v.choice(one, id, w)
		if !ok {
			return
		}
		d.Call, d.Thread, d.ArgsHash = w.Call, w.Thread, w.ArgsHash
		v.decide(ctx, w.Run, d)
	})
}

// decide tells the run what its person decided. A server that is started again hears it
// again: a decision holds once. Conflict: it was decided elsewhere.
func (v *view) decide(ctx context.Context, run string, d api.Decide) {
	for {
		_, err := v.s.c.Run(run).Decide(ctx, d)
		if errs.Temporary(err) && sleep.For(ctx, time.Second) == nil {
			continue
		}
		if err != nil && ctx.Err() == nil && !errs.Is(err, errs.Conflict) {
			v.a.say(v.s, "\n\nThe answer did not reach the run: "+errs.Public(err))
		}
		return
	}
}

// approvalID is the id by which the call was shown.
func (v *view) approvalID(w api.Approval) string {
	if w.Thread == v.s.run.Thread {
		return w.Call
	}
	return idOf(w.Thread, w.Call)
}

// forget takes a question back that was answered elsewhere, or by its person.
func (v *view) forget(id string) {
	v.decided.Lock()
	defer v.decided.Unlock()
	if stop := v.asked[id]; stop != nil {
		stop()
		v.asked[id] = nil
	}
}

// choice is what the person decides; false: nothing, for now.
func (v *view) choice(ctx context.Context, id string, w api.Approval) (d api.Decide, ok bool) {
	var q question
	_ = json.Unmarshal(w.Args, &q) // what cannot be read is not shown
	if v.s.modeNow() == modeAll && w.Ask == "" && slices.Contains(w.Allowed, api.DecisionApprove) {
		return api.Decide{Decision: api.DecisionApprove}, true
	}
	if w.Ask == api.AskForm {
		v.a.say(v.s, "\n\n"+formText(w.Args))
		v.inWords()
		return d, false
	}
	if w.Ask == api.AskQuestion && len(q.Options) == 0 {
		v.a.say(v.s, "\n\n"+q.Text)
		v.inWords()
		return d, false
	}
	chosen, err := v.a.permission(ctx, v.s, v.shownCall(id, w, q), optionsOf(w, q))
	switch {
	case ctx.Err() != nil:
		return d, false
	case err != nil:
		return api.Decide{Decision: api.DecisionReject, Text: "the editor could not ask its person"}, true
	case chosen == "": // the turn is cancelled
		v.turn.askCancel()
		return d, false
	case chosen == optOther:
		v.inWords()
		return d, false
	case chosen == optAllow, chosen == optAlways:
		return api.Decide{Decision: api.DecisionApprove, Always: chosen == optAlways}, true
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(chosen, optAnswer)); err == nil && n >= 0 && n < len(q.Options) {
		return api.Decide{Decision: api.DecisionRespond, Text: q.Options[n]}, true
	}
	return api.Decide{Decision: api.DecisionReject, Text: "the person rejected it"}, true
}

// formText is what a program asks. Its words are shown as its own.
func formText(args json.RawMessage) string {
	var f api.Form
	if json.Unmarshal(args, &f) != nil {
		return "A program asks what cannot be read."
	}
	text := f.From + " asks, and these are its words:\n\n> " + strings.ReplaceAll(f.Message, "\n", "\n> ")
	if len(f.Schema) > 0 {
		text += "\n\nThe answer is a JSON object, or the value of its only field:\n\n```json\n" + strings.ReplaceAll(string(f.Schema), "```", "") + "\n```"
	}
	if f.Warning != "" {
		text += "\n\n**" + f.Warning + "**"
	}
	return text
}

// inWords ends the turn: what the person says next is the answer.
func (v *view) inWords() {
	v.waits.Store(true)
	v.enough()
}

// question is what an agent asks, or the plan that it hands in.
type question struct {
	Text    string   `json:"question"`
	Options []string `json:"options"`
	Plan    string   `json:"plan"`
	Steps   []string `json:"steps"`
}

func optionsOf(w api.Approval, q question) []sdk.PermissionOption {
	option := func(id, name string, kind sdk.PermissionOptionKind) sdk.PermissionOption {
		return sdk.PermissionOption{OptionId: sdk.PermissionOptionId(id), Name: name, Kind: kind}
	}
	var out []sdk.PermissionOption
	switch w.Ask {
	case api.AskQuestion:
		for i, text := range q.Options {
			out = append(out, option(optAnswer+strconv.Itoa(i), text, sdk.PermissionOptionKindAllowOnce))
		}
		return append(out, option(optOther, "Answer in words", sdk.PermissionOptionKindRejectOnce))
	case api.AskPlan:
		return []sdk.PermissionOption{
			option(optAllow, "Go to work", sdk.PermissionOptionKindAllowOnce), option(optReject, "Not this plan", sdk.PermissionOptionKindRejectOnce),
		}
	}
	if slices.Contains(w.Allowed, api.DecisionApprove) {
		out = append(out, option(optAllow, "Allow", sdk.PermissionOptionKindAllowOnce), option(optAlways, "Always allow exactly this", sdk.PermissionOptionKindAllowAlways))
	}
	return append(out, option(optReject, "Reject", sdk.PermissionOptionKindRejectOnce))
}

// shownCall is the call as the question shows it.
func (v *view) shownCall(id string, w api.Approval, q question) sdk.ToolCallUpdate {
	c := &call{tool: w.Tool}
	_ = json.Unmarshal(w.Args, &c.args)
	u := sdk.ToolCallUpdate{
		ToolCallId: sdk.ToolCallId(id), Title: new(titleOf(c)), Kind: new(kindOf(w.Tool)), Status: new(sdk.ToolCallStatusPending),
		Content: v.diffs(c), Locations: v.locations(c), RawInput: raw(w.Args),
	}
	text := w.Reason
	switch w.Ask {
	case api.AskQuestion:
		text, u.Title = q.Text, new(q.Text)
	case api.AskPlan:
		text, u.Kind, u.Title = q.Plan+"\n\n- "+strings.Join(q.Steps, "\n- "), new(sdk.ToolKindSwitchMode), new("Go to work by this plan?")
	}
	if text != "" {
		u.Content = append(u.Content, sdk.ToolContent(sdk.TextBlock(text)))
	}
	return u
}

// permission asks the person; "" = the turn is cancelled.
func (a *Agent) permission(ctx context.Context, s *session, c sdk.ToolCallUpdate, options []sdk.PermissionOption) (string, error) {
	res, err := sdk.SendRequest[sdk.RequestPermissionResponse](a.conn, ctx, sdk.ClientMethodSessionRequestPermission,
		sdk.RequestPermissionRequest{SessionId: sdk.SessionId(s.id), ToolCall: c, Options: options})
	if err != nil {
		return "", err
	}
	if res.Outcome.Selected == nil {
		return "", nil
	}
	return string(res.Outcome.Selected.OptionId), nil
}
