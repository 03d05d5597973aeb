package inside

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Local is what the agent has in its own machine.
type Local struct {
	Files    tool.Files
	Commands tool.Commands
	Services tool.Services // nil = none
	Boot     string
	Tools    *tool.Registry
	Logger   *slog.Logger
}

// Drive drives the thread of the host at the other end, which says which one, and
// returns when the connection ends. conn is closed then.
func Drive(ctx context.Context, conn net.Conn, l Local) error {
	a := &driven{l: l, p: newPeer(conn)}
	a.p.Serve, a.p.News = a.serve, a.news
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return a.p.Run(ctx)
}

// driven is the agent's end of a drive.
type driven struct {
	l      Local
	p      *peer
	runner atomic.Pointer[agent.Runner]
	poked  atomic.Bool // before there was a Runner
	begun  atomic.Bool
	ahead  time.Duration // of the host's clock
}

// news implements peer.News.
func (a *driven) news(method string, _ json.RawMessage) error {
	if method != newsPoke {
		return errs.New(errs.Invalid, "news of the kind %.20q", method)
	}
	a.poked.Store(true)
	if r := a.runner.Load(); r != nil {
		r.Notify()
	}
	return nil
}

// serve implements peer.Serve.
func (a *driven) serve(ctx context.Context, c incoming) (any, error) {
	if c.Method != methodDrive {
		return nil, errs.New(errs.Invalid, "there is no %.20q here", c.Method)
	}
	if a.begun.Swap(true) {
		return nil, errs.New(errs.Conflict, "the drive has begun")
	}
	var b begin
	if err := json.Unmarshal(c.Data, &b); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the beginning cannot be read")
	}
	o, err := a.drive(ctx, b)
	return outcome{Ended: o.Ended, Expires: o.Expires, Parked: o.Parked}, err
}

func (a *driven) drive(ctx context.Context, b begin) (agent.Outcome, error) {
	a.ahead = time.Until(b.Now)
	s := runs.NewState()
	thread := log{remote{a.p, prefixLog}}
	for e, err := range thread.Load(ctx, b.Thread, 1) {
		if err == nil {
			err = s.Apply(e)
		}
		if err != nil {
			return agent.Outcome{}, err
		}
	}
	if s.Run == nil {
		return agent.Outcome{}, errs.New(errs.Invalid, "the thread %s has no run", b.Thread)
	}
	m := model{p: a.p, info: b.Model}
	m.info.Documents = b.Documents
	r, err := agent.Assemble(a.parts(b, s, thread), m)
	if err != nil {
		return agent.Outcome{}, err
	}
	a.runner.Store(r)
	r.Notify() // what came in since the log was read
	return r.Run(ctx)
}

// parts are those of the machine and those of the host.
func (a *driven) parts(b begin, s *runs.State, l thread.Log) agent.Parts {
	p := agent.Parts{
		Thread: b.Thread, State: s, Log: l, Blobs: blobs{remote{a.p, prefixBlobs}}, MachineID: b.Machine, Tools: a.l.Tools, Others: b.Others,
		Machine: agent.Machine{Files: a.l.Files, Commands: a.l.Commands, Services: a.l.Services, Boot: a.l.Boot, Dir: b.Dir, Note: b.Note},
		Patient: b.Patient, Patience: b.Patience, Logger: a.l.Logger, Now: func() time.Time { return time.Now().Add(a.ahead) },
	}
	if b.Memories {
		p.Memories = files{remote{a.p, prefixMemory}}
	}
	if b.Past {
		p.Machine.Past = past{remote{a.p, prefixPast}}
	}
	if b.Spawner {
		p.Spawner = tasks{remote{a.p, prefixTask}}
	}
	if b.Tasks {
		p.Tasks = tasks{remote{a.p, prefixTask}}
	}
	if b.Skills {
		known := skills{remote{a.p, prefixSkills}, b.Unlisted}
		p.Skills, p.TellSkills = known, known.tell
	}
	if b.Live {
		p.Live = func(n runs.Live) {
			_ = a.p.Tell(newsLive, live{Kind: string(n.Kind), Index: n.Index, Name: n.Name, Call: n.Call, Text: n.Text})
		}
	}
	self := remote{a.p, prefixSelf}
	if b.Tree {
		p.Tree = func() (budget thread.Budget, others thread.Spent) {
			if self.call(context.Background(), "tree", nil, &budget, &others) != nil {
				return thread.Budget{}, thread.Spent{} // the connection is broken: the next append says so
			}
			return budget, others
		}
	}
	if b.Revise {
		p.Machine.Revise = func(ctx context.Context, m agent.Mark) error { return self.call(ctx, "revise", []any{m}) }
	}
	if b.Calls {
		p.Machine.Call = func(ctx context.Context) func() {
			var id uint64
			if self.call(ctx, "call", nil, &id) != nil {
				return func() {}
			}
			return func() { _ = a.p.Tell(newsRelease, id) }
		}
	}
	return p
}
