package ui

import (
	"os"
	"sync"
	"testing"

	"github.com/skete-dev/skete/test/bench/report"
)

// benchEnv names a file to which what was measured is added as lines of make bench.
const benchEnv = "SKETE_TEST_BENCH"

var reporter = sync.OnceValues(func() (*report.Reporter, error) {
	f, err := os.OpenFile(os.Getenv(benchEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return report.New(f), err
})

// number notes what was measured, with the target of the UI's specification. Tests assert by
// counts and ratios: the number is for people, and for make bench.
func number(t *testing.T, name string, v float64, unit, target, note string) {
	t.Helper()
	t.Logf("%s: %.1f %s", name, v, unit)
	if os.Getenv(benchEnv) == "" {
		return
	}
	r, err := reporter()
	if err != nil {
		t.Fatal(err)
	}
	r.Value("ui: "+name, v, unit, target, note)
}
