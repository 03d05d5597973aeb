package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/acp"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
)

// acpEditor is an editor that has the SDK's own client.
type acpEditor struct {
	sdk.Client // methods that are not used
	*sdk.ClientSideConnection
	dir   string
	close func()

	mu   sync.Mutex
	told strings.Builder
}

func (e *acpEditor) SessionUpdate(_ context.Context, n sdk.SessionNotification) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := n.Update.AgentMessageChunk; m != nil && m.Content.Text != nil {
		e.told.WriteString(m.Content.Text.Text)
	}
	return nil
}

// newEditor connects one to an agent as `skete acp` runs it.
func newEditor(t *testing.T, w *world, secret string) *acpEditor {
	t.Helper()
	c, err := client.New(client.Config{URL: w.base, Key: secret})
	must(t, err)
	in, toAgent := io.Pipe()
	fromAgent, out := io.Pipe()
	done := make(chan error, 1)
	a := acp.New(acp.Config{Connect: func(context.Context) (*client.Client, error) { return c, nil }, State: t.TempDir()})
	go func() {
		done <- a.Run(context.Background(), in, out)
		out.Close()
	}()
	e := &acpEditor{dir: t.TempDir()}
	e.close = sync.OnceFunc(func() {
		toAgent.Close()
		must(t, <-done)
		c.Close()
	})
	t.Cleanup(e.close)
	e.ClientSideConnection = sdk.NewClientSideConnection(e, toAgent, fromAgent)
	e.SetLogger(slog.New(slog.DiscardHandler))
	_, err = e.Initialize(t.Context(), sdk.InitializeRequest{ProtocolVersion: sdk.ProtocolVersionNumber, ClientInfo: &sdk.Implementation{Name: "their-editor", Version: "7"}})
	must(t, err)
	return e
}

func (e *acpEditor) newSession(t *testing.T) sdk.SessionId {
	t.Helper()
	s, err := e.NewSession(t.Context(), sdk.NewSessionRequest{Cwd: e.dir, McpServers: []sdk.McpServer{}})
	must(t, err)
	return s.SessionId
}

func (e *acpEditor) say(ctx context.Context, id sdk.SessionId, text string) (sdk.StopReason, error) {
	res, err := e.Prompt(ctx, sdk.PromptRequest{SessionId: id, Prompt: []sdk.ContentBlock{sdk.TextBlock(text)}})
	return res.StopReason, err
}

func codeOf(err error) int {
	if e, ok := errors.AsType[*sdk.RequestError](err); ok {
		return e.Code
	}
	return 0
}

// An editor that goes in the middle of a prompt leaves its run; the next one finds the
// session, and only a cancel of the protocol ends the run.
func TestACP_vanishes(t *testing.T) {
	w := newWorld(t)
	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(t, err)
	defer c.Close()
	state := func(id sdk.SessionId) string {
		for r, err := range c.Runs(t.Context(), client.RunFilter{Labels: map[string]string{"acp": string(id)}}) {
			must(t, err)
			return r.State
		}
		return "none"
	}
	first := newEditor(t, w, w.admin)
	id := first.newSession(t) // of an empty directory: what isolates nothing would put files on the host
	gone := make(chan error, 1)
	go func() { _, err := first.say(context.Background(), id, "work"); gone <- err }()
	patience.Until(t, time.Minute, "the run is under way", func() bool { return state(id) == "running" })
	if _, err := first.say(t.Context(), id, "and this"); codeOf(err) != -32600 {
		t.Errorf("a second prompt: %v", err)
	}
	first.close()
	if err := <-gone; err == nil {
		t.Error("the prompt of an editor that is gone was answered")
	}
	if got := state(id); got != "running" {
		t.Errorf("the run of an editor that is gone is %s", got)
	}

	second := newEditor(t, w, w.admin)
	if _, err := second.say(t.Context(), id, "x"); codeOf(err) != -32002 {
		t.Errorf("a session that was not loaded: %v", err)
	}
	list, err := second.ListSessions(t.Context(), sdk.ListSessionsRequest{Cwd: &first.dir})
	must(t, err)
	if len(list.Sessions) != 1 || list.Sessions[0].SessionId != id {
		t.Errorf("%+v", list.Sessions)
	}
	if _, err := second.ResumeSession(t.Context(), sdk.ResumeSessionRequest{SessionId: id, Cwd: second.dir}); codeOf(err) != -32602 {
		t.Errorf("in another directory: %v", err)
	}
	if _, err := second.LoadSession(t.Context(), sdk.LoadSessionRequest{SessionId: id, Cwd: first.dir, McpServers: []sdk.McpServer{}}); err != nil {
		t.Fatal(err)
	}
	must(t, second.Cancel(t.Context(), sdk.CancelNotification{SessionId: id}))
	patience.Until(t, time.Minute, "the run is cancelled", func() bool { return state(id) == "cancelled" })
}

// Keys that are wrong, and sandboxes that are no sessions, are refused in the protocol's terms.
func TestACP_refused(t *testing.T) {
	w := newWorld(t)
	stranger := newEditor(t, w, "e2b_"+strings.Repeat("0", 40))
	if _, err := stranger.NewSession(t.Context(), sdk.NewSessionRequest{Cwd: stranger.dir, McpServers: []sdk.McpServer{}}); codeOf(err) != -32000 {
		t.Errorf("a wrong key: %v", err)
	}
	if _, err := stranger.Authenticate(t.Context(), sdk.AuthenticateRequest{MethodId: "key"}); codeOf(err) != -32000 {
		t.Errorf("a wrong key: %v", err)
	}
	e := newEditor(t, w, w.admin)
	for _, id := range []string{"sbx_nothing", "../x", w.sandbox()} {
		if _, err := e.LoadSession(t.Context(), sdk.LoadSessionRequest{SessionId: sdk.SessionId(id), Cwd: e.dir, McpServers: []sdk.McpServer{}}); codeOf(err) != -32002 {
			t.Errorf("%s: %v", id, err)
		}
	}
	big, err := os.Create(filepath.Join(e.dir, "big"))
	must(t, err)
	must(t, big.Truncate(33<<20))
	must(t, big.Close())
	if _, err := e.NewSession(t.Context(), sdk.NewSessionRequest{Cwd: e.dir, McpServers: []sdk.McpServer{}}); codeOf(err) != -32600 || !strings.Contains(err.Error(), "big has 33 MB") {
		t.Errorf("a directory that is too large: %v", err)
	}
	must(t, os.Remove(big.Name()))
	id := e.newSession(t)
	for _, blocks := range [][]sdk.ContentBlock{{}, {sdk.TextBlock("  ")}, {sdk.AudioBlock("AAAA", "audio/wav")}, {sdk.TextBlock("x"), sdk.ImageBlock("no base64", "image/png")}, {sdk.TextBlock(strings.Repeat("x", 513<<10))}} {
		if _, err := e.Prompt(t.Context(), sdk.PromptRequest{SessionId: id, Prompt: blocks}); codeOf(err) != -32602 {
			t.Errorf("%d blocks: %v", len(blocks), err)
		}
	}
}
