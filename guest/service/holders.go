package service

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/wire"
)

// holderPathsMax bounds a question for holders.
const holderPathsMax = 10_000

// Holders implements wire.ServiceHandler.
func (m *Manager) Holders(_ context.Context, r *connect.Request[wire.HoldersRequest]) (*connect.Response[wire.HoldersResponse], error) {
	found, more, err := m.holders(r.Msg.Paths)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.HoldersResponse{Holders: found, More: more}), nil
}

// holders finds who holds files, and whose service that is.
func (m *Manager) holders(paths [][]byte) ([]*wire.Holder, bool, error) {
	if len(paths) > holderPathsMax {
		return nil, false, errs.New(errs.Invalid, "more than %d paths", holderPathsMax)
	}
	for _, p := range paths {
		if !path.IsAbs(string(p)) {
			return nil, false, errs.New(errs.Invalid, "%.200q is no absolute path", p)
		}
	}
	self, parent := os.Getpid(), os.Getppid() // supervise and init
	found, more := findHolders(pathsOf(paths), func(pid int) bool { return pid == self || pid == parent })
	if len(found) == 0 {
		return nil, more, nil
	}
	owner := m.owners()
	var list []*wire.Holder
	for _, h := range found {
		w := &wire.Holder{Pid: uint32(h.PID), Service: owner[h.PID], Command: h.Command, Replaced: h.Replaced, MorePaths: h.More}
		for _, p := range h.Paths {
			w.Paths = append(w.Paths, []byte(p))
		}
		list = append(list, w)
	}
	return list, more, nil
}

// owners maps the processes of services to their names.
func (m *Manager) owners() map[int]string {
	owner := map[int]string{}
	for _, u := range m.all() {
		if run, ok := u.living(); ok {
			for _, pid := range run.Members() {
				owner[pid] = u.name
			}
		}
	}
	return owner
}

// living is the run that is not over.
func (u *unit) living() (process.Run, bool) {
	u.mu.Lock()
	n := len(u.rec.Runs)
	open := n > 0 && u.rec.Runs[n-1].Size < 0
	key := ""
	if open {
		key = u.rec.key(u.name, u.rec.Runs[n-1].Number)
	}
	u.mu.Unlock()
	if !open {
		return process.Run{}, false
	}
	run, err := u.m.core.Run(key)
	return run, err == nil
}

// RestartHolders implements wire.ServiceHandler.
func (m *Manager) RestartHolders(ctx context.Context, r *connect.Request[wire.RestartHoldersRequest]) (*connect.Response[wire.RestartHoldersResponse], error) {
	found, _, err := m.holders(r.Msg.Paths)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	res := &wire.RestartHoldersResponse{}
	replaced := map[string]string{}
	for _, h := range found {
		switch {
		case !h.Replaced:
		case h.Service != "":
			replaced[h.Service] = "a file that it had open was replaced: " + strings.ToValidUTF8(string(h.Paths[0]), "\uFFFD")
		default:
			res.Unmanaged = append(res.Unmanaged, h)
			if r.Msg.KillUnmanaged {
				_ = unix.Kill(int(h.Pid), unix.SIGKILL) // it may be gone
			}
		}
	}
	for _, u := range m.all() {
		reason := replaced[u.name]
		if reason != "" {
			u.kill(ctx)
		} else if reason = u.whyRestart(r.Msg.Paths); reason != "" {
			u.want(again)
		}
		if reason != "" {
			res.Restarted = append(res.Restarted, &wire.RestartedService{Name: u.name, Reason: reason})
		}
	}
	giveNotice(r.Msg.Paths)
	return connect.NewResponse(res), nil
}

// kill ends the present run without another instruction of its own, and lets
// the service start anew. Told to end in order, a program may do harm: SQLite
// removes the log of the database by its name, and that is another's now.
func (u *unit) kill(ctx context.Context) {
	run, ok := u.living()
	u.want(again)
	if ok {
		run.End(ctx, 0)
	}
}

// whyRestart says why a service that holds no replaced file must start anew
// after these paths changed; "" = it goes on.
func (u *unit) whyRestart(paths [][]byte) string {
	boot := u.m.bootNow()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.rec.Wanted || u.removed {
		return ""
	}
	switch u.state {
	case wire.ServiceState_SERVICE_STATE_READY:
	case wire.ServiceState_SERVICE_STATE_STOPPED: // it ended, and that was its policy
		return ""
	default:
		return "it was not ready"
	}
	home := dirOf(u.decl, boot.Workdir)
	i := slices.IndexFunc(paths, func(p []byte) bool {
		file := path.Clean(string(p))
		return u.known.IsConfig(file) && related(path.Dir(file), home)
	})
	if i < 0 {
		return ""
	}
	return "its configuration changed: " + strings.ToValidUTF8(string(paths[i]), "\uFFFD")
}

// related: one of the directories is beneath the other, or the same.
func related(a, b string) bool {
	in := func(a, b string) bool { return a == b || b == "/" || strings.HasPrefix(a, b+"/") }
	return in(a, b) || in(b, a)
}
