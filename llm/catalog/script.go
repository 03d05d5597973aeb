package catalog

import (
	_ "embed"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/script"
)

// shelf keeps scripted models open: a script remembers which of its failures
// it has played, so the same file must be the same model each time.
type shelf struct {
	mu    sync.Mutex
	plays map[string]play // by the name of the entry
}

type play struct {
	model   *script.Model
	path    string
	changed time.Time
	size    int64
}

// scriptsMax bounds the shelf; a fuller one is cleared.
const scriptsMax = 256

// example is the scripted model that every server has, so that a first run needs no key and
// no file on the host. It is used where it is asked for by this name alone.
const example = "example"

// exampleScript mends the project in examples/bugfix.
//
//go:embed example.yaml
var exampleScript []byte

func (c *Catalog) example() entry {
	e := c.complete(Entry{Name: example, Vendor: Script, ID: example}, sourceExample)
	e.info.WindowTokens, e.info.Guessed = exampleWindow, false
	return e
}

// exampleWindow is more than the example's conversation ever has.
const exampleWindow = 32_768

// openExample opens the example. It has no failures to remember, so each is the same model.
func openExample(e entry) (llm.Model, error) {
	m, err := script.New(example, exampleScript)
	if err != nil {
		return nil, err
	}
	return m.WithInfo(scriptInfo(e.info, m.Info())), nil
}

// open returns the model of an entry, read anew if its file changed.
func (s *shelf) open(e entry) (llm.Model, error) {
	stat, err := os.Stat(e.Script)
	if err != nil {
		return nil, e.broken(errs.Wrap(errs.NotFound, err, "it cannot be read"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.plays[e.Name]
	if ok && p.path == e.Script && p.changed.Equal(stat.ModTime()) && p.size == stat.Size() {
		return p.model, nil
	}
	m, err := script.Load(e.Script)
	if err != nil {
		return nil, e.broken(err)
	}
	m = m.WithInfo(scriptInfo(e.info, m.Info()))
	if s.plays == nil || len(s.plays) >= scriptsMax {
		s.plays = map[string]play{}
	}
	s.plays[e.Name] = play{model: m, path: e.Script, changed: stat.ModTime(), size: stat.Size()}
	return m, nil
}

// broken is a script that cannot be used. Who named its path may change the
// request; else it is the operator who must act. Users see the file's name at
// most, the log its path.
func (e entry) broken(err error) error {
	class, hint := errs.Of(err), "the path is taken from the folder in which the server runs"
	if e.source != sourceName {
		class, hint = errs.Unsupported, "look at the script that the configuration names for this model"
	}
	return errs.Wrap(class, fmt.Errorf("%s: %w", e.Script, err), "the script of model %s: %s", e.info.Name, errs.Public(err)).WithHint("%s", hint)
}

// scriptInfo is what the configuration says, then what the script says.
func scriptInfo(info, own llm.Info) llm.Info {
	if own.WindowTokens > 0 && info.Guessed {
		info.WindowTokens, info.Guessed = own.WindowTokens, false
	}
	info.OutputTokensMax = first(info.OutputTokensMax, own.OutputTokensMax)
	info.Calling = first(info.Calling, own.Calling)
	info.Price = first(info.Price, own.Price)
	info.Media = info.Media || own.Media
	info.Documents = info.Media
	return info
}
