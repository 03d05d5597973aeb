package server_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The types of the package for Python are those of the API, and its synchronous modules
// are made of the asynchronous ones; -update makes them.
func TestPythonIsUpToDate(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: no python3 on this machine")
	}
	document := filepath.Join(t.TempDir(), "openapi.json")
	must(t, os.WriteFile(document, newWorld(t).send(t, "", http.MethodGet, "/openapi.json", nil).body, 0o600))
	args := []string{"../sdk/python/generate.py", document}
	if !*update {
		args = append(args, "--check")
	}
	if out, err := exec.Command("python3", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
