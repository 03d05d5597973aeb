package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// This file measures the code interpreter beside a kernel that is asked in its machine by
// jupyter_client alone.

// interpreterKept are the templates that TestInterpreter has built.
const interpreterKept = ".build/template/code-interpreter-*"

// bareCell starts a kernel, runs a cell, and prints the milliseconds until it has ended.
const bareCell = `import time
from jupyter_client.manager import start_new_kernel
began = time.monotonic()
manager, client = start_new_kernel(kernel_name="python3", cwd="/workspace")
client.execute_interactive("1 + 1", output_hook=lambda m: None)
print((time.monotonic() - began) * 1000)
client.stop_channels()
manager.shutdown_kernel(now=True)
`

// interpreterPort adds what says that a request is for the interpreter of a sandbox.
type interpreterPort struct{ *bridged }

// RoundTrip implements http.RoundTripper.
func (x interpreterPort) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range map[string]string{"E2b-Sandbox-Id": x.id, "E2b-Sandbox-Port": "49999", "X-Access-Token": x.token} {
		r.Header.Set(name, value)
	}
	return x.http.Transport.RoundTrip(r)
}

func (b *bench) interpreter(s *server) error {
	kept, err := filepath.Glob(interpreterKept)
	if err != nil || len(kept) == 0 {
		b.Skipped("interpreter", "ms", "no template is kept: go test ./test/e2e -run TestInterpreter builds it")
		return err
	}
	bundle, err := os.Open(kept[len(kept)-1])
	if err != nil {
		return err
	}
	defer bundle.Close()
	if _, err := s.c.ImportTemplate(b.ctx, "code-interpreter", bundle); err != nil {
		return err
	}
	x, err := s.bridgedOf(b.ctx, "code-interpreter")
	if err != nil {
		return err
	}
	c := &http.Client{Transport: interpreterPort{x}}
	post := func(path string, body any) (string, error) {
		text, err := json.Marshal(body)
		if err != nil {
			return "", err
		}
		out, err := x.send(b.ctx, c, http.MethodPost, path, "application/json", text)
		return string(out), err
	}
	cell := func(context string) error {
		out, err := post("/execute", map[string]string{"code": "1 + 1", "context_id": context})
		if err == nil && !strings.Contains(out, `"text": "2"`) {
			err = fmt.Errorf("the cell answered %q", out)
		}
		return err
	}
	warm, err := b.times(50, func() error { return cell("") })
	if err != nil {
		return err
	}
	b.Millis("interpreter: a cell, its kernel warm", warm, "<= 50 ms", "1 + 1, with its step of the history")
	var fresh, bare []time.Duration
	for range b.count(10) {
		var made struct{ ID string }
		d, err := timed(func() error {
			out, err := post("/contexts", map[string]string{})
			if err == nil {
				err = json.Unmarshal([]byte(out), &made)
			}
			if err == nil {
				err = cell(made.ID)
			}
			return err
		})
		if err == nil { // it has the memory of half a dozen kernels
			_, err = x.send(b.ctx, c, http.MethodDelete, "/contexts/"+made.ID, "", nil)
		}
		if err != nil {
			return err
		}
		fresh = append(fresh, d)
		out, err := s.c.Sandbox("sbx_"+x.id).Command("python3", "-c", bareCell).Output(b.ctx)
		if err != nil {
			return err
		}
		var ms float64
		if _, err := fmt.Sscan(string(out), &ms); err != nil {
			return err
		}
		bare = append(bare, time.Duration(ms*float64(time.Millisecond)))
	}
	a, d := b.Millis("interpreter: first cell of a new context", fresh, "", ""), b.Millis("jupyter_client: first cell of a new kernel", bare, "", "in the same machine")
	b.Value("ratio: interpreter / jupyter_client, first cell", a/d, "x", "<= 1.2", "p50 / p50")
	return nil
}

func (b *bench) times(n int, do func() error) (all []time.Duration, err error) {
	for range b.count(n) {
		d, err := timed(do)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
