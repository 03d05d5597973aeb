package life

import (
	"context"
	"slices"
	"time"

	"github.com/skete-dev/skete/sandbox"
)

// endingMax bounds how long the end of a sandbox waits for a last look at its files.
const endingMax = 30 * time.Second

// inHaste are the reasons of ends that give a sandbox no time, in which it would
// write on.
var inHaste = []string{sandbox.ReasonHostFull, sandbox.ReasonDiskQuota, sandbox.ReasonReadOnly}

// ending has the last changes of the workspace kept, while there is a way to its
// files. All ends of a sandbox come by here, whatever they are for, before what is
// inside is asked to end: a machine that was does not answer any more. It goes on
// where that fails: a sandbox that is broken can be ended too. It may be repeated.
func (k *Sandbox) ending(ctx context.Context, reason string) {
	if k.d.Ending == nil || slices.Contains(inHaste, reason) {
		return
	}
	files, written, err := k.lastFiles(ctx)
	if err != nil {
		k.d.Log.Warn("the files of a sandbox cannot be looked at before it ends", "id", k.id, "error", err)
	}
	if files.Host == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endingMax)
	defer cancel()
	k.d.Ending(ctx, k.tenant, k.id, files, written)
}

// lastFiles returns the workspace of a sandbox that is about to end, once, and
// whether a call may have written to it since the last end. Without a Host there is
// nothing to look at.
func (k *Sandbox) lastFiles(ctx context.Context) (files sandbox.Files, written bool, err error) {
	form, err := k.form()
	if err != nil { // without its provider it is not ended
		return files, false, nil
	}
	k.mu.Lock()
	rec, machine, client, dead := k.rec, k.machine, k.client, k.dying != ""
	written = k.written || machine != nil && len(rec.Info.Spec.Services) > 0
	done := k.discarded || machine != nil && machine == k.looked
	k.written, k.looked = false, machine
	k.mu.Unlock()
	state := rec.Info.State
	switch {
	case done, machine == nil && (!written || state == sandbox.Creating || state == sandbox.Destroyed):
		return files, written, nil
	case form == sandbox.Disk && (machine == nil || dead || state != sandbox.Running):
		return files, written, nil // a paused machine is not woken to be ended
	case form == sandbox.Disk:
		return sandbox.Files{Host: rec.Host(), Guest: client, Empty: rec.Info.From == ""}, written, nil
	}
	files, err = k.lend(ctx)
	return files, written, err
}
