package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// TestCommands_whatCannotBeSentIsRefusedHere: nothing reaches the server, and
// nothing is changed on its way.
func TestCommands_whatCannotBeSentIsRefusedHere(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }))
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sb := c.Sandbox("sbx_aaaaaaaaaaaaaaaaaaaa")
	long := strings.Repeat("x", 128<<10)
	for want, p := range map[string]api.StartProcess{
		"argument 1 is not UTF-8":                   {Argv: []string{"echo", "a\xff"}},
		"the command line is not UTF-8":             {Command: "echo \xff"},
		"the code is not UTF-8":                     {Code: "\xff"},
		`the environment variable "A" is not UTF-8`: {Argv: []string{"true"}, Env: map[string]string{"A": "\xff"}},
		"the working directory":                     {Argv: []string{"true"}, Cwd: "/\xff"},
		"argument 2 has 131072 bytes, more than":    {Argv: []string{"echo", "a", long}},
		"the command line has 131072 bytes":         {Command: long},
		"the command has 4097 arguments":            {Argv: make([]string, 4097)},
		"environment have 131078 bytes together":    {Argv: []string{"echo", long[:65<<10], long[:63<<10-1]}},
		"environment have 131079 bytes together":    {Argv: []string{"true"}, Env: map[string]string{"A": long[:64<<10], "B": long[:64<<10-4]}},
		"environment have 131080 bytes together":    {Command: long[:64<<10], Env: map[string]string{"ABCDE": long[:64<<10+1]}},
	} {
		cmd := sb.Command()
		cmd.Spec = p
		_, serr := sb.StartProcess(t.Context(), p)
		_, rerr := sb.RunCommand(t.Context(), api.RunCommand{Argv: p.Argv, Command: p.Command, Code: p.Code, Env: p.Env, Cwd: p.Cwd})
		for _, err := range []error{serr, rerr, cmd.Run(t.Context())} {
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// TestBodies_textThatIsNotUTF8IsRefusedHere: JSON would change it silently.
func TestBodies_textThatIsNotUTF8IsRefusedHere(t *testing.T) {
	asked, sent := 0, []byte(nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		sent, _ = io.ReadAll(r.Body)
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, sb, broken := t.Context(), c.Sandbox("sbx_aaaaaaaaaaaaaaaaaaaa"), "a\xff"
	create := func(spec api.CreateSandbox) error {
		_, err := c.CreateSandbox(ctx, spec)
		return err
	}
	start := func(r api.StartRun) error {
		_, err := c.StartRun(ctx, r)
		return err
	}
	declare := func(d api.ServiceSpec) error {
		_, err := sb.Services().Declare(ctx, d, 0)
		return err
	}
	for want, err := range map[string]error{
		"name is not UTF-8":                         create(api.CreateSandbox{Name: broken}),
		"env.A is not UTF-8":                        create(api.CreateSandbox{Env: map[string]string{"A": broken}}),
		`the name "a\xff" in metadata is not UTF-8`: create(api.CreateSandbox{Metadata: map[string]string{broken: "x"}}),
		"services[1].argv[0] is not UTF-8":          create(api.CreateSandbox{Services: []api.ServiceSpec{{Name: "a"}, {Argv: []string{broken}}}}),
		"command is not UTF-8":                      declare(api.ServiceSpec{Name: "web", Command: broken}),
		"title is not UTF-8":                        start(api.StartRun{Title: broken}),
		"labels.a is not UTF-8":                     start(api.StartRun{Labels: map[string]string{"a": broken}}),
		"schema is not UTF-8":                       start(api.StartRun{Schema: json.RawMessage(`{"title":"` + broken + `"}`)}),
	} {
		if !errs.Is(err, errs.Invalid) || !strings.HasPrefix(errs.Public(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if asked > 0 {
		t.Fatalf("the server was asked %d times", asked)
	}
	r := api.RunCommand{Argv: []string{"cat"}, Stdin: broken} // carried as bytes
	if _, err := sb.RunCommand(ctx, r); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	var moved api.MoveFile
	if _, err := sb.Files().Move(ctx, broken, "b", false); err != nil || json.Unmarshal(sent, &moved) != nil {
		t.Fatalf("%v: %s", err, sent)
	}
	if string(moved.SourceBytes) != broken || moved.DestinationBytes != nil || moved.Destination != "b" {
		t.Errorf("a path goes as its bytes: %s", sent)
	}
}
