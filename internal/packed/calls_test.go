package packed

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"
)

// What is packed comes back as it was, however it is read: programs, and bytes that
// only look like calls.
func TestCalls(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	self = self[:min(len(self), 3<<20)]
	for name, data := range map[string][]byte{
		"nothing":             nil,
		"shorter than a call": {callCode, 1, 2},
		"ends in a call":      {0, 1, callCode, 0xff, 0xff, 0xff, 0xff},
		"ends within a call":  {callCode, 1, 2, 3, 4, callCode, 1},
		"calls in calls":      bytes.Repeat([]byte{callCode}, 999),
		"far":                 {callCode, 0, 0, 0, 0x10, callCode, 0xff, 0xff, 0xff, 0x0f, callCode, 0, 0, 0, 0xf0, callCode, 0, 0, 0, 0x80},
		"before the file":     {callCode, 0xfa, 0xff, 0xff, 0xff},
		"a program":           self,
	} {
		t.Run(name, func(t *testing.T) {
			packed, err := io.ReadAll(newCalls(iotest.OneByteReader(bytes.NewReader(data)), false))
			if err != nil || len(packed) != len(data) {
				t.Fatalf("%d bytes, %v", len(packed), err)
			}
			whole, err := io.ReadAll(newCalls(bytes.NewReader(data), false))
			if err != nil || !bytes.Equal(whole, packed) {
				t.Errorf("how it is read changes it: %v", err)
			}
			back, err := io.ReadAll(newCalls(iotest.HalfReader(bytes.NewReader(packed)), true))
			if err != nil || !bytes.Equal(back, data) {
				t.Errorf("it does not come back: %v", err)
			}
		})
	}
	changed, _ := io.ReadAll(newCalls(bytes.NewReader(self), false))
	if bytes.Equal(changed, self) {
		t.Error("no call of a program was translated")
	}
}

// An error of the source comes behind what was read before it, also the one by which a
// packed program that was cut off is known.
func TestCalls_error(t *testing.T) {
	data := bytes.Repeat([]byte{1, callCode, 3}, 100)
	for _, want := range []error{io.ErrClosedPipe, io.ErrUnexpectedEOF} {
		got, err := io.ReadAll(newCalls(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(want)), false))
		if !errors.Is(err, want) || len(got) != len(data) {
			t.Errorf("%d bytes, %v, want %v", len(got), err, want)
		}
	}
}

func FuzzCalls(f *testing.F) {
	f.Add([]byte{callCode, 0, 0, 0, 0x10, callCode, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		packed, err := io.ReadAll(newCalls(bytes.NewReader(data), false))
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.ReadAll(newCalls(bytes.NewReader(packed), true))
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%x became %x, %v", data, back, err)
		}
	})
}
