package llmtest

import (
	"net/http"
	"time"

	"github.com/skete-dev/skete/llm"
)

// Driver is what the suite needs of a driver.
type Driver struct {
	Dialect Dialect
	// New returns the model that a configuration means. It must not try again
	// by itself, and must obey every field.
	New func(c Config) llm.Model
	// Whole: this driver asks for answers in one piece, so that no delta can
	// come before the end.
	Whole bool
}

// Config is how the suite wants a model to be set up.
type Config struct {
	URL   string // base URL, http://127.0.0.1:port and nothing behind it
	Model string // what the vendor calls it
	Key   string
	// Silence is how long the server may send nothing before the driver gives
	// up with Transport.
	Silence time.Duration
	// ReplyBytesMax bounds the bytes of one reply; a longer one is Malformed.
	ReplyBytesMax int64
	// OutputTokensMax bounds every answer (llm.Info); 0 = nothing is said.
	OutputTokensMax int
}

// Facts are what a dialect can say.
type Facts struct {
	Dialect string // Vendor.Dialect of the blocks that its driver makes

	Reasoning bool // replies may hold reasoning
	// Opaque: reasoning carries opaque data that must come back byte for byte.
	Opaque bool
	// Redacted: there is reasoning without text, opaque data only.
	Redacted bool
	// Ordered: the order of text, reasoning and calls in a reply is kept, both
	// ways. Without it text comes before calls.
	Ordered bool

	CacheHintsMax  int // Message.Cache and Block.Cache go over the wire, at most so many; 0 = not at all
	CacheKey       bool
	Schema         bool // Request.Schema
	Serial         bool
	Effort         bool
	Temperature    bool
	StopTexts      bool // Request.Stop
	Media          bool // images in user messages
	MediaInResults bool
	FailedResults  bool // Result.Failed has a place of its own on the wire
	// Stops are the reasons to stop that a reply can give.
	Stops []llm.Stop
	// Late: a failure may come inside a stream that began as HTTP 200.
	Late bool
}

// Dialect is the server's side of a wire format. Its methods are pure and
// safe for concurrent use.
type Dialect interface {
	Facts() Facts
	// Parse reads a request. An error is a fault of the driver: the suite fails
	// and the server answers 400.
	Parse(r *http.Request, body []byte) (Seen, error)
	// Answer renders a reply to the request that was seen, as a stream or whole
	// as seen.Stream says.
	Answer(seen Seen, r Reply) Wire
	// Failure renders a failure that comes instead of an answer.
	Failure(f Failure) Wire
	// Late renders a failure inside a stream; nil without Facts.Late.
	Late(f Failure) []byte
}

// Seen is a request as it arrived.
//
// Opaque data of a vendor stands in Block.Vendor.Data as a JSON string that
// holds exactly the text found on the wire, and so it does in Reply.Blocks:
// {Kind: KindReasoning, Text: "hm", Vendor: {Data: `"c2lnbmF0dXJl"`}} is, say,
// a thinking block with that signature.
type Seen struct {
	Model  string
	Key    string // of the header that carries it
	Stream bool
	// Request has what the wire says. How messages are grouped does not matter:
	// the suite compares blocks one after the other. Cache hints stand where
	// the wire has them: Block.Cache in System, else Message.Cache.
	Request llm.Request
	Body    []byte
	Header  http.Header
}

// Reply is what the fake model answers.
type Reply struct {
	Blocks []llm.Block // text, reasoning, calls; a Raw call's Args are a JSON string of what the model wrote
	Usage  llm.Usage
	Stop   llm.Stop // "" = StopTools with calls, else StopEnd
	// Piece is how many bytes of text, reasoning or arguments one delta holds,
	// cut anywhere where the dialect can; 0 = 7.
	Piece int

	Failure *Failure // instead of the blocks
	// Late is a failure inside the stream, after the blocks.
	Late  *Failure
	Fault Fault // what the wire does with it
}

// StopOr returns r.Stop or what its blocks mean.
func (r Reply) StopOr() llm.Stop {
	if r.Stop != "" {
		return r.Stop
	}
	if len(llm.Assistant(r.Blocks...).Calls()) > 0 {
		return llm.StopTools
	}
	return llm.StopEnd
}

// PieceOr returns r.Piece or its default.
func (r Reply) PieceOr() int {
	if r.Piece > 0 {
		return r.Piece
	}
	return 7
}

// Failure is an error that the server reports. Status 0 means the status that
// the vendor uses for the trouble.
type Failure struct {
	Trouble    llm.Trouble
	Status     int
	RetryAfter time.Duration // whole seconds
	Text       string        // "" = the vendor's own wording
}

// Wire is an answer as bytes. The server sends each chunk by itself.
type Wire struct {
	Status int // 0 = 200
	Header http.Header
	Chunks [][]byte
}

// Fault is what happens to the bytes of an answer.
type Fault string

// Faults.
const (
	Dribble   Fault = "dribble"   // every byte in a packet of its own
	Drop      Fault = "drop"      // the connection breaks in the middle
	Truncate  Fault = "truncate"  // the answer ends in the middle, in good order
	Hang      Fault = "hang"      // half of it, then nothing
	Mute      Fault = "mute"      // not even a header
	Garbage   Fault = "garbage"   // 200, and bytes that mean nothing
	Empty     Fault = "empty"     // 200, and no byte
	PageError Fault = "page"      // 502 with the HTML page of a proxy
	PageOK    Fault = "page_ok"   // 200 with an HTML page: a login screen
	Redirect  Fault = "redirect"  // to another host, which must not get the key: not followed
	Endless   Fault = "endless"   // the answer's chunks without the last, over and over
	Keepalive Fault = "keepalive" // only comments, for ever
)
