package acp

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// turn is a prompt under way, or a run of before that is watched.
type turn struct {
	prompted bool
	ctx      context.Context
	halt     context.CancelFunc // nothing more is told
	once     sync.Once
	asked    chan struct{} // closed when the client cancels
	done     chan struct{}
	view     *view
}

func (a *Agent) newTurn(s *session, v *view, prompted bool) *turn {
	t := &turn{prompted: prompted, asked: make(chan struct{}), done: make(chan struct{}), view: v}
	t.ctx, t.halt = context.WithCancel(client.Through(a.base, a.program()))
	v.turn = t
	v.told, v.enough = context.WithCancel(t.ctx)
	return t
}

// askCancel is what session/cancel does.
func (t *turn) askCancel() { t.once.Do(func() { close(t.asked) }) }

func (t *turn) cancelled() bool {
	select {
	case <-t.asked:
		return true
	default:
		return false
	}
}

// stop ends the telling, and waits for that.
func (t *turn) stop() { t.halt(); <-t.done }

// watch tells a run that was under way when its session was loaded, until a prompt comes.
func (a *Agent) watch(s *session, v *view) {
	v.replay = false
	t := a.newTurn(s, v, false)
	s.mu.Lock()
	s.turn = t
	s.mu.Unlock()
	run := s.run.ID
	a.background(func() {
		select {
		case <-t.asked:
			a.cancelRun(t.ctx, s, run)
		case <-t.ctx.Done():
		}
	})
	a.background(func() {
		defer close(t.done)
		defer t.halt()
		_ = v.follow(t.ctx, run, v.next) // what a prompt or the next load tells again
	})
}

// begin makes a turn of a prompt; only one at a time.
func (a *Agent) begin(s *session) (*turn, error) {
	s.mu.Lock()
	was := s.turn
	if was != nil && was.prompted {
		s.mu.Unlock()
		return nil, errs.New(errs.Conflict, "a prompt is under way in this session").WithHint("wait for its answer, or cancel it")
	}
	v := a.view(s)
	t := a.newTurn(s, v, true)
	s.turn = t
	s.mu.Unlock()
	if was != nil {
		was.stop()
		v.next, v.shown, v.text, v.thought = was.view.next, was.view.shown, was.view.text, was.view.thought
	}
	return t, nil
}

func (s *session) end(t *turn) {
	t.halt()
	s.mu.Lock()
	s.turn = nil
	s.mu.Unlock()
	close(t.done)
}

func (a *Agent) cancel(_ context.Context, p *sdk.CancelNotification) (any, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t != nil {
		t.askCancel()
	}
	return nil, nil
}

// cancelMax bounds how long a prompt that is cancelled waits for the end of its run.
const cancelMax = 30 * time.Second

func (a *Agent) prompt(ctx context.Context, p *sdk.PromptRequest) (any, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return nil, err
	}
	said, err := a.read(p.Prompt, s)
	if err != nil {
		return nil, err
	}
	t, err := a.begin(s)
	if err != nil {
		return nil, err
	}
	defer s.end(t)
	defer context.AfterFunc(ctx, func() { // $/cancel_request
		if !a.gone() { // a run goes on without its editor
			t.askCancel()
		}
	})()
	res, err := a.answer(s, t, said)
	if t.cancelled() && (err == nil || t.ctx.Err() != nil) {
		return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled}, nil
	}
	return res, err
}

// answer brings the files in, lets the agent work, and brings what it changed back.
func (a *Agent) answer(s *session, t *turn, said message) (sdk.PromptResponse, error) {
	var none sdk.PromptResponse
	preparing, ready := context.WithCancel(t.ctx)
	defer ready()
	defer context.AfterFunc(t.ctx, ready)()
	prepared := make(chan struct{})
	go func() {
		select {
		case <-t.asked:
			ready()
		case <-prepared:
		}
	}()
	run, from, err := a.prepare(preparing, s, t, said)
	close(prepared)
	if err != nil {
		if t.cancelled() {
			t.halt()
		}
		return none, err
	}
	over := make(chan struct{})
	defer func() { <-over }()
	following, enough := context.WithCancel(t.ctx)
	defer enough()
	go func() {
		defer close(over)
		select {
		case <-t.asked:
			a.cancelRun(following, s, run)
			select {
			case <-following.Done():
			case <-time.After(cancelMax):
				enough()
			}
		case <-following.Done():
		}
	}()
	if err := t.view.follow(following, run, from); err != nil {
		return none, err
	}
	if !t.cancelled() {
		if err := a.offer(following, s, t); err != nil && !t.cancelled() {
			a.say(s, "\n\nThe files could not be compared: "+refusal(err).Message)
		}
	}
	return a.ended(t.ctx, s, t, run)
}

// cancelRun ends a run that its person cancelled, once the server takes it.
func (a *Agent) cancelRun(ctx context.Context, s *session, run string) {
	short, stop := context.WithTimeout(ctx, cancelMax)
	defer stop()
	if _, err := s.c.Run(run).Cancel(short, "cancelled in the editor"); err != nil && ctx.Err() == nil {
		a.Log.Warn("a run could not be cancelled", "run", run, "error", err.Error())
	}
}

// prepare does what comes before a run, and starts it or speaks to the one that is under way.
func (a *Agent) prepare(ctx context.Context, s *session, t *turn, said message) (run string, from uint64, err error) {
	sb, err := s.sandbox().Get(ctx)
	if err != nil {
		return "", 0, err
	}
	if sb.State == "stopped" || sb.State == "failed" {
		if _, err = s.sandbox().Start(ctx); err != nil {
			return "", 0, err
		}
	}
	if err := a.push(ctx, s, said.mentioned); err != nil {
		return "", 0, err
	}
	for _, note := range s.takeNotes() {
		a.say(s, note+"\n\n")
	}
	if s.run.ID != "" {
		now, err := s.c.Run(s.run.ID).Get(ctx)
		if err != nil {
			return "", 0, err
		}
		s.run = now
		if !now.Final() {
			return a.speak(ctx, s, t, said)
		}
	}
	req := api.StartRun{
		Task: said.text, Thread: s.run.Thread, Model: a.Model, Images: said.images, Plan: s.modeNow() == modePlan,
		Labels: map[string]string{runLabel: s.id}, Sandbox: s.id,
	}
	if req.Thread == "" {
		req.Agent = a.Name
	}
	if s.run, err = s.c.StartRun(ctx, req); err != nil {
		return "", 0, err
	}
	return s.run.ID, s.run.FirstSeq, nil
}

// speak says something to a run that goes on: the answer to what it asked, or a message.
func (a *Agent) speak(ctx context.Context, s *session, t *turn, said message) (string, uint64, error) {
	from := cmp.Or(t.view.next, s.run.LastSeq+1)
	r := s.c.Run(s.run.ID)
	waiting, err := r.Approvals(ctx)
	if err != nil {
		return "", 0, err
	}
	for _, w := range waiting {
		if w.Ask == api.AskQuestion || w.Ask == api.AskForm {
			_, err := r.Decide(ctx, api.Decide{Call: w.Call, Thread: w.Thread, Decision: api.DecisionRespond, Text: said.text, ArgsHash: w.ArgsHash})
			return s.run.ID, from, err
		}
	}
	sent, err := r.Send(ctx, said.text, said.images...)
	if err != nil {
		return "", 0, err
	}
	if sent.New { // it ended in between
		s.run, err = s.c.Run(sent.Run).Get(ctx)
		return sent.Run, s.run.FirstSeq, err
	}
	for _, w := range waiting {
		t.view.ask(t.view.told, w)
	}
	return s.run.ID, from, nil
}

// ended says how a run ended, in the protocol's terms.
func (a *Agent) ended(ctx context.Context, s *session, t *turn, id string) (sdk.PromptResponse, error) {
	var res sdk.PromptResponse
	run, err := s.c.Run(id).Get(ctx)
	if err == nil && !run.Final() && !t.view.waits.Load() {
		run, err = s.c.Run(id).Wait(ctx)
	}
	if err != nil {
		return res, err
	}
	s.run = run
	res.Usage = &sdk.Usage{
		InputTokens: run.Usage.Input, OutputTokens: run.Usage.Output, TotalTokens: run.Usage.Total(),
		CachedReadTokens: &run.Usage.CacheRead, CachedWriteTokens: &run.Usage.CacheWrite, ThoughtTokens: &run.Usage.Reasoning,
	}
	switch stop := stopOf(run); {
	case t.cancelled():
		res.StopReason = sdk.StopReasonCancelled
	case stop != "":
		res.StopReason = stop
		if run.State != "succeeded" && run.Final() && stop != sdk.StopReasonCancelled {
			a.say(s, "\n\n"+cmp.Or(run.Text, run.Reason))
		}
	default:
		e := sdk.NewInternalError(map[string]any{"run": run.ID, "reason": run.Reason})
		e.Message = fmt.Sprintf("the run %s: %s", strings.ReplaceAll(run.State, "_", " "), cmp.Or(run.Text, run.Reason))
		return res, e
	}
	return res, nil
}

// stopOf is why a run stopped; "" = it failed, and that is an error.
func stopOf(run api.Run) sdk.StopReason {
	switch run.State {
	case "cancelled":
		return sdk.StopReasonCancelled
	case "failed", "timed_out":
	default:
		return sdk.StopReasonEndTurn
	}
	switch run.Reason {
	case "steps", "wall", "cost":
		return sdk.StopReasonMaxTurnRequests
	case "tokens":
		return sdk.StopReasonMaxTokens
	case "refusal":
		return sdk.StopReasonRefusal
	}
	return ""
}

// say shows a text as the agent's.
func (a *Agent) say(s *session, text string) { a.update(s.id, sdk.UpdateAgentMessageText(text)) }

// message is what a person said.
type message struct {
	text      string
	images    []api.Image
	mentioned []string // files of the editor's directory, relative to it
}

// textBytesMax and imagesMax bound a message, as the server does.
const (
	textBytesMax = 512 << 10
	imagesMax    = 8
)

// read makes a message of the blocks of a prompt.
func (a *Agent) read(blocks []sdk.ContentBlock, s *session) (message, error) {
	var m message
	var text, behind strings.Builder
	for _, b := range blocks {
		switch {
		case b.Text != nil:
			text.WriteString(b.Text.Text)
		case b.Image != nil:
			data, err := base64.StdEncoding.DecodeString(b.Image.Data)
			if err != nil || len(m.images) == imagesMax {
				return m, errs.New(errs.Invalid, "images: at most %d, each as base64", imagesMax)
			}
			m.images = append(m.images, api.Image{Data: data})
		case b.ResourceLink != nil:
			text.WriteString(m.mention(b.ResourceLink.Uri, s))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			name := m.mention(r.Uri, s)
			text.WriteString(name)
			fmt.Fprintf(&behind, "\n\n<file path=%q>\n%s\n</file>", name, r.Text)
		default:
			return m, errs.New(errs.Invalid, "a prompt holds texts, images, links and texts of resources, and no sound or other data")
		}
	}
	m.text = strings.TrimSpace(text.String() + behind.String())
	if m.text == "" && len(m.images) > 0 {
		m.text = "Look at this."
	}
	if m.text == "" || len(m.text) > textBytesMax {
		return m, errs.New(errs.Invalid, "a prompt has 1 to %d bytes of text", textBytesMax)
	}
	return m, nil
}

// mention is how the agent knows what an address names: a file of the editor's directory
// by its place in the sandbox.
func (m *message) mention(uri string, s *session) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || s.files == nil {
		return uri
	}
	rel, err := filepath.Rel(s.cwd, filepath.FromSlash(u.Path))
	if err != nil || !filepath.IsLocal(rel) {
		return uri
	}
	m.mentioned = append(m.mentioned, filepath.ToSlash(rel))
	return path.Join(workspace, filepath.ToSlash(rel))
}
