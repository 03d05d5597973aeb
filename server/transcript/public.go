package transcript

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// scriptPrefix begins the name of a model that is a file of the host. The log
// has its path, for the run must find it again; who reads the log gets its name.
const scriptPrefix = "script/"

// ModelName is the name of a model as users see it.
func ModelName(name string) string {
	if file, is := strings.CutPrefix(name, scriptPrefix); is {
		return scriptPrefix + path.Base(file)
	}
	return name
}

// PublicAgent leaves paths of scripts out of a definition in JSON. One that
// cannot be read is left out whole.
func PublicAgent(agent json.RawMessage) json.RawMessage {
	if !bytes.Contains(agent, []byte("script")) {
		return agent
	}
	var d map[string]json.RawMessage
	if json.Unmarshal(agent, &d) != nil {
		return nil
	}
	var name string
	if json.Unmarshal(d["model"], &name) == nil && name != ModelName(name) {
		d["model"], _ = json.Marshal(ModelName(name)) // a string
	}
	var beneath map[string]json.RawMessage
	if json.Unmarshal(d["subagents"], &beneath) == nil && len(beneath) > 0 {
		for k, sub := range beneath {
			beneath[k] = PublicAgent(sub)
		}
		d["subagents"], _ = json.Marshal(beneath) // of valid JSON
	}
	shown, err := json.Marshal(d)
	if err != nil {
		return nil
	}
	return shown
}

// Public leaves out what the log has for the server alone. Every event that
// leaves the server goes through it.
func Public(e thread.Event) thread.Event {
	switch b := e.Body.(type) {
	case thread.RunStarted:
		b.Model = ModelName(b.Model)
		e.Body = b
	case thread.Opened:
		b.Agent = PublicAgent(b.Agent)
		e.Body = b
	}
	return e
}

// Event shows an event. The log's JSON is the wire's.
func Event(e thread.Event) (*api.RunEvent, error) {
	e = Public(e)
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var v api.RunEvent
	return &v, json.Unmarshal(data, &v)
}
