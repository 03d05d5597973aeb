package fault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuard_endsASilentRequestAndCountsOnlyTheServersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx := NewGuard(t.Context(), time.Minute, 100)
		defer g.Close()
		for range 10 { // the server is quick, we are slow
			g.Arm()
			<-time.After(59 * time.Second) // in a bubble: no real time
			g.Disarm()
			<-time.After(time.Hour)
		}
		if ctx.Err() != nil || g.Cause() != nil {
			t.Fatalf("ended too early: %v", g.Cause())
		}
		g.Arm()
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != time.Minute || !errors.Is(g.Cause(), ErrSilent) {
			t.Errorf("ended after %v for %v", took, g.Cause())
		}
	})
}

func TestGuard_callersEndIsNotSilence(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	g, ctx := NewGuard(parent, time.Hour, 1)
	defer g.Close()
	cancel()
	<-ctx.Done()
	if g.Cause() != nil {
		t.Errorf("Cause = %v", g.Cause())
	}
}

func TestGuard_boundsBytesOverAllBodies(t *testing.T) {
	g, _ := NewGuard(t.Context(), time.Hour, 10)
	defer g.Close()
	if b, err := io.ReadAll(g.Body(io.NopCloser(strings.NewReader("123456")))); err != nil || len(b) != 6 {
		t.Fatalf("%q, %v", b, err)
	}
	_, err := io.ReadAll(g.Body(io.NopCloser(strings.NewReader("78901"))))
	if !errors.Is(err, ErrTooLong) || !errors.Is(g.Cause(), ErrTooLong) {
		t.Errorf("err = %v, cause = %v", err, g.Cause())
	}
}

func TestReset(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cases := []struct {
		header string // name: value|…
		want   time.Duration
	}{
		{"", 0},
		{"anthropic-ratelimit-requests-remaining: 0|anthropic-ratelimit-requests-reset: 2026-11-21T12:00:30Z|" +
			"anthropic-ratelimit-tokens-remaining: 5|anthropic-ratelimit-tokens-reset: 2026-11-21T13:00:00Z", 30 * time.Second},
		{"anthropic-ratelimit-requests-remaining: 0|anthropic-ratelimit-requests-reset: 2026-11-21T11:00:00Z", 0},
		{"anthropic-ratelimit-requests-remaining: 0|anthropic-ratelimit-requests-reset: 2099-11-21T11:00:00Z", time.Hour},
		{"x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 6m0s|x-ratelimit-remaining-requests: 0|x-ratelimit-reset-requests: 1s", 6 * time.Minute},
		{"x-ratelimit-remaining-tokens: 0", 0},
		{"x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: soon", 0},
	}
	for _, c := range cases {
		h := http.Header{}
		for line := range strings.SplitSeq(c.header, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h.Set(name, value)
			}
		}
		if got := Reset(h, now); got != c.want {
			t.Errorf("%q: %v, want %v", c.header, got, c.want)
		}
	}
}

func TestResetText(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Rate limit reached. Please try again in 1.2s. Visit": 1200 * time.Millisecond,
		"try again in 350ms":                    350 * time.Millisecond,
		"Try again in 2m":                       2 * time.Minute,
		"try again in 99999999999999999999999s": 0,
		"try again later":                       0,
	} {
		if got := ResetText(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\n\t\"\\/", "é\u2028\U0001f600", "\xff\xc3", "<&>", strings.Repeat("x", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(AppendString(nil, s), &got); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		enc, err := json.Marshal(s) // the reference: what it makes of s
		if err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(enc, &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q became %q, want %q", s, got, want)
		}
	})
}

func BenchmarkAppendString(b *testing.B) {
	s := strings.Repeat("A line of quite ordinary text, with a \"quote\" and an end.\n", 18000)
	b.SetBytes(int64(len(s)))
	var dst []byte
	for b.Loop() {
		dst = AppendString(dst[:0], s)
	}
}
