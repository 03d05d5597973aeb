package agent

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// This file makes what a model said fit for a thread's log.

// callsMax bounds the calls of one reply; what is beyond is dropped, and said.
const callsMax = 24

// replyOptions are what a reply is held against.
type replyOptions struct {
	Taken func(call string) bool // ids that the thread knows
	Seq   uint64                 // of the event that the reply will be
	// FromText reads actions out of text, for models without tool calls; nil =
	// the model has them.
	FromText func(llm.Message) (blocks []llm.Block, correction string)
}

// normaliseReply makes a reply fit for the log: ids that are unique in the thread,
// arguments that are JSON, actions turned into calls. correction tells the
// model what was wrong with the reply as a whole.
func normaliseReply(response *llm.Response, o replyOptions) (m llm.Message, correction string) {
	m = llm.Message{Role: llm.RoleAssistant}
	used, dropped := map[string]bool{}, 0
	blocks := response.Message.Blocks
	if o.FromText != nil {
		blocks, correction = o.FromText(response.Message)
	}
	for _, b := range blocks {
		if b.Kind != llm.KindCall || b.Call == nil {
			m.Blocks = append(m.Blocks, b)
			continue
		}
		if len(used) == callsMax {
			dropped++
			continue
		}
		call := *b.Call
		if !thread.IsCallID(call.ID) || used[call.ID] || o.Taken(call.ID) {
			call.ID = fmt.Sprintf("call_%d_%d", o.Seq, len(used)+1)
		}
		for o.Taken(call.ID) || used[call.ID] {
			call.ID += "x"
		}
		used[call.ID] = true
		b.Call = readableArgs(call)
		m.Blocks = append(m.Blocks, b)
	}
	switch {
	case dropped > 0:
		correction = fmt.Sprintf("A reply can ask for at most %d tools; %d more were dropped. Ask for them again if you still need them.", callsMax, dropped)
	case correction != "" || len(used) > 0:
	case response.Stop == llm.StopLength:
		correction = "Your reply was cut off at the output limit. Go on where it ended, in smaller pieces."
	case o.FromText == nil && m.String() == "" && response.Stop == llm.StopEnd:
		correction = "Your reply was empty. Go on with the task, or say what the result is."
	}
	return m, correction
}

// readableArgs makes sure that arguments are a JSON object, or says that they are not.
func readableArgs(c llm.Call) *llm.Call {
	c.Args = bytes.TrimSpace(c.Args)
	if len(c.Args) == 0 || string(c.Args) == "null" {
		c.Args = json.RawMessage("{}")
	}
	if !c.Raw && (c.Args[0] != '{' || !json.Valid(c.Args)) {
		c.Args, _ = json.Marshal(string(c.Args))
		c.Raw = true
	}
	return &c
}
