package envd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/route"
)

// This file has what is known here of the template that runs code for clients
// (examples/code-interpreter). Its server is at a port like any other; but what an
// execution changes is a step of the history, as what a command does is.

const (
	interpreterPort     = 49999
	interpreterTemplate = "code-interpreter"
	// codeBytesMax is how much of a request is looked at for a name.
	codeBytesMax = 64 << 10
)

// theirs are names that clients have for templates of ours.
var theirs = map[string]string{baseTemplate: "", "code-interpreter-v1": interpreterTemplate}

// templateName is our name of a template; "" = the default.
func templateName(asked string) string {
	if name, ok := theirs[asked]; ok {
		return name
	}
	return asked
}

// withoutInterpreter adds to an error how the template is made, if that is what is missing.
func withoutInterpreter(template string, err error) error {
	if template != interpreterTemplate || !errs.Is(err, errs.NotFound) {
		return err
	}
	return errs.Wrap(errs.NotFound, err, "no template %q", template).
		WithHint("`skete template build examples/code-interpreter --name %s`, on the server's machine, makes it", interpreterTemplate)
}

// executes reports whether a request for a port runs code.
func executes(r *http.Request, port uint16) bool {
	return port == interpreterPort && r.Method == http.MethodPost && r.URL.Path == "/execute"
}

// execution begins the step of a request that runs code. The caller ends it.
func execution(r *http.Request) route.Step {
	head, _ := io.ReadAll(io.LimitReader(r.Body, codeBytesMax)) // what fails, fails for the proxy again
	r.Body = readCloser{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	return route.Begin(r.Context(), codeName(head))
}

// codeName says in the history what was run.
func codeName(body []byte) string {
	var asked struct{ Code string }
	if json.Unmarshal(body, &asked) != nil || asked.Code == "" {
		return "code"
	}
	return "code " + asked.Code
}

type readCloser struct {
	io.Reader
	io.Closer
}

// atEnd calls end before the reader learns that a body has ended: who has read an answer
// to its end finds its revision.
type atEnd struct {
	io.ReadCloser
	end func()
}

func (a atEnd) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.end()
	}
	return n, err
}
