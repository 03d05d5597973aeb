package qemu

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

// This file says how a guest has ended, from what QEMU and the guest's
// console told last. A guest can say what it likes: it is its own end that it
// explains.

// exitOver reports whether a status means that the guest has ended.
func exitOver(status string) bool {
	switch status {
	case "shutdown", "guest-panicked", "internal-error":
		return true
	}
	return false
}

// exitOf reads an event that means the guest's end.
func exitOf(e qmp.Event) (how string, yes bool) {
	switch e.Name {
	case "SHUTDOWN":
		var data struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(e.Data, &data)
		return data.Reason, true
	case "GUEST_PANICKED":
		return "guest-panicked", true
	}
	return "", false
}

const panicMark = "Kernel panic - not syncing: "

// explainExit makes an exit of QEMU's word for it and the guest's last words.
func explainExit(how, console string) sandbox.Exit {
	_, said, panicked := strings.Cut(console, panicMark)
	said, _, _ = strings.Cut(said, "\n")
	said = strings.TrimSpace(said)
	switch {
	case panicked && (strings.HasPrefix(said, "Out of memory") || strings.Contains(said, "deadlocked on memory")):
		return sandbox.Exit{Reason: sandbox.ReasonOutOfMemory, Detail: fmt.Sprintf("the machine's kernel gave up: %.120q", said)}
	case panicked:
		return sandbox.Exit{Reason: sandbox.ReasonExited, Detail: fmt.Sprintf("the machine's kernel panicked: %.120q", said)}
	case how == "guest-panicked" || how == "internal-error":
		return sandbox.Exit{Reason: sandbox.ReasonExited, Detail: fmt.Sprintf("the machine broke down: %.40q", how)}
	}
	return sandbox.Exit{Reason: sandbox.ReasonExited, Detail: fmt.Sprintf("the guest ended by itself: %.40q", how)}
}
