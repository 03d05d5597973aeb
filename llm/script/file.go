package script

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/llm"
)

// Limits of a script.
const (
	repliesMax = 4096 // in all
	scenesMax  = 256
	callsMax   = 64
	repeatMax  = 1_000_000
	delayMax   = 10 * time.Minute
	pieceMax   = 64 << 10
)

// file is a script as it is written.
type file struct {
	Model   about         `yaml:"model"`
	Piece   int           `yaml:"piece"` // bytes of a delta
	Pace    time.Duration `yaml:"pace"`  // between deltas
	Replies []*reply      `yaml:"replies"`
	Else    *reply        `yaml:"else"`
	Summary *reply        `yaml:"summary"`
	Scenes  []*scene      `yaml:"scenes"`
}

type about struct {
	WindowTokens    int    `yaml:"window_tokens"`
	OutputTokensMax int    `yaml:"output_tokens_max"`
	Calling         string `yaml:"calling"`
	Media           bool   `yaml:"media"`
	Price           struct {
		Input      float64 `yaml:"input"`
		Output     float64 `yaml:"output"`
		CacheRead  float64 `yaml:"cache_read"`
		CacheWrite float64 `yaml:"cache_write"`
	} `yaml:"price"`
}

// scene is a list of replies for some requests only.
type scene struct {
	System  string   `yaml:"system"`
	User    string   `yaml:"user"`
	Replies []*reply `yaml:"replies"`
	Else    *reply   `yaml:"else"`
}

type reply struct {
	When      *when         `yaml:"when"`
	Step      int           `yaml:"step"`
	Repeat    int           `yaml:"repeat"`
	Reasoning string        `yaml:"reasoning"`
	Text      string        `yaml:"text"`
	Calls     []*called     `yaml:"calls"`
	Stop      string        `yaml:"stop"`
	Usage     *usage        `yaml:"usage"`
	Delay     time.Duration `yaml:"delay"`
	Fail      *failure      `yaml:"fail"`

	where string // "fix.yaml:12:5"
}

// when has what must hold, all of it. Texts are looked for as they stand.
type when struct {
	System  string `yaml:"system"`
	User    string `yaml:"user"`
	Result  string `yaml:"result"`
	Tool    string `yaml:"tool"`
	History string `yaml:"history"`
	Failed  *bool  `yaml:"failed"`
}

type called struct {
	Name string         `yaml:"name"`
	Args map[string]any `yaml:"args"`
	Raw  string         `yaml:"raw"`
	ID   string         `yaml:"id"`
	NoID bool           `yaml:"no_id"`
}

type usage struct {
	Input      int `yaml:"input"`
	Output     int `yaml:"output"`
	Reasoning  int `yaml:"reasoning"`
	CacheRead  int `yaml:"cache_read"`
	CacheWrite int `yaml:"cache_write"`
}

type failure struct {
	With       string        `yaml:"with"`
	Times      int           `yaml:"times"`
	Always     bool          `yaml:"always"`
	RetryAfter time.Duration `yaml:"retry_after"`
	After      time.Duration `yaml:"after"`
}

func (f *file) pieceOr() int {
	if f.Piece > 0 {
		return f.Piece
	}
	return pieceDefault
}

// checker collects what is wrong with a script.
type checker struct {
	name     string
	at       yamlfile.Positions
	problems *yamlfile.Problems
	replies  int
}

func parse(name string, data []byte) (*file, error) {
	f := &file{}
	at, err := yamlfile.Decode(name, data, f)
	if err != nil {
		return nil, err
	}
	c := &checker{name: name, at: at, problems: yamlfile.NewProblems(name)}
	c.file(f)
	if err := c.problems.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func (c *checker) bad(path, format string, args ...any) {
	c.problems.Add(c.at.Of(path), format, args...)
}

func (c *checker) file(f *file) {
	if f.Piece < 0 || f.Piece > pieceMax {
		c.bad("piece", "between 1 and %d", pieceMax)
	}
	c.pause("pace", f.Pace)
	if !slices.Contains([]string{"", string(llm.CallingNative), string(llm.CallingJSON)}, f.Model.Calling) {
		c.bad("model.calling", `"native" or "json"`)
	}
	if f.Model.WindowTokens < 0 || f.Model.OutputTokensMax < 0 {
		c.bad("model", "not below 0")
	}
	c.list("", f.Replies, f.Else)
	c.single("summary", f.Summary)
	if len(f.Scenes) > scenesMax {
		c.bad("scenes", "more than %d", scenesMax)
		return
	}
	for i, s := range f.Scenes {
		path := fmt.Sprintf("scenes[%d]", i)
		if s == nil || s.System == "" && s.User == "" {
			c.bad(path, "a scene needs `system` or `user` to be found by")
			continue
		}
		c.list(path+".", s.Replies, s.Else)
		if len(s.Replies) == 0 && s.Else == nil {
			c.bad(path, "a scene needs `replies` or `else`")
		}
	}
	if len(f.Replies) == 0 && f.Else == nil && len(f.Scenes) == 0 {
		c.bad("", "a script needs `replies`, `scenes` or `else`")
	}
}

func (c *checker) list(prefix string, replies []*reply, other *reply) {
	for i, r := range replies {
		path := fmt.Sprintf("%sreplies[%d]", prefix, i)
		if c.replies++; c.replies > repliesMax {
			c.bad(path, "more than %d replies; `repeat` says one often", repliesMax)
			return
		}
		if r == nil {
			c.bad(path, "an empty reply; `text: \"\"` says nothing on purpose")
			continue
		}
		c.reply(path, r)
		if (r.When != nil || r.Step != 0) && r.Repeat != 0 {
			c.bad(path+".repeat", "only for replies whose turn comes in order, without `when` and `step`")
		}
		if r.Repeat < 0 || r.Repeat > repeatMax {
			c.bad(path+".repeat", "between 1 and %d", repeatMax)
		}
		if r.Step < 0 || r.Step > repeatMax {
			c.bad(path+".step", "between 1 and %d", repeatMax)
		}
	}
	c.single(prefix+"else", other)
}

func (c *checker) single(path string, r *reply) {
	if r == nil {
		return
	}
	c.reply(path, r)
	if r.When != nil || r.Step != 0 || r.Repeat != 0 {
		c.bad(path, "no `when`, `step` or `repeat` here")
	}
}

var (
	toolName = pattern.Lazy(`^[A-Za-z0-9_-]{1,64}$`)
	troubles = []string{
		string(llm.RateLimited), string(llm.Overloaded), string(llm.Transport), string(llm.Malformed),
		string(llm.Overflow), string(llm.Refused), string(llm.BadRequest), "drop", "hang",
	}
	stops = []string{"", string(llm.StopEnd), string(llm.StopTools), string(llm.StopLength), string(llm.StopRefusal), string(llm.StopFilter), string(llm.StopPause)}
)

func (c *checker) reply(path string, r *reply) {
	r.where = yamlfile.Where(c.name, c.at.Of(path))
	if len(r.Calls) > callsMax {
		c.bad(path+".calls", "more than %d", callsMax)
		return
	}
	for i, call := range r.Calls {
		c.call(fmt.Sprintf("%s.calls[%d]", path, i), call)
	}
	if !slices.Contains(stops, r.Stop) {
		c.bad(path+".stop", "one of %s%s", strings.Join(stops[1:], ", "), yamlfile.Suggest(r.Stop, stops[1:]))
	}
	c.pause(path+".delay", r.Delay)
	c.holes(path+".text", r.Text)
	c.holes(path+".reasoning", r.Reasoning)
	if u := r.Usage; u != nil && min(u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite) < 0 {
		c.bad(path+".usage", "not below 0")
	}
	if r.Fail != nil {
		c.fail(path+".fail", r.Fail)
	}
}

func (c *checker) fail(path string, f *failure) {
	if !slices.Contains(troubles, f.With) {
		c.bad(path+".with", "one of %s%s", strings.Join(troubles, ", "), yamlfile.Suggest(f.With, troubles))
	}
	if f.Times < 0 || f.Always && f.Times != 0 {
		c.bad(path+".times", "at least 1, and not together with `always`")
	}
	c.pause(path+".retry_after", f.RetryAfter)
	c.pause(path+".after", f.After)
	if f.After != 0 && f.With != "hang" {
		c.bad(path+".after", "only with `hang`")
	}
}

func (c *checker) pause(path string, d time.Duration) {
	if d < 0 || d > delayMax {
		c.bad(path, "between 0 and %s", delayMax)
	}
}

func (c *checker) call(path string, call *called) {
	if call == nil || !toolName().MatchString(call.Name) {
		c.bad(path, "a call needs a `name` of 1 to 64 letters, digits, _ and -")
		return
	}
	if call.Raw != "" && call.Args != nil {
		c.bad(path+".raw", "not together with `args`")
	}
	if call.NoID && call.ID != "" {
		c.bad(path+".no_id", "not together with `id`")
	}
	c.holes(path+".raw", call.Raw)
	c.holes(path+".args", call.Args)
}

// holes checks what has to be filled in.
func (c *checker) holes(path string, v any) {
	switch v := v.(type) {
	case string:
		if _, err := split(v); err != nil {
			c.bad(path, "%s", err)
		}
	case []any:
		for _, x := range v {
			c.holes(path, x)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c.holes(path, v[k])
		}
	}
}

// encode writes JSON without escapes for HTML, so that it stays readable.
func encode(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSpace(b.String()), err
}

func unquote(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // anything but a string is ""
	return s
}
