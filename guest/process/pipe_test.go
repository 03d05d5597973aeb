package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A command that writes its only word and ends while the kernel is asked is not
// taken for one that wrote nothing.
func TestHolds(t *testing.T) {
	const in, hup = unix.POLLIN, unix.POLLHUP
	for _, c := range []struct {
		name      string
		answers   []int16
		err       error
		data, end bool
	}{
		{"nothing yet", []int16{0}, nil, false, false},
		{"bytes", []int16{in}, nil, true, false},
		{"bytes, and no writer", []int16{in | hup}, nil, true, false},
		{"no writer, without bytes", []int16{hup, hup}, nil, false, true},
		{"the last word in between", []int16{hup, in | hup}, nil, true, false},
		{"interrupted", nil, unix.EINTR, false, false},
		{"no pipe", nil, unix.ENOMEM, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			data, end := holds(func() (int16, error) {
				if c.err != nil {
					return 0, c.err
				}
				asked++
				return c.answers[asked-1], nil
			})
			if data != c.data || end != c.end {
				t.Errorf("data %v, end %v; want %v, %v", data, end, c.data, c.end)
			}
		})
	}
}

func TestPipeHolds(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	want := func(data, end bool) {
		t.Helper()
		if d, e := pipeHolds(fds[0]); d != data || e != end {
			t.Errorf("data %v, end %v; want %v, %v", d, e, data, end)
		}
	}
	want(false, false)
	if _, err := unix.Write(fds[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	want(true, false)
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	want(true, false)
	if _, err := unix.Read(fds[0], make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	want(false, true)
}
