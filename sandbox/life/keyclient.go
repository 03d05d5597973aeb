package life

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// keysToldMax is how many keys go into one call.
const keysToldMax = 1000

// Tell tells a machine that has just booted of all keys that were used before:
// there they are lost. No other client may speak to it yet.
func (j *keyJournal) Tell(ctx context.Context, guest *wire.Client) error {
	used, err := j.all()
	if err != nil {
		return err
	}
	for part := range slices.Chunk(used, keysToldMax) {
		_, err := guest.Process.Remember(ctx, connect.NewRequest(&wire.RememberRequest{Keys: part}))
		if err = wire.Err(err); err != nil {
			return fmt.Errorf("tell the machine which keys were used: %w", err)
		}
	}
	return nil
}

// Client returns the machine's client, with the journal before each start of
// a command.
func (j *keyJournal) Client(guest *wire.Client) *wire.Client {
	c := *guest
	c.Process = &keyedProcess{guest.Process, j}
	return &c
}

// keyedProcess is the guest's Process that notes keys.
type keyedProcess struct {
	wire.ProcessClient
	journal *keyJournal
}

// Start notes the key first. A start that the guest refused has used no key.
func (p *keyedProcess) Start(ctx context.Context, r *connect.Request[wire.StartRequest]) (*connect.Response[wire.StartResponse], error) {
	key, j := r.Msg.GetKey(), p.journal
	if !chosenKey(key) {
		if key != "" {
			j.hold(key)
		}
		return p.ProcessClient.Start(ctx, r)
	}
	// One at a time: a refusal must not free the key that another start has
	// just used.
	defer j.locks.Lock(key)()
	existed, err := j.add(key, string(r.Msg.GetFingerprint()))
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	res, err := p.ProcessClient.Start(ctx, r)
	if err != nil && !existed && keyRefused(wire.Err(err)) {
		j.drop(key)
	}
	return res, err
}

// Exec notes the key first. It cannot know of a refusal, so the key stays
// used: who chooses keys calls Start and Attach.
func (p *keyedProcess) Exec(ctx context.Context, r *connect.Request[wire.StartRequest]) (*connect.ServerStreamForClient[wire.AttachEvent], error) {
	switch key := r.Msg.GetKey(); {
	case chosenKey(key):
		if _, err := p.journal.add(key, string(r.Msg.GetFingerprint())); err != nil {
			return nil, wire.ToConnect(err)
		}
	case key != "":
		p.journal.hold(key)
	}
	return p.ProcessClient.Exec(ctx, r)
}

// Forget frees the key here too.
func (p *keyedProcess) Forget(ctx context.Context, r *connect.Request[wire.ForgetRequest]) (*connect.Response[wire.ForgetResponse], error) {
	key, j := r.Msg.GetKey(), p.journal
	if !chosenKey(key) {
		return p.ProcessClient.Forget(ctx, r)
	}
	defer j.locks.Lock(key)()
	res, err := p.ProcessClient.Forget(ctx, r)
	if err == nil {
		j.drop(key)
	}
	return res, err
}

func chosenKey(key string) bool { return key != "" && len(key) <= keyLengthMax && !wire.MadeUp(key) }

// keyRefused reports whether the guest has certainly started nothing.
func keyRefused(err error) bool {
	switch errs.Of(err) {
	case errs.Invalid, errs.NotFound, errs.Denied, errs.Unsupported, errs.Limit:
		return true
	}
	return false
}
