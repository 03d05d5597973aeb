// Command witness holds state in memory and tells of itself: over HTTP at
// 127.0.0.1:8000, in JSON, whatever is asked. The tests run it where they
// cannot count on a template's programs.
//
//	witness [NAME=mono:DURATION | NAME=real:DURATION]…
//
// Each argument is a timer: a mono one runs out when that much time has passed
// for the machine, a real one when the wall clock shows the time that it shows
// now plus that much.
package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// told is what is answered.
type told struct {
	Token    string
	Asked    int
	Random   string
	Seeded   float64
	Hostname string
	Time     float64 // seconds since 1970
	Ran      float64 // seconds, by the monotonic clock
	Timers   map[string]fired
}

// fired says when a timer ran out.
type fired struct {
	Times int
	Ran   float64 // as in told
	Time  float64
}

type witness struct {
	begun time.Time

	mu   sync.Mutex
	told told
}

func main() {
	k := &witness{begun: time.Now(), told: told{Token: text(), Timers: map[string]fired{}}}
	for _, arg := range os.Args[1:] {
		if err := k.arm(arg); err != nil {
			fmt.Fprintln(os.Stderr, "witness:", err)
			os.Exit(1)
		}
	}
	fmt.Fprintln(os.Stderr, "witness:", http.ListenAndServe("127.0.0.1:8000", k))
	os.Exit(1)
}

// arm starts one timer.
func (k *witness) arm(arg string) error {
	name, how, _ := strings.Cut(arg, "=")
	clock, text, _ := strings.Cut(how, ":")
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	switch clock {
	case "mono":
		time.AfterFunc(d, func() { k.fire(name) })
		return nil
	case "real":
		return k.armReal(name, d)
	}
	return fmt.Errorf("%q is no clock", clock)
}

// armReal has the kernel watch the wall clock, as cron's successors do.
func (k *witness) armReal(name string, d time.Duration) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(time.Now().Add(d).UnixNano())}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return err
	}
	go func() {
		var count [8]byte
		for {
			if n, err := unix.Read(fd, count[:]); err == nil && n == len(count) {
				for range binary.NativeEndian.Uint64(count[:]) {
					k.fire(name)
				}
			} else if err != unix.EINTR {
				return
			}
		}
	}()
	return nil
}

func (k *witness) fire(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told.Timers[name] = fired{Times: k.told.Timers[name].Times + 1, Ran: k.ran(), Time: now()}
}

func (k *witness) ran() float64 { return time.Since(k.begun).Seconds() }

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func text() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x", b)
}

// ServeHTTP answers with all that the witness knows.
func (k *witness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told.Asked++
	t := k.told
	t.Random, t.Time, t.Ran = text(), now(), k.ran()
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	t.Seeded = mathrand.New(mathrand.NewChaCha8(seed)).Float64()
	t.Hostname, _ = os.Hostname()
	_ = json.NewEncoder(w).Encode(t)
}
