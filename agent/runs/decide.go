package runs

import (
	"encoding/json"
	"slices"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// Check returns the event of a decision about a call that waits.
func (d Decide) Check(c *Call) (thread.ApprovalDecided, error) {
	decided := thread.ApprovalDecided{Call: d.Call, Decision: d.Decision, Text: d.Text, By: d.By}
	if !slices.Contains(c.Asked.Allowed, d.Decision) {
		return decided, errs.New(errs.Invalid, "%.20q is not among the decisions that are allowed here: %v", d.Decision, c.Asked.Allowed)
	}
	if len(d.Text) > thread.InlineBytesMax {
		return decided, errs.New(errs.Limit, "a text has at most %d bytes", thread.InlineBytesMax)
	}
	switch d.Decision {
	case thread.Edit:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(d.Args, &object); err != nil || len(d.Args) > thread.InlineBytesMax {
			return decided, errs.New(errs.Invalid, "edited arguments are a JSON object of at most %d bytes", thread.InlineBytesMax)
		}
		decided.Args = d.Args
	case thread.Respond:
		if d.Text == "" {
			return decided, errs.New(errs.Invalid, "respond needs a text")
		}
		if c.Asked.Ask == thread.AskForm {
			answer, err := answerOf(c.Asked.Form, d.Text)
			if err != nil {
				return decided, err
			}
			decided.Text = string(answer)
		}
	}
	if d.Always && c.Asked.Ask != thread.AskApproval {
		return decided, errs.New(errs.Invalid, "always is about calls, and this is a %s", c.Asked.Ask)
	}
	if d.Always && d.Decision != thread.Approve {
		return decided, errs.New(errs.Invalid, "always goes with approve alone")
	}
	return decided, nil
}
