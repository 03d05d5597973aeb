package acp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// What marks sandboxes and runs of editors.
const (
	cwdKey   = "acp.cwd" // of a sandbox: the editor's directory
	runLabel = "acp"     // of a run: the session's id
)

// Modes of a session.
const (
	modeAsk  = "ask"
	modePlan = "plan"
	modeAll  = "all"
)

// session is one that the client has open.
type session struct {
	id    string
	cwd   string
	c     *client.Client
	files *files // nil: the editor's directory is not copied

	mu    sync.Mutex
	mode  string
	turn  *turn    // under way
	notes []string // for the person, with the next answer
	run   api.Run  // the newest; "" = none yet
}

// workspace is where a sandbox has its files.
const workspace = "/workspace"

func (s *session) sandbox() *client.Sandbox { return s.c.Sandbox(s.id) }

// note keeps something that the person should know.
func (s *session) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// takeNotes returns what there is to say, once.
func (s *session) takeNotes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}

func (s *session) modeNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode
}

func (s *session) modes() *sdk.SessionModeState {
	mode := func(id, name, about string) sdk.SessionMode {
		return sdk.SessionMode{Id: sdk.SessionModeId(id), Name: name, Description: &about}
	}
	return &sdk.SessionModeState{CurrentModeId: sdk.SessionModeId(s.modeNow()), AvailableModes: []sdk.SessionMode{
		mode(modeAsk, "Ask", "Calls that the agent's policy holds back wait for you"),
		mode(modePlan, "Plan", "Only tools that read, until you accept a plan"),
		mode(modeAll, "Allow all", "Calls that the policy holds back are allowed; they can do nothing outside of the sandbox but what its network permits"),
	}}
}

// checkCwd says what is wrong with a working directory.
func checkCwd(cwd string) error {
	if !filepath.IsAbs(cwd) || strings.ContainsRune(cwd, 0) {
		return errs.New(errs.Invalid, "cwd is no absolute path: %.200q", cwd)
	}
	info, err := os.Stat(cwd)
	if err != nil {
		return errs.New(errs.Invalid, "cwd cannot be used: %.200q is not there", cwd)
	}
	if !info.IsDir() {
		return errs.New(errs.Invalid, "cwd is no directory: %.200q", cwd)
	}
	return nil
}

func (a *Agent) newSession(ctx context.Context, p *sdk.NewSessionRequest) (any, error) {
	if err := checkCwd(p.Cwd); err != nil {
		return nil, err
	}
	c, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	var found *files
	if !a.NoFiles {
		if found, err = openFiles(filepath.Clean(p.Cwd)); err != nil {
			return nil, err
		}
		if err := found.scan(); err != nil { // before there is a sandbox
			return nil, err
		}
	}
	spec := a.Sandbox
	spec.Persist = true
	spec.Metadata = map[string]string{cwdKey: filepath.Clean(p.Cwd)}
	sb, err := c.CreateSandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	s := &session{id: sb.ID, cwd: filepath.Clean(p.Cwd), c: c, files: found, mode: modeAsk}
	if found != nil {
		if err := a.upload(ctx, s); err != nil {
			_ = s.sandbox().WithoutRevisions().Destroy(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	if sb.Isolation == "none" {
		s.note("The agent's programs are not isolated: they run on the server's host as its own do.")
	}
	a.without(s, p.McpServers)
	a.opened(s)
	a.out.announced(s.id)
	return sdk.NewSessionResponse{SessionId: sdk.SessionId(s.id), Modes: s.modes()}, nil
}

// without says that tools of the editor are not used.
func (a *Agent) without(s *session, servers []sdk.McpServer) {
	if len(servers) > 0 {
		s.note("The %d MCP servers of the editor are not used: the agent works on the server, and its tools are those of its definition there.", len(servers))
	}
}

func (a *Agent) opened(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.sessions[s.id]; old != nil {
		s.notes = append(s.notes, old.notes...)
	}
	a.sessions[s.id] = s
}

// session returns one that the client has opened.
func (a *Agent) session(id sdk.SessionId) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[string(id)]
	if s == nil {
		return nil, errs.New(errs.NotFound, "there is no session %.80q", string(id)).WithHint("session/load opens one of before")
	}
	return s, nil
}

// reopen opens a session of before.
func (a *Agent) reopen(ctx context.Context, id sdk.SessionId, cwd string, servers []sdk.McpServer) (*session, error) {
	if err := checkCwd(cwd); err != nil {
		return nil, err
	}
	c, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := c.Sandbox(string(id)).Get(ctx)
	switch {
	case errs.Is(err, errs.NotFound) || err == nil && (sb.ID != string(id) || sb.Metadata[cwdKey] == ""):
		return nil, errs.New(errs.NotFound, "there is no session %.80q", string(id))
	case err != nil:
		return nil, err
	case sb.State == "destroyed":
		return nil, errs.New(errs.NotFound, "the sandbox of session %s was destroyed", sb.ID)
	}
	if old, err := a.session(id); err == nil {
		if err := old.leave(); err != nil {
			return nil, err
		}
	}
	s := &session{id: sb.ID, cwd: filepath.Clean(cwd), c: c, mode: modeAsk}
	if was := sb.Metadata[cwdKey]; was != s.cwd {
		return nil, errs.New(errs.Invalid, "session %s is of the directory %q", sb.ID, was)
	}
	if !a.NoFiles {
		if s.files, err = openFiles(s.cwd); err != nil {
			return nil, err
		}
		if !s.files.restore(a.State, s.id) {
			s.note("What this session and the editor's files have agreed on is not known here: a file that differs is called changed on both sides.")
		}
	}
	for run, err := range c.Runs(ctx, client.RunFilter{Labels: map[string]string{runLabel: s.id}, PageSize: 1}) {
		if err != nil {
			return nil, err
		}
		s.run = run
		break
	}
	if s.run.Planning && !s.run.Final() {
		s.mode = modePlan
	}
	a.without(s, servers)
	a.opened(s)
	return s, nil
}

// leave ends what is under way for a session that is opened anew.
func (s *session) leave() error {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	if t.prompted {
		return errs.New(errs.Conflict, "a prompt is under way in this session")
	}
	t.stop()
	return nil
}

func (a *Agent) resumeSession(ctx context.Context, p *sdk.ResumeSessionRequest) (any, error) {
	s, err := a.reopen(ctx, p.SessionId, p.Cwd, p.McpServers)
	if err != nil {
		return nil, err
	}
	a.later(s)
	return sdk.ResumeSessionResponse{Modes: s.modes()}, nil
}

// loadSession tells all that was said, and goes on telling a run that is under way.
func (a *Agent) loadSession(ctx context.Context, p *sdk.LoadSessionRequest) (any, error) {
	s, err := a.reopen(ctx, p.SessionId, p.Cwd, p.McpServers)
	if err != nil {
		return nil, err
	}
	runs, err := client.All(s.c.Runs(ctx, client.RunFilter{Labels: map[string]string{runLabel: s.id}}))
	if err != nil {
		return nil, err
	}
	slices.Reverse(runs)
	v := a.view(s)
	v.replay = true
	for _, run := range runs {
		for ev, err := range s.c.Run(run.ID).History(ctx, 0) {
			if err != nil {
				return nil, err
			}
			v.event(ctx, "", ev)
			v.next = ev.Seq + 1
		}
	}
	a.later(s)
	if !s.run.Final() && s.run.ID != "" {
		a.watch(s, v)
	}
	return sdk.LoadSessionResponse{Modes: s.modes()}, nil
}

// later greets the client of a session that it knows already.
func (a *Agent) later(s *session) { a.background(func() { a.greet(a.base, s.id) }) }

// greet says which commands there are.
func (a *Agent) greet(ctx context.Context, id string) {
	s, err := a.session(sdk.SessionId(id))
	if err != nil {
		return
	}
	list, err := s.c.SlashCommands(ctx)
	if err != nil {
		return // a key that may not list them has none
	}
	commands := []sdk.AvailableCommand{}
	for _, one := range list {
		if one.Error != "" {
			continue
		}
		commands = append(commands, sdk.AvailableCommand{
			Name: one.Name, Description: one.Description,
			Input: &sdk.AvailableCommandInput{Unstructured: &sdk.UnstructuredCommandInput{Hint: "what else to say"}},
		})
	}
	a.update(id, sdk.SessionUpdate{AvailableCommandsUpdate: &sdk.SessionAvailableCommandsUpdate{AvailableCommands: commands}})
}

// sessionsMax bounds a list of sessions.
const sessionsMax = 200

func (a *Agent) listSessions(ctx context.Context, p *sdk.ListSessionsRequest) (any, error) {
	c, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	title, at := map[string]string{}, map[string]time.Time{}
	n := 0
	for run, err := range c.Runs(ctx, client.RunFilter{}) {
		if err != nil {
			return nil, err
		}
		if n++; n > 10*sessionsMax {
			break
		}
		if id := run.Labels[runLabel]; id != "" {
			title[id] = run.Title // in the end the oldest's
			if at[id].IsZero() {
				at[id] = run.CreatedAt
			}
		}
	}
	out := sdk.ListSessionsResponse{Sessions: []sdk.SessionInfo{}}
	for sb, err := range c.Sandboxes(ctx, client.SandboxFilter{}) {
		if err != nil {
			return nil, err
		}
		cwd := sb.Metadata[cwdKey]
		if cwd == "" || sb.State == "destroyed" || p.Cwd != nil && *p.Cwd != cwd {
			continue
		}
		info := sdk.SessionInfo{SessionId: sdk.SessionId(sb.ID), Cwd: cwd}
		if t := title[sb.ID]; t != "" {
			info.Title = &t
		}
		when := sb.CreatedAt
		if at[sb.ID].After(when) {
			when = at[sb.ID]
		}
		info.UpdatedAt = new(when.UTC().Format(time.RFC3339))
		if out.Sessions = append(out.Sessions, info); len(out.Sessions) == sessionsMax {
			break
		}
	}
	return out, nil
}

// closeSession cancels what is under way, and forgets the session here: it can be loaded.
func (a *Agent) closeSession(_ context.Context, p *sdk.CloseSessionRequest) (any, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t != nil {
		t.askCancel()
		<-t.done
	}
	a.mu.Lock()
	delete(a.sessions, s.id)
	a.mu.Unlock()
	return sdk.CloseSessionResponse{}, nil
}

func (a *Agent) setMode(_ context.Context, p *sdk.SetSessionModeRequest) (any, error) {
	s, err := a.session(p.SessionId)
	if err != nil {
		return nil, err
	}
	mode := string(p.ModeId)
	if !slices.Contains([]string{modeAsk, modePlan, modeAll}, mode) {
		return nil, errs.New(errs.Invalid, "there is no mode %.40q", mode)
	}
	s.mu.Lock()
	s.mode = mode
	s.mu.Unlock()
	return sdk.SetSessionModeResponse{}, nil
}
