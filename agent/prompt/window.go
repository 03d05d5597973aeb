package prompt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// What is kept when the window gets full. A part of the window, and never more
// than the numbers that work for large ones (facts of other harnesses: protect
// 40k tokens of recent output, do not bother below 20k).
const (
	// fullPercent of the window is when something must go.
	fullPercent = 85

	protectTokens  = 40_000
	gainTokens     = 20_000
	clearFloor     = 100 // results below it are not worth clearing
	keepInputsPart = 8   // a compaction keeps an eighth of the window of words of the user
	excerptChars   = 2000
)

// Full reports whether a prompt of so many tokens leaves too little room.
func Full(tokens, window int) bool { return tokens*100 >= window*fullPercent }

// ToClear returns the calls whose results should leave the prompt, nil when
// that would gain too little.
func ToClear(s *runs.State, window int) []string {
	protect, gain := min(protectTokens, window/4), 0
	var calls []string
	for _, item := range slices.Backward(s.Items) {
		for _, c := range slices.Backward(item.Calls) {
			if c.Completed == nil || c.ClearedAt > 0 {
				continue
			}
			n := callTokens(c)
			if protect > 0 {
				protect -= n
				continue
			}
			if n >= clearFloor {
				gain += n
				calls = append(calls, c.ID)
			}
		}
	}
	if gain < min(gainTokens, window/8) {
		return nil
	}
	slices.Reverse(calls)
	return calls
}

// Cut is what a compaction replaces.
type Cut struct {
	Through uint64
	Keep    []uint64
	Items   []*runs.Item // what the summary has to cover, an older summary included
}

// ToCompact chooses what a summary replaces: everything but whole steps at the end,
// of at most tail tokens, and the newest words of the user. False: there is nothing to
// gain.
func ToCompact(s *runs.State, window, tail int) (Cut, bool) {
	at := len(s.Items)
	for at > 0 {
		n := itemTokens(s.Items[at-1])
		if n > tail {
			break
		}
		tail -= n
		at--
	}
	if at == 0 || (at == 1 && s.Items[0].Summary != nil) {
		return Cut{}, false
	}
	cut := Cut{Items: s.Items[:at]}
	words := window / keepInputsPart
	for _, item := range slices.Backward(cut.Items) {
		cut.Through = max(cut.Through, throughOf(item))
		if n := itemTokens(item); item.Input != nil && fromPerson(item.Input) && n <= words {
			words -= n
			cut.Keep = append(cut.Keep, item.Seq)
		}
	}
	slices.Reverse(cut.Keep)
	return cut, len(cut.Items) > len(cut.Keep)
}

// throughOf is an item's place in the log; a summary stands where it was made,
// behind what it covers, and does not count.
func throughOf(item *runs.Item) uint64 {
	if item.Summary != nil {
		return 0
	}
	return item.Seq
}

func fromPerson(in *thread.Input) bool { return in.From == "user" || in.From == "parent" }

func itemTokens(item *runs.Item) int {
	switch {
	case item.Input != nil:
		return max(Tokens(item.Input.Blocks), item.Input.ShownTokens) + perMessage
	case item.Step != nil:
		return Tokens(item.Step.Message.Blocks) + perMessage + resultTokens(item)
	}
	return tokensOf(item.Summary.Summary) + perMessage
}

// Transcript writes items as Markdown for people and for the summariser.
// excerpt cuts long parts.
func Transcript(ctx context.Context, blobs thread.Blobs, items []*runs.Item, excerpt bool) (string, error) {
	short := func(text string) string {
		if !excerpt || len(text) <= excerptChars {
			return text
		}
		half := excerptChars / 2
		return strings.ToValidUTF8(text[:half], "") + fmt.Sprintf("\n[… %d bytes …]\n", len(text)-2*half) + strings.ToValidUTF8(text[len(text)-half:], "")
	}
	var out strings.Builder
	for _, item := range items {
		switch {
		case item.Input != nil:
			fmt.Fprintf(&out, "## %s (event %d)\n\n%s\n\n", item.Input.From, item.Seq, short(inputText(item.Input)))
		case item.Summary != nil:
			fmt.Fprintf(&out, "## summary (event %d)\n\n%s\n\n", item.Seq, item.Summary.Summary)
		default:
			if err := stepText(ctx, &out, blobs, item, short); err != nil {
				return "", err
			}
		}
	}
	return out.String(), nil
}

func inputText(in *thread.Input) string {
	var texts []string
	for _, b := range in.Blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}

func stepText(ctx context.Context, out *strings.Builder, blobs thread.Blobs, item *runs.Item, short func(string) string) error {
	m, err := Message(ctx, blobs, item)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "## assistant (event %d)\n\n%s\n\n", item.Seq, short(m.String()))
	calls := m.Calls()
	for i, c := range item.Calls {
		args := ""
		if i < len(calls) {
			args = string(calls[i].Args)
		}
		fmt.Fprintf(out, "### %s %s\n\n", c.Name, short(args))
		if c.Completed == nil {
			continue
		}
		fmt.Fprintf(out, "%s\n\n", short(llm.Message{Blocks: c.Completed.Blocks}.String()))
	}
	return nil
}
