package server_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// What is wrong with a field is said once, in words and with a unit; where the
// JSON layer finds it, errors name its place.
func TestFields_errorsAreInWords(t *testing.T) {
	w := newWorld(t)
	foreign := regexp.MustCompile(`_mb|_ms\b|_max|_iops|_mbps|expected|e\+0`)
	for _, tt := range []struct{ field, value, word string }{
		{"cpus", "999", "cpus"},
		{"cpus", "-1", "cpus"},
		{"memory_mb", "1", "memory"},
		{"memory_mb", "999999999", "memory"},
		{"memory_mb", "-5", "memory"},
		{"disk_mb", "-1", "disk"},
		{"disk_mb", "999999999", "disk"},
		{"pids_max", "1", "pids"},
		{"pids_max", "-1", "pids"},
		{"disk_mbps", "-1", "megabytes a second"},
		{"disk_mbps", "100001", "megabytes a second"},
		{"disk_iops", "99999999", "operations a second"},
		{"ttl_ms", "10", "ttl"},
		{"ttl_ms", "9223372036854775807", "ttl"},
		{"idle_timeout_ms", "10", "idle timeout"},
		{"idle_timeout_ms", "99999999999", "idle timeout"},
		{"name", `"a/b"`, "name"},
		{"name", `"` + strings.Repeat("n", 65) + `"`, "name"},
		{"template", `"A"`, "template"},
		{"provider", `"X"`, "provider"},
		{"language", `"cobol"`, "language"},
		{"workdir", `"rel"`, "workdir"},
		{"env", `{"1A":"x"}`, "env"},
		{"metadata", `{"":"x"}`, "metadata"},
	} {
		a := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", strings.NewReader(`{"`+tt.field+`":`+tt.value+`}`), "Content-Type", "application/json")
		var p api.Problem
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusBadRequest {
			t.Errorf("%s %s: %d %s", tt.field, tt.value, a.status, a.body)
			continue
		}
		said := strings.ReplaceAll(p.Detail, strings.Trim(tt.value, `"`), "")
		if n := strings.Count(said, tt.word); n != 1 || foreign.MatchString(said) {
			t.Errorf("%s %s: %q is there %d times in %q", tt.field, tt.value, tt.word, n, p.Detail)
		}
	}
	for body, want := range map[string]api.FieldError{
		`{"ttl_ms":-1}`:         {Location: "body.ttl_ms", Message: "less than 0"},
		`{"require":"nothing"}`: {Location: "body.require", Message: "none of microvm, microvm-emulated, user-kernel, container, none"},
		`{"memory":1}`:          {Location: "body.memory", Message: "there is no such field"},
	} {
		a := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", strings.NewReader(body), "Content-Type", "application/json")
		var p api.Problem
		if err := json.Unmarshal(a.body, &p); err != nil || len(p.Errors) != 1 || p.Errors[0].Location != want.Location || p.Errors[0].Message != want.Message {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}
