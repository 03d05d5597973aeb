package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/service"
)

// This file starts what a template is for before a sandbox has the machine: after the
// snapshot of a member was taken or loaded, so that no two machines go on from the same
// secrets of the same process.

// aheadAgain is when it is tried again to start what did not get ready: it may need the
// network, which leads nowhere before a sandbox has the machine.
const aheadAgain = time.Hour

// Setting names all that a command sees of the sandbox that it is started in: its
// environment, directory, user and network, and not the sandbox's name. "" is none.
//
// What was started in one setting is of no use to a sandbox that has another.
func Setting(b wire.Boot) string {
	b.Sandbox, b.Hostname, b.Channel, b.Forwards = "", "", "", nil
	text, err := json.Marshal(b) // maps in the order of their keys
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// ahead starts what the template is for, if the latest sandbox of the shape could have
// used it, and waits until it is ready. It returns the setting in which it has done so.
// A *service.Error is the template's.
func (p *Pool) ahead(ctx context.Context, m *member, root template.Rootfs) (setting string, err error) {
	if root.Use.Start == "" || m.setting == "" {
		return "", nil
	}
	p.mu.Lock()
	k := p.kind(m.rec.Shape)
	not := k.plain || time.Now().Before(k.notAheadUntil)
	p.mu.Unlock()
	if not {
		return "", nil
	}
	return m.setting, service.Begin(ctx, m.machine.Guest(), service.Of(root.Use))
}

// notAhead reports whether a member failed because of what its template starts.
func notAhead(err error) bool {
	_, is := errors.AsType[*service.Error](err)
	return is
}

// oldest returns the member of a shape that a sandbox with this setting gets, nil if there
// is none: one in which what the template is for has been started, else one in which it
// has not. other is the oldest of those that are of no use to it.
// Preconditions: p.mu is held.
func (p *Pool) oldest(s Shape, setting string) (best, other *member) {
	for _, m := range p.members {
		switch begun := m.rec.Begun; {
		case m.state != warm || m.rec.Shape != s:
		case begun != "" && begun != setting:
			if other == nil || m.rec.MadeAt.Before(other.rec.MadeAt) {
				other = m
			}
		case best == nil || (begun != "") != (best.rec.Begun != ""):
			if best == nil || begun != "" {
				best = m
			}
		case m.rec.MadeAt.Before(best.rec.MadeAt):
			best = m
		}
	}
	return best, other
}
