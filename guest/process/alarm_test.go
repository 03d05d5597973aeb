package process

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		rang := make(chan time.Duration, 1)
		setAlarm(2500*time.Millisecond, func() { rang <- time.Since(begun) })
		if got := <-rang; got != 2500*time.Millisecond {
			t.Errorf("rang after %s", got)
		}
		a := setAlarm(time.Minute, func() { t.Error("a stopped alarm rang") })
		<-time.After(30 * time.Second)
		a.Stop()
		a.Stop()
		<-time.After(time.Hour)
	})
}
