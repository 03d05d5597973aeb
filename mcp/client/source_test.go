package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

// dot is a picture.
var dot = func() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1)))
	return b.Bytes()
}()

// inMachine is a machine that has this test's binary as the program of servers.
type inMachine struct {
	*machine.Machine
	program string
	place   tool.Place
}

func newMachine(t testing.TB) *inMachine {
	t.Helper()
	m := machine.Start(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m2 := &inMachine{Machine: m, program: filepath.Join(m.Workdir, "server")}
	copyFile(t, m2.program, self)
	m2.place = tool.Place{Tenant: "t", Agent: "a", Thread: "thr_1", Machine: "sbx_1", Boot: "1", Dir: m.Workdir, Commands: guest.NewCommands(m.Client)}
	return m2
}

func copyFile(t testing.TB, to, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}

// server is one of the kinds in main_test.go.
func (m *inMachine) server(kind string) client.Server {
	return client.Server{Command: m.program, Env: map[string]string{"TEST_MCP_SERVER": kind}, TimeoutS: 30}
}

func source(t testing.TB, c client.Config) *client.Source {
	t.Helper()
	if problems := client.Check(c.Servers); len(problems) > 0 {
		t.Fatal(problems)
	}
	s := client.New(c)
	t.Cleanup(func() { s.Close() })
	return s
}

// found returns the tools by their names.
func found(t testing.TB, s *client.Source, p tool.Place) (map[string]tool.External, []string) {
	t.Helper()
	list, notes, err := s.Find(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]tool.External{}
	for _, e := range list {
		if e.Source != client.Name || tools[e.Spec.Name].Spec.Name != "" {
			t.Errorf("tool %+v", e)
		}
		tools[e.Spec.Name] = e
	}
	return tools, notes
}

// said is what a result says: its code, and its text.
func said(r tool.Result) string {
	var b strings.Builder
	if r.Failed {
		fmt.Fprintf(&b, "failed %s ", r.Code)
	}
	for _, x := range r.Blocks {
		if x.Kind == llm.KindMedia {
			fmt.Fprintf(&b, "<%s>", x.Media.Type)
		}
		b.WriteString(x.Text)
	}
	return b.String()
}

func call(t testing.TB, s *client.Source, p tool.Place, e tool.External, args string) string {
	t.Helper()
	if e.Spec.Name == "" {
		t.Fatal("no such tool")
	}
	r, err := s.Call(t.Context(), p, e, tool.Request{Args: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	return said(r)
}

func TestSource_stdio(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, notes := found(t, s, m.place)
	if len(notes) > 0 {
		t.Fatal(notes)
	}
	var names []string
	for n := range tools {
		names = append(names, strings.TrimPrefix(n, "mcp__good__"))
	}
	slices.Sort(names)
	if d := cmp.Diff([]string{"ask", "count", "die", "echo", "fail", "grow", "hang", "look", "mcp__get_prompt", "mcp__list_prompts", "mcp__list_resources", "mcp__read_resource", "media", "roots", "step", "structured"}, names); d != "" {
		t.Fatal(d)
	}
	if e := tools["mcp__good__look"]; e.Class != tool.Once || e.Asks || !json.Valid(e.Spec.Schema) || e.Spec.Description != "Does look" {
		t.Errorf("a server that is not trusted decided: %+v", e)
	}
	for _, c := range []struct{ name, args, want string }{
		{"good__count", `{}`, "1"},
		{"good__count", `{}`, "2"}, // the same process
		{"good__fail", `{}`, "failed  it did not work"},
		{"good__structured", `{}`, `{"a":1}`},
		{"good__media", `{}`, `<image/png>[an image of 10 bytes (image/png), which is not shown][a sound of 4 bytes (audio/wav), which you cannot hear][resource file:///a: a ][resource file:///b:]bb`},
		{"list_resources", `{"server":"good"}`, "note://1\tfirst\t\n"},
		{"read_resource", `{"server":"good","uri":"note://1"}`, "[resource note://1:]remember"},
		{"list_prompts", `{"server":"good"}`, "greet\twho how?\tGreets\nlong\t\t\n"},
		{"get_prompt", `{"server":"good","name":"greet","arguments":{"who":"Ann"}}`, "[user:]Greet Ann[assistant:][resource note://2:]politely"},
		{"get_prompt", `{"server":"good","name":"greet","arguments":{"who":7}}`, "failed invalid_arguments Error: invalid_arguments"},
		{"get_prompt", `{"server":"good","name":"long"}`, strings.Repeat("[user:]x", 100) + "[50 more messages were left out]"},
		{"get_prompt", `{"server":"good","name":"none"}`, "failed invalid_arguments Error: invalid_arguments: the MCP server says: unknown prompt \"none\""},
		{"read_resource", `{"server":"bad","uri":"note://1"}`, `failed invalid_arguments Error: invalid_arguments: there is no MCP server "bad"`},
	} {
		if got := call(t, s, m.place, tools["mcp__"+c.name], c.args); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	other := m.place
	other.Thread = "thr_2"
	if got := call(t, s, other, tools["mcp__good__count"], `{}`); got != "1" {
		t.Errorf("another thread has the same process: %q", got)
	}
}

func TestSource_progress(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(t, s, m.place)
	var mu sync.Mutex
	var seen []string
	r, err := s.Call(t.Context(), m.place, tools["mcp__good__step"], tool.Request{Emit: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, text)
	}})
	mu.Lock()
	defer mu.Unlock()
	if d := cmp.Diff([]string{"1/3 step\n", "2/3 step\n", "3/3 step\n"}, seen); err != nil || said(r) != "done" || d != "" {
		t.Error(said(r), err, d)
	}
}

func TestSource_crash(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(t, s, m.place)
	call(t, s, m.place, tools["mcp__good__count"], `{}`)
	got := call(t, s, m.place, tools["mcp__good__die"], `{}`)
	if !strings.HasPrefix(got, "failed interrupted ") || !strings.Contains(got, "something broke") {
		t.Error(got)
	}
	if got := call(t, s, m.place, tools["mcp__good__count"], `{}`); got != "1" {
		t.Errorf("after the crash: %q", got)
	}
}

func TestSource_crashLoopBacksOff(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"bad": m.server("crash")}})
	var notes []string
	for range 5 {
		var tools map[string]tool.External
		if tools, notes = found(t, s, m.place); len(tools) > 0 {
			t.Fatal(tools)
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no such license") || !strings.Contains(notes[0], "is started again in") {
		t.Error(notes)
	}
}

func TestSource_cancelled(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(t, s, m.place)
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	go func() { <-started; cancel(tool.ErrCancelled) }()
	close(started)
	if _, err := s.Call(ctx, m.place, tools["mcp__good__hang"], tool.Request{}); err == nil || context.Cause(ctx) != tool.ErrCancelled { //nolint:errorlint // the very one
		t.Error(err)
	}
	if got := call(t, s, m.place, tools["mcp__good__count"], `{}`); got != "1" {
		t.Errorf("the server is gone: %q", got)
	}
}

func TestSource_serverIsToldOfCancellation(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	conf := m.server("good")
	conf.TimeoutS = 1
	s := source(t, client.Config{Servers: map[string]client.Server{"good": conf}})
	tools, _ := found(t, s, m.place)
	if got := call(t, s, m.place, tools["mcp__good__hang"], `{}`); !strings.HasPrefix(got, "failed timeout ") {
		t.Error(got)
	}
	patience.Until(t, 20*time.Second, "the server to hear of it", func() bool {
		_, err := os.Stat(filepath.Join(m.Workdir, "cancelled"))
		return err == nil
	})
}

func TestSource_toolsThatChange(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(t, s, m.place)
	if got := call(t, s, m.place, tools["mcp__good__grow"], `{}`); got != "grown" {
		t.Fatal(got)
	}
	patience.Until(t, 20*time.Second, "the change to be seen", func() bool {
		return strings.HasPrefix(call(t, s, m.place, tools["mcp__good__count"], `{}`), "failed conflict ")
	})
	if got := call(t, s, m.place, tools["mcp__good__look"], `{}`); !strings.HasPrefix(got, "failed unknown_tool ") {
		t.Error(got)
	}
	again, _ := found(t, s, m.place)
	if got := call(t, s, m.place, again["mcp__good__count"], `{}`); got != "another" {
		t.Error(got)
	}
}

func TestSource_questionsAreToldToTheModel(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(t, s, m.place)
	if got := call(t, s, m.place, tools["mcp__good__ask"], `{}`); got != "cancel <nil>[the server wanted to ask a person: Which colour?. No person could be asked during the call]" {
		t.Error(got)
	}
	if got := call(t, s, m.place, tools["mcp__good__roots"], `{}`); got != "file://"+m.Workdir {
		t.Error(got)
	}
}

// The program of a server that was killed is ended by the next one.
func TestSource_orphansAreEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	conf := client.Config{Servers: map[string]client.Server{"good": m.server("good")}}
	other := m.place
	other.Thread = "thr_2"
	killed := source(t, conf) // its Close comes after all else
	found(t, killed, m.place)
	found(t, killed, other)
	commands := guest.NewCommands(m.Client)
	before, err := commands.List(t.Context(), "pipe.")
	if err != nil || len(before) != 2 || !before[0].Running {
		t.Fatal(before, err)
	}
	s := source(t, conf)
	tools, _ := found(t, s, m.place)
	after, err := commands.List(t.Context(), "pipe.")
	if err != nil || len(after) != 1 || !after[0].Running || after[0].Key == before[0].Key || after[0].Key == before[1].Key {
		t.Error(after, err)
	}
	call(t, s, m.place, tools["mcp__good__count"], `{}`)
	s.Release("t", "thr_1")
	if after, err = commands.List(t.Context(), "pipe."); err != nil || len(after) != 0 {
		t.Error(after, err)
	}
}

func TestSource_serversThatLie(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, c := range []struct{ kind, note, answer string }{
		{kind: "version", note: "it speaks no version of the protocol that skete does"},
		{kind: "garbage", note: `it writes what is no message of the protocol: "garbage"`},
		{kind: "chatty", answer: "went"},
		{kind: "pages"},
		{kind: "ids", answer: "went"},
		{kind: "flood", answer: "went"},
		{kind: "stderr", answer: "went"},
		{kind: "huge", answer: "failed too_large "},
		{kind: "asks", answer: "failed interrupted "},
		{kind: "badcontent", answer: "failed "},
		{kind: "silent", answer: "failed timeout "},
	} {
		t.Run(c.kind, func(t *testing.T) {
			conf := m.server(c.kind)
			if c.kind == "silent" {
				conf.TimeoutS = 1
			}
			s := source(t, client.Config{Servers: map[string]client.Server{"x": conf}})
			tools, notes := found(t, s, m.place)
			if got := strings.Join(notes, "|"); c.note == "" && got != "" || !strings.Contains(got, c.note) {
				t.Fatal(got)
			}
			if c.answer == "" {
				return
			}
			if got := call(t, s, m.place, tools["mcp__x__go"], `{}`); !strings.HasPrefix(got, c.answer) || len(got) > 2000 {
				t.Errorf("%.500q", got)
			}
		})
	}
}

// What a server says of its tools is data: it is bounded, and decides nothing.
func TestSource_oddTools(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"x": m.server("odd")}})
	tools, notes := found(t, s, m.place)
	if len(tools) != 4 || len(notes) != 4 {
		t.Fatal(len(tools), notes)
	}
	for name, e := range tools {
		if len(name) > 64 || len(e.Spec.Description) > 4<<10 || strings.ContainsAny(e.Spec.Description, "\x1b\x00\u202e") {
			t.Errorf("%q: %q", name, e.Spec.Description)
		}
	}
	if e := tools["mcp__x__lies"]; e.Class != tool.Once || !strings.HasPrefix(e.Spec.Description, "[2JIMPORTANT") {
		t.Errorf("%+v", e)
	}
}
