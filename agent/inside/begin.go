package inside

import (
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Methods and news. Those of Log, Blobs and so on stand behind their prefixes.
const (
	methodDrive  = "drive"  // host to agent: begin -> outcome
	methodModel  = "model"  // agent to host: llm.Request -> answer, with deltas before it
	newsPoke     = "poke"   // host to agent: another writer may have appended
	newsLive     = "live"   // agent to host: live
	newsRelease  = "call"   // agent to host: a call that began with machine.Call is over
	prefixLog    = "log."   //
	prefixBlobs  = "blobs." //
	prefixMemory = "memories."
	prefixPast   = "past."
	prefixTask   = "task."
	prefixSkills = "skills."
	prefixSelf   = "machine."
)

// begin is what the agent needs to know of its drive.
type begin struct {
	Thread    thread.ID       `json:"thread"`
	Machine   string          `json:"machine"` // with its boot
	Dir       string          `json:"dir"`
	Note      string          `json:"note,omitempty"`
	Model     llm.Info        `json:"model"`
	Documents bool            `json:"documents,omitempty"` // of Model
	Patience  llm.RetryPolicy `json:"patience"`
	Patient   bool            `json:"patient,omitempty"`
	Now       time.Time       `json:"now"` // by the host's clock

	// What there is on the host.
	Memories bool `json:"memories,omitempty"`
	Past     bool `json:"past,omitempty"`
	Spawner  bool `json:"spawner,omitempty"`
	Tasks    bool `json:"tasks,omitempty"`
	Live     bool `json:"live,omitempty"`
	Tree     bool `json:"tree,omitempty"`
	Revise   bool `json:"revise,omitempty"`
	Calls    bool `json:"calls,omitempty"`
	Skills   bool `json:"skills,omitempty"`
	Unlisted int  `json:"unlisted,omitempty"` // of Skills
	Others   bool `json:"others,omitempty"`   // the agent may name tools that are not built in
}

// outcome is agent.Outcome on its way.
type outcome struct {
	Ended   bool      `json:"ended,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Parked  []string  `json:"parked,omitempty"`
}

// answer is the end of a model's.
type answer struct {
	Message llm.Message `json:"message"`
	Usage   llm.Usage   `json:"usage"`
	Stop    llm.Stop    `json:"stop"`
	Model   string      `json:"model"`
}

// live is what is on its way; runs.Live without what the host knows itself.
type live struct {
	Kind  string `json:"kind"`
	Index int    `json:"index,omitempty"`
	Name  string `json:"name,omitempty"`
	Call  string `json:"call,omitempty"`
	Text  string `json:"text,omitempty"`
}

// page is a part of a log.
type page struct {
	Events []thread.Event `json:"events"`
	More   bool           `json:"more,omitempty"`
}

// told is what thread.Context says of skills.
type told struct {
	Skills []thread.ContextFile `json:"skills,omitempty"`
	Pinned string               `json:"pinned,omitempty"`
}

// chunk is a piece of a blob.
type chunk struct {
	Data []byte `json:"data"`
	Size int64  `json:"size"`
	EOF  bool   `json:"eof,omitempty"`
}
