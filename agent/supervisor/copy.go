package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const (
	sureTimeout = 6 * time.Second // of one try
	sureTries   = 5
	surePause   = 50 * time.Millisecond
)

// copyThread writes events into a new thread, in pieces that an append can hold,
// and closes what was open. A copy that a dead server began is continued.
func copyThread(ctx context.Context, log thread.Log, id thread.ID, events []thread.Event) (*runs.State, error) {
	s, err := runs.FoldState(events)
	if err != nil {
		return nil, err
	}
	done, err := log.Head(ctx, id)
	if err != nil {
		return nil, err
	}
	if done > uint64(len(events)) {
		return foldLog(ctx, log, id) // the dead server came further than the copy
	}
	for rest := events[min(done, uint64(len(events))):]; len(rest) > 0; {
		n := 1
		for n < len(rest) && n < thread.AppendMax && fits(rest[:n+1]) {
			n++
		}
		if done, err = log.Append(ctx, id, done, rest[:n]...); err != nil {
			return nil, fmt.Errorf("copy into %s: %w", id, err)
		}
		rest = rest[n:]
	}
	return s, nil
}

func fits(events []thread.Event) bool {
	content, err := json.Marshal(events)
	return err == nil && len(content) <= thread.AppendBytesMax*9/10
}

// closeCopy ends the copied run, as that run, if it was under way.
func closeCopy(ctx context.Context, log thread.Log, id thread.ID, st *runs.State) error {
	if st.Run == nil || st.Run.Ended != nil {
		return nil
	}
	bodies := agent.Unanswered(st, tool.CodeInterrupted, "The conversation was forked while this ran; its result stayed behind.")
	return appendTo(ctx, log, id, st, append(bodies, thread.RunEnded{State: thread.RunCancelled, Reason: "forked", Text: "It was forked here."})...)
}

// firstInput returns the task with which a run began.
func firstInput(ctx context.Context, blobs thread.Blobs, events []thread.Event, id thread.RunID) ([]llm.Block, error) {
	for _, e := range events {
		if in, ok := e.Body.(thread.Input); ok && e.Run == id && in.From == "user" {
			return prompt.InputBlocks(ctx, blobs, in)
		}
	}
	return nil, errs.New(errs.Unsupported, "the run %s began without a task of its own; it cannot be replayed", id)
}

// appendSurely tries again while it is not known whether the append happened.
func appendSurely(ctx context.Context, log thread.Log, id thread.ID, after uint64, events []thread.Event) error {
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, sureTimeout)
		_, err := log.Append(once, id, after, events...)
		cancel()
		if err == nil || !errs.Temporary(err) || try == sureTries {
			return err
		}
		<-time.After(time.Duration(try) * surePause)
	}
}
