package share

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/thread"
)

const run = thread.RunID("run_aaaaaaaaaaaaaaaaaaaa")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clocked returns a store with a clock of its own.
func clocked() (*Store, *kvtest.Memory, *time.Time) {
	kv := kvtest.NewMemory()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := New(kv)
	s.now = func() time.Time { return now }
	return s, kv, &now
}

// A secret finds its share until it expires or is taken back, and is kept nowhere in clear.
func TestStore(t *testing.T) {
	s, kv, now := clocked()
	ctx := t.Context()
	secret, rec, err := s.Create(ctx, Record{Tenant: "a", Run: run, By: "key_1", ByName: "ana"}, 0)
	must(t, err)
	must(t, kv.List(ctx, "", func(k string, v []byte, _ uint64) error {
		if strings.Contains(k+string(v), secret) {
			t.Errorf("the secret is stored in clear: %s %s", k, v)
		}
		return nil
	}))
	got, err := s.Find(ctx, secret)
	must(t, err)
	if got != rec || got.Run != run || !got.ExpiresAt.Equal(now.Add(lastsDefault)) {
		t.Errorf("%+v, made was %+v", got, rec)
	}
	*now = now.Add(time.Minute)
	other, second, err := s.Create(ctx, Record{Tenant: "a", Run: run}, time.Hour)
	must(t, err)
	list, err := s.List(ctx, "a", run)
	must(t, err)
	if len(list) != 2 || list[0] != second || list[1] != rec {
		t.Errorf("%+v", list)
	}
	for _, bad := range []struct {
		tenant string
		run    thread.RunID
		id     string
	}{{"b", run, rec.ID}, {"a", "run_bbbbbbbbbbbbbbbbbbbb", rec.ID}, {"a", run, ""}, {"a", run, "shr_"}, {"a", run, "../" + rec.ID}, {"a", run, "shr_" + strings.Repeat("0", 20)}} {
		if err := s.End(ctx, bad.tenant, bad.run, bad.id); !errs.Is(err, errs.NotFound) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	must(t, s.End(ctx, "a", run, rec.ID))
	*now = now.Add(time.Hour)
	for _, bad := range []string{"", "x", secret, other, strings.ToLower(other), other + "A", other[:25] + "/", strings.Repeat("A", 26), strings.Repeat("A", 1<<16)} {
		if _, err := s.Find(ctx, bad); !errs.Is(err, errs.NotFound) {
			t.Errorf("%.30q: %v", bad, err)
		}
	}
	must(t, s.Sweep(ctx))
	must(t, kv.List(ctx, "", func(k string, _ []byte, _ uint64) error {
		t.Errorf("left is %s", k)
		return nil
	}))
}

func TestStore_limits(t *testing.T) {
	s, kv, now := clocked()
	ctx := t.Context()
	for _, lasts := range []time.Duration{-1, 1, time.Minute - 1, lastsMax + 1} {
		if _, _, err := s.Create(ctx, Record{Tenant: "a", Run: run}, lasts); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", lasts, err)
		}
	}
	for range liveMax {
		_, _, err := s.Create(ctx, Record{Tenant: "a", Run: run}, time.Hour)
		must(t, err)
	}
	if _, _, err := s.Create(ctx, Record{Tenant: "a", Run: run}, 0); !errs.Is(err, errs.Limit) {
		t.Errorf("one more than %d: %v", liveMax, err)
	}
	secret, _, err := s.Create(ctx, Record{Tenant: "b", Run: run}, 0)
	must(t, err)
	*now = now.Add(time.Hour)
	_, _, err = s.Create(ctx, Record{Tenant: "a", Run: run}, 0)
	must(t, err)
	// A record that is damaged is not in the way of the others.
	_, err = kv.Create(ctx, prefix+"shr_damaged", []byte("{"))
	must(t, err)
	must(t, s.Sweep(ctx))
	if list, err := s.List(ctx, "b", run); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	_, err = s.Find(ctx, secret)
	must(t, err)
}

// hostile is text of an agent that wants to be more than that.
const hostile = "</pre></p><script>alert(1)</script><img src=x onerror=alert(2)> \u202egnp.exe\x1b[31m red\x1b[0m \x07 \x1b]0;t"

// What an agent wrote is text on the page, wherever it stands.
func TestPage_textStaysText(t *testing.T) {
	one := 1
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := page{
		Run: api.Run{ID: hostile, Title: hostile, Agent: hostile, State: hostile, Reason: hostile, Text: hostile, CreatedAt: at, EndedAt: &at},
		Story: api.Transcript{Total: 2, Before: 1, Todos: []api.Todo{{Content: hostile, Status: hostile}}, Steps: []api.TranscriptStep{{
			Step: 1, Text: hostile, TextBytes: 9000, Notes: []string{hostile}, Rewound: true, Failures: []api.TranscriptFailure{{Trouble: hostile}},
			Inputs: []api.TranscriptInput{{From: "user", Text: hostile}, {From: hostile, Name: hostile, Text: hostile}},
			Calls:  []api.TranscriptCall{{Tool: hostile, Args: hostile, Status: hostile, Head: hostile, Bytes: 1 << 20, Exit: &one, Approval: &api.TranscriptApproval{Decision: hostile}}},
		}}},
	}
	for _, p := range []page{p, {Problem: hostile}} {
		w := httptest.NewRecorder()
		write(w, http.StatusOK, p)
		body := w.Body.String()
		for _, bad := range []string{"<script", "<img", "\u202e", "\x1b", "\x07", "[31m"} {
			if strings.Contains(body, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		if !strings.Contains(body, "&lt;script&gt;") {
			t.Error("the text is not there")
		}
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "style-src 'nonce-", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("the policy %q lacks %s", policy, want)
			}
		}
		if w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", w.Header())
		}
	}
}

// A run that did not succeed says why.
func TestPage_whyItEnded(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, r := range map[string]api.Run{
		"The run ended as timed out: wall time":          {State: "timed_out", Reason: "wall_time", EndedAt: &at},
		"The run ended as failed: a_b.c is not there":    {State: "failed", Reason: "model", Text: "a_b.c is not there", EndedAt: &at},
		"The run ended as cancelled: no reason is known": {State: "cancelled", EndedAt: &at},
		"The run goes on.":                               {State: "running"},
	} {
		if got := (page{Run: r}).html("n"); !strings.Contains(got, want) {
			t.Errorf("%+v: %s", r, got)
		}
	}
	if got := (page{Run: api.Run{State: "succeeded", Text: "all", EndedAt: &at}}).html("n"); strings.Contains(got, "The run ") {
		t.Errorf("of a run that succeeded: %s", got)
	}
}

// fixed are runs that do not change.
type fixed map[string]api.Transcript

func (f fixed) Run(_ context.Context, tenant string, id thread.RunID) (api.Run, error) {
	if _, ok := f[tenant+" "+string(id)]; !ok {
		return api.Run{}, errs.New(errs.NotFound, "no run %s", id)
	}
	return api.Run{ID: string(id), Title: "of " + tenant}, nil
}

func (f fixed) Story(ctx context.Context, tenant string, id thread.RunID, _, _ int) (api.Run, api.Transcript, error) {
	r, err := f.Run(ctx, tenant, id)
	return r, f[tenant+" "+string(id)], err
}

// The page is that of the secret's run, and says why there is none.
func TestShow(t *testing.T) {
	s, _, now := clocked()
	runs := fixed{"a " + string(run): {Total: 1, Steps: []api.TranscriptStep{{Step: 1, Text: "It is done."}}}}
	svc := &service{Config{s, runs}, make(chan struct{}, 1)}
	secret, rec, err := s.Create(t.Context(), Record{Tenant: "a", Run: run}, 0)
	must(t, err)
	see := func(secret, query string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "/share/x"+query, nil)
		r.SetPathValue("secret", secret)
		w := httptest.NewRecorder()
		svc.show(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := see(secret, ""); code != 200 || !strings.Contains(body, "It is done.") || !strings.Contains(body, "of a") {
		t.Errorf("%d %s", code, body)
	}
	for query, want := range map[string]int{"?before=x": 400, "?before=-1": 400, "?before=99999999999": 400, "?before=1": 200} {
		if code, body := see(secret, query); code != want {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if code, body := see("WRONG", ""); code != 404 || !strings.Contains(body, "nothing is shared at this address") {
		t.Errorf("%d %s", code, body)
	}
	delete(runs, "a "+string(run))
	if code, body := see(secret, ""); code != 404 || !strings.Contains(body, "was removed") {
		t.Errorf("%d %s", code, body)
	}
	*now = rec.ExpiresAt
	if code, _ := see(secret, ""); code != 404 {
		t.Errorf("after its end: %d", code)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(hostile)
	f.Add("\xff\x1b[")
	f.Fuzz(func(t *testing.T, s string) {
		var b writer
		b.text(s)
		if got := b.String(); strings.ContainsAny(got, "<>\"'\x00\x1b\r\u202e\u2066") {
			t.Errorf("%q became %q", s, got)
		}
	})
}
