package client

import (
	"context"
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file puts what a server wants to know (elicitation) before a person.
//
// A program names no call that it asks for. It is asked in the name of the oldest call that
// the server has under way, and the time of none of them passes meanwhile.

// What a server is answered.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

const messageBytesMax = 2 << 10 // of what a server asks

// underWay is a call that a server works on.
type underWay struct {
	ctx context.Context
	ask func(context.Context, thread.Form) (tool.FormAnswer, error)
}

// begins notes a call for which the server may ask, until done.
func (s *session) begins(ctx context.Context, req tool.Request) (done func()) {
	c := &underWay{ctx, req.Ask}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.calls {
			if s.calls[i] == c {
				s.calls = append(s.calls[:i:i], s.calls[i+1:]...)
				return
			}
		}
	}
}

// pause stops the time of all calls of the server, and returns the oldest.
func (s *session) pause() (oldest *underWay, resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []func()
	for _, c := range s.calls {
		all = append(all, tool.Pause(c.ctx))
		if oldest == nil && c.ask != nil {
			oldest = c
		}
	}
	return oldest, func() {
		for _, f := range all {
			f()
		}
	}
}

// elicit asks a person for a server. Where that cannot be, the model is told what the server
// wanted to know, and can ask.
func (s *session) elicit(ctx context.Context, server string, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	select {
	case s.asks <- struct{}{}: // a person answers one thing after the other
		defer func() { <-s.asks }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	call, resume := s.pause()
	defer resume()
	params := *r.Params
	params.Message = s.mask()(params.Message)
	form, err := formFor(server, &params)
	if err != nil || call == nil {
		s.unasked(params.Message, err)
		return &sdk.ElicitResult{Action: actionCancel}, nil
	}
	asked, cancel := context.WithCancel(call.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)() // the server does not want to know any more
	a, err := call.ask(asked, form)        //nolint:contextcheck // ctx is the connection's
	if err != nil {
		s.unasked(params.Message, err)
		return &sdk.ElicitResult{Action: actionCancel}, nil
	}
	switch a.Decision {
	case thread.Respond:
		content := map[string]any{}
		if err := json.Unmarshal(a.Content, &content); err != nil {
			return nil, err
		}
		return &sdk.ElicitResult{Action: actionAccept, Content: content}, nil
	case thread.Reject:
		return &sdk.ElicitResult{Action: actionDecline}, nil
	}
	return &sdk.ElicitResult{Action: actionCancel}, nil
}

// unasked notes what no person was asked.
func (s *session) unasked(message string, err error) {
	why := "No person could be asked during the call"
	if err != nil {
		why = "It was not asked: " + clip.Line(errs.Public(err), noteBytesMax)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) < notesMax {
		s.asked = append(s.asked, clip.Line(message, noteBytesMax)+". "+why)
	}
}

// formFor is what a person is shown of a server's question.
func formFor(server string, p *sdk.ElicitParams) (thread.Form, error) {
	f := thread.Form{From: "MCP server " + server, Message: cleanText(p.Message, messageBytesMax)}
	if p.Mode == "url" {
		return f, errs.New(errs.Unsupported, "it wants a page to be opened, which is not done")
	}
	if strings.TrimSpace(f.Message) == "" {
		f.Message = "(it does not say what for)"
	}
	if p.RequestedSchema != nil {
		schema, err := cleanSchema(p.RequestedSchema)
		if err != nil {
			return f, errs.Wrap(errs.Invalid, err, "%s", err)
		}
		f.Schema = schema
	}
	if word := secretWord().FindString(f.Message + "\n" + string(f.Schema)); word != "" {
		f.Warning = "It may be asking for a secret (" + strings.ToLower(word) + "). What is answered goes to that server and into the log of the run; servers must not ask for secrets in this way."
	}
	return f, nil
}

// secretWord finds what speaks of secrets.
var secretWord = pattern.Lazy(`(?i)pass[\s_-]?(word|phrase|code)|\bpwd\b|secret|credential|api[\s_-]?key|private[\s_-]?key|access[\s_-]?key|token|\b(pin|otp|cvc|cvv|iban|ssn)\b|credit[\s_-]?card|card[\s_-]?number`)
