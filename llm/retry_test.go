package llm

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sequence is a model that fails with its errors one after the other, each
// after a bit of text, and then answers. nil among them is a stream without end.
type sequence struct {
	errors []error
	asked  []time.Duration // when, since the first
	began  time.Time
}

func (s *sequence) Info() Info { return Info{Name: "m"} }

func (s *sequence) Stream(ctx context.Context, _ *Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		if s.began.IsZero() {
			s.began = time.Now()
		}
		n := len(s.asked)
		s.asked = append(s.asked, time.Since(s.began))
		if !yield(Delta{Kind: DeltaText, Text: "hi"}, nil) {
			return
		}
		switch {
		case ctx.Err() != nil:
			yield(Delta{}, ctx.Err())
		case n < len(s.errors) && s.errors[n] != nil:
			yield(Delta{}, s.errors[n])
		case n >= len(s.errors):
			yield(Delta{Kind: DeltaDone, Response: &Response{Message: Assistant(Text("hi"))}}, nil)
		}
	}
}

func fail(t Trouble, after time.Duration) error {
	return &Error{Trouble: t, RetryAfter: after, Model: "m", Cause: errors.New("the server's own words")}
}

func times(n int, err error) (all []error) {
	for range n {
		all = append(all, err)
	}
	return all
}

// run collects what one Stream does: "text", "done", an error's trouble, and
// "failed …" of notify.
func run(ctx context.Context, m Model, p RetryPolicy) (story []string, failures []RetryFailure) {
	for d, err := range Retry(ctx, m, &Request{}, p, func(f RetryFailure) {
		story, failures = append(story, "failed "+string(f.Trouble)), append(failures, f)
	}) {
		switch {
		case errors.Is(err, context.Canceled):
			story = append(story, "cancelled")
		case err != nil:
			story = append(story, "error "+string(TroubleOf(err)))
		default:
			story = append(story, string(d.Kind))
		}
	}
	return story, failures
}

func TestStream_triesAgainWhatMayHelp(t *testing.T) {
	for trouble, most := range map[Trouble]int{
		RateLimited: 8, Overloaded: 8, Transport: 8, Malformed: 3,
		Overflow: 1, Refused: 1, BadRequest: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &sequence{errors: times(100, fail(trouble, 0))}
			story, failures := run(t.Context(), m, RetryPolicy{})
			if len(m.asked) != most || len(failures) != most {
				t.Errorf("%s: %d attempts, told of %d, want %d", trouble, len(m.asked), len(failures), most)
			}
			if last := story[len(story)-1]; last != "error "+string(trouble) {
				t.Errorf("%s: the end is %q", trouble, last)
			}
			for i, f := range failures {
				if f.Attempt != i+1 || f.Last != (i == most-1) || f.Last != (f.Wait == 0) || f.Err.Trouble != trouble {
					t.Errorf("%s: failure %d is %+v", trouble, i, f)
				}
				if f.Text == "" || strings.Contains(f.Text, "own words") {
					t.Errorf("%s: the text for people is %q", trouble, f.Text)
				}
			}
		})
	}
}

func TestStream_goesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &sequence{errors: []error{fail(Overloaded, 0), nil, fail(Transport, 0)}}
		story, _ := run(t.Context(), m, RetryPolicy{})
		want := []string{"text", "failed overloaded", "text", "failed malformed", "text", "failed transport", "text", "done"}
		if diff := cmp.Diff(want, story); diff != "" {
			t.Errorf("story (-want +got):\n%s", diff)
		}
	})
}

func TestStream_countsEachTroubleByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &sequence{errors: []error{fail(Malformed, 0), fail(Transport, 0), fail(Malformed, 0), fail(Transport, 0), fail(Transport, 0)}}
		story, _ := run(t.Context(), m, RetryPolicy{Attempts: 4, Malformed: 3, Wait: time.Millisecond})
		if last := story[len(story)-1]; last != "done" {
			t.Errorf("the end is %q: %v", last, story)
		}
	})
}

func TestStream_waitsLongerEachTimeAndAtRandom(t *testing.T) {
	waits := map[time.Duration]bool{}
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			m := &sequence{errors: times(7, fail(Overloaded, 0))}
			_, failures := run(t.Context(), m, RetryPolicy{Wait: time.Second, WaitMax: 10 * time.Second})
			for i, most := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
				f, waited := failures[i], m.asked[i+1]-m.asked[i]
				if waited != f.Wait || waited < most*time.Second/2 || waited > most*time.Second {
					t.Errorf("wait %d: %s told, %s waited, want %ds at most and half of it at least", i, f.Wait, waited, most)
				}
			}
			waits[failures[0].Wait] = true
		})
	}
	if len(waits) < 2 {
		t.Error("all first waits are the same: clients that failed together come back together")
	}
}

func TestStream_waitsAsLongAsTheServerAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &sequence{errors: []error{fail(RateLimited, 30*time.Second), fail(Overloaded, time.Hour)}}
		_, failures := run(t.Context(), m, RetryPolicy{Wait: time.Second, RetryAfterMax: 90 * time.Second})
		if failures[0].Wait != 30*time.Second {
			t.Errorf("waited %s, asked for 30s", failures[0].Wait)
		}
		if failures[1].Wait != 90*time.Second {
			t.Errorf("waited %s, asked for an hour, 90s are the most", failures[1].Wait)
		}
	})
}

func TestStream_givesUpWhenTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &sequence{errors: times(100, fail(RateLimited, 20*time.Second))}
		began := time.Now()
		story, failures := run(t.Context(), m, RetryPolicy{Attempts: 50, Total: 70 * time.Second})
		if n := len(m.asked); n != 4 || story[len(story)-1] != "error rate_limited" || !failures[3].Last {
			t.Errorf("%d attempts: %v", n, story)
		}
		if waited := time.Since(began); waited != 60*time.Second {
			t.Errorf("gave up after %s: the last wait, after which nothing may begin, was waited too", waited)
		}
	})
}

func TestStream_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(5*time.Second, cancel).Stop()
		m := &sequence{errors: times(100, fail(RateLimited, time.Minute))}
		began := time.Now()
		story, _ := run(ctx, m, RetryPolicy{})
		if diff := cmp.Diff([]string{"text", "failed rate_limited", "cancelled"}, story); diff != "" {
			t.Errorf("story (-want +got):\n%s", diff)
		}
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("it took %s to notice", waited)
		}
	})
}

func TestStream_leavingTheLoopEndsIt(t *testing.T) {
	m := &sequence{errors: times(100, fail(Transport, 0))}
	for range Retry(t.Context(), m, &Request{}, RetryPolicy{}, nil) {
		break
	}
	if len(m.asked) != 1 {
		t.Errorf("%d attempts", len(m.asked))
	}
}

func TestStream_passesOnErrorsThatAreNone(t *testing.T) {
	odd := errors.New("odd")
	m := &sequence{errors: []error{odd}}
	var got error
	for _, err := range Retry(t.Context(), m, &Request{}, RetryPolicy{}, func(RetryFailure) { t.Error("told of it") }) {
		got = err
	}
	if !errors.Is(got, odd) || len(m.asked) != 1 {
		t.Errorf("%v after %d attempts", got, len(m.asked))
	}
}
