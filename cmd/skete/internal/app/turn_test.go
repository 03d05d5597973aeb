package app

import (
	"testing"

	"github.com/skete-dev/skete/api"
)

func TestTurnText(t *testing.T) {
	boots, next, later := api.Sandbox{}, api.Sandbox{Waiting: "its turn to boot, which is next"}, api.Sandbox{Waiting: "its turn to boot, 37 before it"}
	for want, creating := range map[string][]api.Sandbox{
		"": {boots},
		"waiting for its turn to boot, 37 before it":                       {later},
		"2 of 3 sandboxes that are being made wait for their turn to boot": {boots, next, later},
	} {
		if got := turnText(creating); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
