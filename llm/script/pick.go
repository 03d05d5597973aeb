package script

import (
	"fmt"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// sight is what a script sees of a request.
type sight struct {
	req     *llm.Request
	step    int // from 1
	system  string
	user    string // the last message of the user that has text
	results []*llm.Result
	tokens  int // estimated
}

func look(req *llm.Request) *sight {
	s := &sight{req: req, step: req.Step, system: textOf(req.System)}
	said, size := 1, len(s.system)
	for _, m := range req.Messages {
		if m.Role == llm.RoleAssistant {
			said++
			s.results = nil
		} else if text := textOf(spoken(m.Blocks)); text != "" {
			s.user = text
		}
		for _, b := range m.Blocks {
			size += len(b.Text)
			if b.Call != nil {
				size += len(b.Call.Name) + len(b.Call.Args)
			}
			if b.Result != nil {
				size += len(textOf(b.Result.Blocks))
				s.results = append(s.results, b.Result)
			}
		}
	}
	for _, t := range req.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	s.tokens = (size + 3) / 4
	if s.step == 0 {
		s.step = said
	}
	return s
}

// spoken leaves out what an agent adds to the user's messages: its plan, and
// notes of hooks and guards.
func spoken(blocks []llm.Block) []llm.Block {
	var own []llm.Block
	for _, b := range blocks {
		if strings.HasPrefix(b.Text, "<note ") {
			return own
		}
		if !strings.HasPrefix(b.Text, "<todos>") {
			own = append(own, b)
		}
	}
	return own
}

func textOf(blocks []llm.Block) string {
	var texts []string
	for _, b := range blocks {
		if b.Kind == llm.KindText && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// pick finds the reply to a request, and the how-manieth in its repeats it is.
func (f *file) pick(s *sight) (*reply, int, error) {
	if s.isSummary() {
		if f.Summary != nil {
			return f.Summary, 1, nil
		}
		if sc := f.sceneOf(s); sc == nil || sc.System == "" {
			return &reply{Text: summaryDefault, where: "summary"}, 1, nil
		}
	}
	replies, other, where := f.Replies, f.Else, "the script"
	if sc := f.sceneOf(s); sc != nil {
		replies, other = sc.Replies, sc.Else
		where = fmt.Sprintf("the scene of %q", sc.System+sc.User)
	}
	for _, r := range replies {
		if (r.When != nil || r.Step != 0) && r.fits(s) {
			return r, 1, nil
		}
	}
	turn := s.step
	for _, r := range replies {
		if r.When != nil || r.Step != 0 {
			continue
		}
		n := max(1, r.Repeat)
		if turn <= n {
			return r, turn, nil
		}
		turn -= n
	}
	if other != nil {
		return other, 1, nil
	}
	return nil, 0, fmt.Errorf("%.100s has no reply for model call %d of the run", where, s.step)
}

const summaryDefault = "The conversation so far, in short: {{user}}"

// isSummary: agents ask for summaries beside their run: without tools, without
// a number, and with instructions that say so.
func (s *sight) isSummary() bool {
	return s.req.Step == 0 && len(s.req.Tools) == 0 && strings.Contains(strings.ToLower(s.system), "summar")
}

func (f *file) sceneOf(s *sight) *scene {
	for _, sc := range f.Scenes {
		if strings.Contains(s.system, sc.System) && strings.Contains(s.user, sc.User) {
			return sc
		}
	}
	return nil
}

func (r *reply) fits(s *sight) bool {
	if r.Step != 0 && r.Step != s.step {
		return false
	}
	w := r.When
	if w == nil {
		return true
	}
	return strings.Contains(s.system, w.System) && strings.Contains(s.user, w.User) &&
		(w.History == "" || s.anywhere(w.History)) && w.fitsResults(s.results)
}

// fitsResults: one of the last results has all that is asked of results.
func (w *when) fitsResults(results []*llm.Result) bool {
	if w.Result == "" && w.Tool == "" && w.Failed == nil {
		return true
	}
	for _, r := range results {
		if strings.Contains(textOf(r.Blocks), w.Result) && (w.Tool == "" || w.Tool == r.Name) && (w.Failed == nil || *w.Failed == r.Failed) {
			return true
		}
	}
	return false
}

func (s *sight) anywhere(text string) bool {
	for _, m := range s.req.Messages {
		for _, b := range m.Blocks {
			if strings.Contains(b.Text, text) || b.Result != nil && strings.Contains(textOf(b.Result.Blocks), text) {
				return true
			}
		}
	}
	return false
}
