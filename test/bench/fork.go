package main

import (
	"fmt"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// memoryHeld is what the command of a forked sandbox keeps in memory.
const memoryHeld = 64 // MB

// forks measures what goes on from where another sandbox is, beside creates in
// the same run: snapshot, create from it, fork of one, fork of many at once.
func (b *bench) forks(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	// A shell that holds random bytes, so that nothing is left out as zeroes.
	if err := sb.Command("/bin/sh", "-c", fmt.Sprintf("x=$(head -c %d /dev/urandom | base64 -w0); echo ${#x} > ready; while :; do sleep 60; done", memoryHeld<<20*3/4)).Start(b.ctx); err != nil {
		return err
	}
	if err := sb.Command("/bin/sh", "-c", "until [ -s ready ]; do sleep 0.1; done").Run(b.ctx); err != nil {
		return err
	}
	var snapshots, restores, one, cold []time.Duration
	var bytes int64
	for range b.count(20) {
		var snap api.Snapshot
		d, err := timed(func() (err error) { snap, err = sb.Snapshot(b.ctx, api.CreateSnapshot{}); return err })
		if err != nil {
			return err
		}
		snapshots, bytes = append(snapshots, d), snap.Bytes
		for _, c := range []struct {
			into *[]time.Duration
			make func() (string, error)
		}{
			{&restores, func() (string, error) {
				i, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{From: snap.ID})
				return i.ID, err
			}},
			{&one, func() (string, error) {
				made, err := sb.Fork(b.ctx, api.ForkSandbox{})
				if err != nil {
					return "", err
				}
				return made[0].ID, nil
			}},
			{&cold, func() (string, error) {
				box, err := s.sandbox(b.ctx)
				if err != nil {
					return "", err
				}
				return box.ID, nil
			}},
		} {
			var box *client.Sandbox
			d, err := timed(func() error {
				id, err := c.make()
				if err != nil {
					return err
				}
				box = s.c.Sandbox(id)
				return box.Command("/bin/true").Run(b.ctx)
			})
			if err != nil {
				return err
			}
			*c.into = append(*c.into, d)
			if err := box.Destroy(b.ctx); err != nil {
				return err
			}
		}
		if err := s.c.DeleteSnapshot(b.ctx, snap.ID); err != nil {
			return err
		}
	}
	note := fmt.Sprintf("%d MB held in memory; %d MB on the disk", memoryHeld, bytes>>20)
	b.Millis("gvisor: snapshot of a running sandbox, until it is on the disk", snapshots, "", note)
	restored := b.Millis("gvisor: create from a snapshot to first command done", restores, "", note)
	b.Millis("gvisor: fork of a running sandbox to first command done", one, "", note)
	b.Value("ratio: create from a snapshot / create", restored/b.Millis("gvisor: create to first command done, beside forks", cold, "", ""), "x", "", "")
	return b.manyForks(s, sb)
}

// manyForks forks many at once from one snapshot.
func (b *bench) manyForks(s *server, sb *client.Sandbox) error {
	n := b.count(100)
	var made []api.Sandbox
	d, err := timed(func() (err error) { made, err = sb.Fork(b.ctx, api.ForkSandbox{Count: n}); return err })
	if err != nil {
		return err
	}
	cold := 0
	for _, i := range made {
		cold += min(len(i.Notes), 1)
	}
	b.Value("gvisor: forks at once, all in", d.Seconds(), "s", "all succeed", fmt.Sprintf("%d of one sandbox, %d MB each; with a note: %d", len(made), memoryHeld, cold))
	return nil
}
