package server_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/test/browser"
)

// The types of the npm package are made of the schemas that this server documents, by
// openapi-typescript; the first line says of which.
func TestTypeScriptTypes(t *testing.T) {
	w := newWorld(t)
	var doc map[string]any
	must(t, json.Unmarshal(w.send(t, "", http.MethodGet, "/openapi.json", nil).body, &doc))
	doc["paths"] = map[string]any{} // the package has methods of its own
	doc["info"] = map[string]any{"title": "skete", "version": "1"}
	delete(doc, "servers")
	whole, err := json.Marshal(doc)
	must(t, err)
	const file = "../sdk/typescript/src/openapi.ts"
	first := fmt.Sprintf("// Of the schemas with the SHA-256 %x; go test ./server -run TestTypeScriptTypes -args -update makes it anew.\n", sha256.Sum256(whole))
	if *update {
		source := filepath.Join(t.TempDir(), "openapi.json")
		must(t, os.WriteFile(source, whole, 0o644))
		cli := filepath.Join(browser.Install(t, "../sdk/typescript"), "openapi-typescript", "bin", "cli.js")
		types, err := exec.Command(browser.Node(t), cli, source).Output()
		must(t, err)
		must(t, os.WriteFile(file, append([]byte(first), types...), 0o644))
		return
	}
	types, err := os.ReadFile(file)
	must(t, err)
	if !strings.HasPrefix(string(types), first) {
		t.Errorf("%s is not made of the schemas that the server has now: its first line has to be\n%s", file, first)
	}
}
