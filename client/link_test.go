package client

import (
	"testing"

	"github.com/skete-dev/skete/api"
)

// A frame of output that was cut anywhere behind its head is a shorter frame
// of output; no other frame may be taken for whole.
func TestIsOutput_onlyWithSomeOutput(t *testing.T) {
	frame := api.AppendOffsetFrame(nil, api.FrameStdout, 7, []byte("hello"))
	for n := range len(frame) + 1 {
		if got, want := isOutput(frame[:n]), n >= 10; got != want {
			t.Errorf("%d of %d bytes: %v, want %v", n, len(frame), got, want)
		}
	}
	for _, k := range []api.FrameKind{api.FrameStarted, api.FrameExited, api.FrameGap, api.FrameAck, api.FrameProblem, 0xff} {
		if isOutput(api.AppendOffsetFrame(nil, k, 7, []byte("hello"))) {
			t.Errorf("kind %#x cut off is taken for output", byte(k))
		}
	}
}
