package audit_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/audit"
)

// tell appends what is not folded, as callers do.
func tell(t *testing.T, l *audit.Log, kind string, r audit.Record) (appended bool) {
	t.Helper()
	if l.Fold(kind, r) {
		return false
	}
	must(t, l.Append(r))
	return true
}

// told is how often the records of a tenant say that something happened, by what, and how
// many records that takes.
func told(t *testing.T, l *audit.Log, tenant string) (times map[string]int, records int) {
	t.Helper()
	times = map[string]int{}
	for _, r := range list(t, l, audit.Query{Tenant: tenant}) {
		n := 1
		if text := r.Detail["times"]; text != "" {
			var err error
			n, err = strconv.Atoi(text)
			must(t, err)
		}
		times[r.What] += n
		records++
	}
	return times, records
}

// in runs a test in a bubble, with a log whose clock is the bubble's.
func in(t *testing.T, f func(t *testing.T, l *audit.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := audit.Open(t.Context(), audit.Config{Dir: t.TempDir(), Now: time.Now})
		must(t, err)
		f(t, l)
		must(t, l.Close())
	})
}

func refusal(tenant, on string) audit.Record {
	return audit.Record{Tenant: tenant, Who: "skete", What: "network.refused", On: on, Detail: map[string]string{"to": "GET " + on}}
}

// wait lets the bubble's time pass.
func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // synctest: the bubble's clock
	synctest.Wait()
}

// A tenant that floods takes a bounded part of the log, each thing that it did is counted,
// and what others do is written at once.
func TestFold_flood(t *testing.T) {
	in(t, func(t *testing.T, l *audit.Log) {
		const each, steps = 10, 10 * 60 * 10 // a hundred a second for ten minutes
		appended := 0
		for i := range steps {
			for range each {
				if tell(t, l, "a", refusal("noisy", "sbx_a")) {
					appended++
				}
			}
			if appended > 30+600 {
				t.Fatalf("%d records of %d were appended", appended, (i+1)*each)
			}
			if i%600 == 300 && !tell(t, l, "b", refusal("quiet", "sbx_b")) {
				t.Fatal("a tenant that is quiet has to wait")
			}
			wait(100 * time.Millisecond)
		}
		must(t, l.Close())
		times, records := told(t, l, "noisy")
		if d := cmp.Diff(map[string]int{"network.refused": each * steps}, times); d != "" {
			t.Error(d)
		}
		if most := 30 + 600 + 11; records > most || records < 600 {
			t.Errorf("%d records, at most %d", records, most)
		}
		if times, records := told(t, l, "quiet"); times["network.refused"] != 10 || records != 10 {
			t.Errorf("%v in %d records", times, records)
		}
		good(t, "after the flood", l)
	})
}

// What is folded is the newest of those alike, with how many they were and since when; what
// happened once during a flood is as it was.
func TestFold_records(t *testing.T) {
	in(t, func(t *testing.T, l *audit.Log) {
		began := time.Now().UTC()
		for range 30 {
			tell(t, l, "a", refusal("t", "first"))
		}
		for i := range 3 {
			tell(t, l, "a", refusal("t", "host"+strconv.Itoa(i)))
		}
		once := audit.Record{Tenant: "t", Who: "skete", What: "network.allowed", On: "sbx_a", Detail: map[string]string{"secrets": "forge"}}
		if tell(t, l, "a", once) {
			t.Error("the flood does not fill the tenant's share")
		}
		if n := len(list(t, l, audit.Query{})); n != 30 {
			t.Errorf("%d records before the minute is over", n)
		}
		wait(time.Minute)
		var got []audit.Record
		for _, r := range list(t, l, audit.Query{})[30:] {
			if r.N, r.Node = 0, ""; !r.Time.Equal(began) {
				t.Errorf("it is said to have happened at %s, not %s", r.Time, began)
			}
			r.Time = time.Time{}
			got = append(got, r)
		}
		last := refusal("t", "host2")
		last.Detail = map[string]string{"to": "GET host2", "times": "3", "since": began.Format(time.RFC3339)}
		if d := cmp.Diff([]audit.Record{once, last}, got); d != "" {
			t.Error(d)
		}
		wait(time.Minute)
		if l.Folding() != 0 {
			t.Error("a tenant that is quiet is not forgotten")
		}
		if !tell(t, l, "a", refusal("t", "again")) {
			t.Error("a tenant that was quiet has to wait")
		}
	})
}

// Of more kinds than are told apart there is one number, and the closing of a log writes
// what waits.
func TestFold_kinds(t *testing.T) {
	in(t, func(t *testing.T, l *audit.Log) {
		for range 30 {
			tell(t, l, "a", refusal("t", "x"))
		}
		for i := range 1000 {
			tell(t, l, strconv.Itoa(i), refusal("t", strconv.Itoa(i)))
		}
		must(t, l.Close())
		times, records := told(t, l, "t")
		if d := cmp.Diff(map[string]int{"network.refused": 30 + 32, "audit.flooded": 968}, times); d != "" || records != 30+33 {
			t.Errorf("%d records, %s", records, d)
		}
		if l.Fold("a", refusal("t", "late")) {
			t.Error("a log that is closed keeps a record that nothing will write")
		}
	})
}

// Callers of many tenants at once lose nothing.
func TestFold_atOnce(t *testing.T) {
	l := open(t, audit.Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				tell(t, l, "a", refusal("t"+strconv.Itoa(i%4), "x"))
			}
		})
	}
	wg.Wait()
	must(t, l.Close())
	all := map[string]int{}
	for i := range 4 {
		name := "t" + strconv.Itoa(i)
		times, records := told(t, l, name)
		if all[name] = times["network.refused"]; records != 31 {
			t.Errorf("%s: %d records", name, records)
		}
	}
	if d := cmp.Diff(map[string]int{"t0": 1000, "t1": 1000, "t2": 1000, "t3": 1000}, all); d != "" {
		t.Error(d)
	}
}
