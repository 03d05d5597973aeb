package client_test

import (
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
