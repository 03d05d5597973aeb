package task

import (
	"testing"
	"time"
)

func TestOOMs(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	after := func(d time.Duration) time.Time { at = at.Add(d); return at }
	var o OOMs
	o.look(5, after(0)) // what was before is not ours
	if o.rose(5, after(10*time.Millisecond)) {
		t.Error("nothing was counted")
	}
	o.look(5, after(10*time.Millisecond))
	o.look(6, after(10*time.Millisecond)) // counted before the end was told
	if !o.rose(6, after(10*time.Millisecond)) {
		t.Error("one was counted")
	}
	if o.rose(6, after(10*time.Millisecond)) {
		t.Error("it was told already")
	}
	for range 10 { // another's on the same kernel, a while ago
		o.look(9, after(300*time.Millisecond))
	}
	if o.rose(9, after(10*time.Millisecond)) {
		t.Error("that was a while ago")
	}
	o.look(9, after(time.Hour))
	o.look(20, after(time.Hour)) // nothing ran meanwhile
	if o.rose(20, after(10*time.Millisecond)) {
		t.Error("nothing ran meanwhile")
	}
}

func TestOOMKills_table(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "nr_free_pages 1\noom_kill 7\nx 2\n": 7, "oom_kill x\n": 0, "oom_kill": 0, "xoom_kill 3\n": 0, "oom_kill 3": 3,
	} {
		if got := oomKills(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}
