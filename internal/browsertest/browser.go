// Package browsertest drives a headless Chromium in tests: real pages, real
// policies, real cookies.
//
//	b := browsertest.Start(t)             // skips the test where there is none
//	p := b.Open(t, "http://localhost:1234/")
//	p.Until(t, "the list", `document.querySelectorAll("li").length === 3`)
//	p.Do(t, `document.querySelector("button").click()`)
//	if c := p.Complaints(); len(c) > 0 { … } // exceptions, console errors, broken policies
//
// It speaks the DevTools protocol over a pipe. A Browser is safe for concurrent
// use, a Page is for one goroutine. The browser ends with the test.
package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

// Bounds of a test's patience.
const (
	callTimeout  = 30 * time.Second
	untilTimeout = 20 * time.Second
)

// Browser is a running Chromium with a profile of its own.
type Browser struct {
	in io.Writer

	mu      sync.Mutex // guards all below, and in
	next    int
	waiting map[int]chan message
	pages   map[string]*Page // by session
}

// Page is a tab.
type Page struct {
	b       *Browser
	session string

	mu         sync.Mutex
	complaints []string
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type event struct {
	message
	Params json.RawMessage `json:"params"`
}

var names = []string{"chromium", "chromium-browser", "google-chrome"}

// Start starts a browser, with more flags if need be.
func Start(t testing.TB, flags ...string) *Browser {
	t.Helper()
	path := ""
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skipf("no browser: none of %s is installed", strings.Join(names, ", "))
	}
	profile, err := scratch.Dir("browser") // the browser may write into it for a moment after it was killed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	toBrowser, in, err1 := os.Pipe()
	out, fromBrowser, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	cmd := exec.Command(path, slices.Concat([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server", "--remote-debugging-pipe",
		"--user-data-dir=" + profile,
	}, flags, []string{"about:blank"})...)
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = toBrowser.Close()
	_ = fromBrowser.Close()
	b := &Browser{in: in, waiting: map[int]chan message{}, pages: map[string]*Page{}}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(out) })
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // all of its processes
		_ = cmd.Wait()
		reading.Wait()
		_ = in.Close()
		_ = out.Close()
	})
	return b
}

// read hands out what the browser says until it ends.
func (b *Browser) read(out io.Reader) {
	for r := bufio.NewReader(out); ; {
		data, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var e event
		if json.Unmarshal(data[:len(data)-1], &e) != nil {
			continue
		}
		b.mu.Lock()
		c, p := b.waiting[e.ID], b.pages[e.Session]
		delete(b.waiting, e.ID)
		b.mu.Unlock()
		switch {
		case c != nil:
			c <- e.message
		case p != nil && e.ID == 0:
			p.note(e)
		}
	}
}

// note keeps what a page complains about.
func (p *Page) note(e event) {
	var c struct {
		Type  string `json:"type"`
		Entry struct {
			Level, Source, Text, URL string
		} `json:"entry"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
		Details struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if json.Unmarshal(e.Params, &c) != nil {
		return
	}
	text := ""
	switch {
	case e.Method == "Runtime.exceptionThrown":
		text = c.Details.Text + " " + c.Details.Exception.Description
	case e.Method == "Runtime.consoleAPICalled" && c.Type == "error":
		for _, a := range c.Args {
			text += fmt.Sprint(a.Value, a.Description, " ")
		}
	case e.Method == "Log.entryAdded" && c.Entry.Level == "error":
		text = c.Entry.Source + ": " + c.Entry.Text + " " + c.Entry.URL
	}
	if text != "" {
		p.mu.Lock()
		p.complaints = append(p.complaints, text)
		p.mu.Unlock()
	}
}

// Complaints are exceptions, errors on the console, broken policies and failed
// requests so far.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.complaints)
}

func (b *Browser) call(ctx context.Context, session, method string, params any) (json.RawMessage, error) {
	c := make(chan message, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return nil, fmt.Errorf("%s: the browser has ended", method)
	}
	b.next++
	b.waiting[b.next] = c
	data, err := json.Marshal(message{ID: b.next, Session: session, Method: method, Params: params})
	if err == nil {
		_, err = b.in.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := patience.Context(ctx, callTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, ctx.Err())
	case m, ok := <-c:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	}
}

// Call makes a call of the DevTools protocol on a page.
func (p *Page) Call(t testing.TB, method string, params any) json.RawMessage {
	t.Helper()
	res, err := p.b.call(t.Context(), p.session, method, params)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Open opens a page and waits until it is loaded. Cookies are shared by all
// pages of a browser.
func (b *Browser) Open(t testing.TB, url string) *Page {
	t.Helper()
	var made struct {
		TargetID  string `json:"targetId"`
		SessionID string `json:"sessionId"`
	}
	must := func(method string, params any) {
		t.Helper()
		res, err := b.call(t.Context(), "", method, params)
		if err == nil {
			err = json.Unmarshal(res, &made)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	must("Target.createTarget", map[string]any{"url": "about:blank"})
	must("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true})
	p := &Page{b: b, session: made.SessionID}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.Call(t, domain+".enable", struct{}{})
	}
	p.Go(t, url)
	return p
}

// Go leads the page elsewhere and waits until it is loaded.
func (p *Page) Go(t testing.TB, url string) {
	t.Helper()
	var res struct {
		ErrorText string `json:"errorText"`
	}
	if err := json.Unmarshal(p.Call(t, "Page.navigate", map[string]any{"url": url}), &res); err != nil || res.ErrorText != "" {
		t.Fatalf("%s: %v %s", url, err, res.ErrorText)
	}
	p.Until(t, "it is loaded", `document.readyState === "complete" && location.href !== "about:blank"`)
}

func (p *Page) eval(ctx context.Context, js string) (json.RawMessage, error) {
	res, err := p.b.call(ctx, p.session, "Runtime.evaluate", map[string]any{
		"expression": js, "awaitPromise": true, "returnByValue": true, "userGesture": true,
	})
	if err != nil {
		return nil, err
	}
	var v struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Details *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(res, &v); err != nil {
		return nil, err
	}
	if v.Details != nil {
		return nil, fmt.Errorf("%s %s", v.Details.Text, v.Details.Exception.Description)
	}
	return v.Result.Value, nil
}

// Do evaluates an expression, awaits it if it is a promise, and returns its
// value as JSON.
func (p *Page) Do(t testing.TB, js string) string {
	t.Helper()
	v, err := p.eval(t.Context(), js)
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return string(v)
}

// Text evaluates an expression whose value is a text.
func (p *Page) Text(t testing.TB, js string) string {
	t.Helper()
	var s string
	if v := p.Do(t, js); json.Unmarshal([]byte(v), &s) != nil {
		t.Fatalf("%s is no text: %s", js, v)
	}
	return s
}

// Until waits until an expression is true. While the page goes elsewhere it is not.
func (p *Page) Until(t testing.TB, what, js string) {
	t.Helper()
	var err error
	if !patience.Holds(untilTimeout, func() bool {
		var v json.RawMessage
		v, err = p.eval(t.Context(), "Boolean("+js+")")
		return err == nil && string(v) == "true" || t.Context().Err() != nil
	}) || t.Context().Err() != nil {
		t.Fatalf("waited in vain until %s: %v\ncomplaints: %q\nthe page says: %s", what, err, p.Complaints(), p.glance(t.Context()))
	}
}

// glance is what a person would read on the page.
func (p *Page) glance(ctx context.Context) string {
	v, _ := p.eval(ctx, `location.href + "\n" + document.body.innerText.slice(0, 2000)`)
	return string(v)
}

// Key presses a key by its name, as "Tab", "Enter", "ArrowDown", "Escape".
func (p *Page) Key(t testing.TB, name string) {
	t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}
	k := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
	if name == "Enter" {
		k["text"] = "\r"
	}
	p.Call(t, "Input.dispatchKeyEvent", k)
	k["type"] = "keyUp"
	delete(k, "text")
	p.Call(t, "Input.dispatchKeyEvent", k)
}
