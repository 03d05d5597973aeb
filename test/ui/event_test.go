package ui

import (
	"encoding/json"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// textOf is what a model said in an event.
func textOf(t *testing.T, e api.RunEvent) (text string) {
	t.Helper()
	data, err := json.Marshal(e)
	var typed thread.Event
	if err == nil {
		err = json.Unmarshal(data, &typed)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, is := typed.Body.(thread.ModelCompleted); is {
		for _, b := range said.Message.Blocks {
			text += b.Text
		}
	}
	return text
}
