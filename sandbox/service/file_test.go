package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func TestParse_saysWhatIsThere(t *testing.T) {
	got, err := Parse([]byte(`
services:
  web:
    command: npm run dev
    ports: [5173]
    env: {A: b}
    workdir: app
    ready: {http: 5173, path: /health, timeout: 90s}
    restart: on-failure
    limits: {nofile: 1000}
    stop_timeout: 3s
  db:
    argv: [redis-server, --port, "6379"]
    ready: {tcp: 6379}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Name: "db", Argv: []string{"redis-server", "--port", "6379"}, ReadyTCP: 6379},
		{
			Name: "web", Command: "npm run dev", Ports: []int{5173}, Env: map[string]string{"A": "b"}, Workdir: "app", ReadyHTTP: 5173,
			ReadyPath: "/health", ReadyTimeoutMS: 90_000, Restart: "on-failure", Limits: map[string]uint64{"nofile": 1000}, StopTimeoutMS: 3000,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, empty := range []string{"services: {}\n", "{}\n"} {
		if got, err := Parse([]byte(empty)); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", empty, got, err)
		}
	}
}

func TestParse_refusesWithThePlace(t *testing.T) {
	many := "services:\n"
	for i := range servicesMax + 1 {
		many += "  s" + strings.Repeat("x", i) + ": {command: a}\n"
	}
	for in, want := range map[string]string{
		"services:\n  web: {comand: a}\n":                            `did you mean "command"`,
		"services:\n  web: {}\n":                                     "skete.yaml:2",
		"services:\n  web: {command: a, argv: [b]}\n":                "either command or argv",
		"services:\n  web: {command: a, restart: often}\n":           "always, on-failure or never",
		"services:\n  web: {command: a, ready: {http: 1, tcp: 2}}\n": "not by several",
		"services:\n  web: {command: a, ready: {path: /x}}\n":        "a path is for",
		"services:\n  web: {command: a, ports: [70000]}\n":           "70000 is no port",
		"services:\n  web: {command: a, ports: [-1]}\n":              "-1 is no port",
		"services:\n  web: {command: a, limits: {nofile: -1}}\n":     "not in range",
		"services:\n  web: {command: a, ready: {timeout: soon}}\n":   "skete.yaml:2",
		"services:\n  web: {command: a, env: {\"a=b\": c}}\n":        "no environment variable",
		"services:\n  web: {command: a}\n  web: {command: b}\n":      "skete.yaml:3",
		"services: &a\n  web: {command: a}\nx: *a\n":                 "skete.yaml",
		"services: [a]\n":            "skete.yaml:1",
		"a: b\n":                     "not a key",
		many:                         "more than 64",
		strings.Repeat("# ", 64<<10): "skete.yaml",
		"services:\n  web: {command: a}\n---\nservices: {}\n": "skete.yaml",
	} {
		_, err := Parse([]byte(in))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", in, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("services:\n  web: {command: npm run dev, ready: {http: 5173}}\n"))
	f.Add([]byte("services: {a: {argv: [x]}, b: {command: y, limits: {as: 1}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Fatal(err)
		}
		if len(list) > servicesMax {
			t.Fatalf("%d services", len(list))
		}
	})
}
