package service

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	recordBytesMax = 1 << 20
	recordEnding   = ".json"
	runsKept       = 16      // of a service
	logBytesKept   = 8 << 20 // of a service's older runs
)

// record is what outlives supervise, one file for each service.
type record struct {
	InitBoot    string   `json:"init_boot"` // of what follows below Wanted
	ID          string   `json:"id"`        // in the keys of its runs
	Declaration []byte   `json:"declaration"`
	Wanted      bool     `json:"wanted"`
	Next        uint64   `json:"next"`
	Runs        []span   `json:"runs,omitempty"` // oldest first
	Restarts    uint64   `json:"restarts,omitempty"`
	Failures    failures `json:"failures"`
	Ready       bool     `json:"ready,omitempty"` // the last run was
	LastExit    []byte   `json:"last_exit"`       // a message; of an exit with 0 it has no bytes, and is not nil
	LastExitNS  int64    `json:"last_exit_ns,omitempty"`
	// Retry is when the next run is due, after an end.
	Retry time.Time `json:"retry,omitzero"`
	Loop  bool      `json:"loop,omitempty"`
	// Over: it ended and its policy lets it rest.
	Over   bool   `json:"over,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// span is where a run's output stands in the service's log.
type span struct {
	Number uint64 `json:"number"`
	Base   int64  `json:"base"`
	Size   int64  `json:"size"` // -1: it is not over
}

// newRecord is that of a service that was never started.
func newRecord(d *wire.ServiceDeclaration, boot string) (*record, error) {
	r := &record{InitBoot: boot, ID: newID()}
	return r, r.declare(d)
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (r *record) declare(d *wire.ServiceDeclaration) (err error) {
	r.Declaration, err = proto.MarshalOptions{Deterministic: true}.Marshal(d)
	return err
}

// reboot forgets what belonged to an earlier boot: its processes are gone.
func (r *record) reboot(boot string) {
	*r = record{InitBoot: boot, ID: newID(), Declaration: r.Declaration, Wanted: r.Wanted}
}

// key names a run for guest/process. It cannot be guessed, so that no caller
// takes it by mistake.
func (r *record) key(name string, number uint64) string {
	return fmt.Sprintf("service.%s.%s.%d", name, r.ID, number)
}

// logEnd is where the next run's output begins.
func (r *record) logEnd() int64 {
	if len(r.Runs) == 0 {
		return 0
	}
	last := r.Runs[len(r.Runs)-1]
	return last.Base + max(last.Size, 0)
}

// prune takes the runs off that are too many, and returns them.
func (r *record) prune() (old []span) {
	var kept int64
	for i, run := range slices.Backward(r.Runs) {
		kept += max(run.Size, 0)
		if i < len(r.Runs)-1 && (len(r.Runs)-i > runsKept || kept > logBytesKept) {
			old = r.Runs[:i+1]
			r.Runs = append([]span(nil), r.Runs[i+1:]...)
			return old
		}
	}
	return nil
}

func recordFile(dir, name string) string { return filepath.Join(dir, name+recordEnding) }

// save writes the record at once or not at all.
func (r *record) save(dir, name string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := recordFile(dir, name)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readRecord parses a record's file.
func readRecord(path string) (*record, *wire.ServiceDeclaration, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, recordBytesMax+1))
	if err != nil {
		return nil, nil, err
	}
	return parseRecord(data, strings.TrimSuffix(filepath.Base(path), recordEnding))
}

// parseRecord checks that a record can be worked with.
func parseRecord(data []byte, name string) (*record, *wire.ServiceDeclaration, error) {
	bad := func(why string) (*record, *wire.ServiceDeclaration, error) {
		return nil, nil, errs.New(errs.Corrupt, "the record of service %.50q is broken: %s", name, why)
	}
	if len(data) > recordBytesMax {
		return bad("too large")
	}
	var r record
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&r); err != nil || dec.More() {
		return bad("no JSON")
	}
	var d wire.ServiceDeclaration
	if err := proto.Unmarshal(r.Declaration, &d); err != nil {
		return bad("no declaration")
	}
	full, err := complete(&d)
	if err != nil || full.Name != name {
		return bad("its declaration")
	}
	if id, err := hex.DecodeString(r.ID); err != nil || len(id) != 8 {
		return bad("its id")
	}
	end := int64(0)
	for i, s := range r.Runs {
		if s.Base < end || s.Size < -1 || s.Number >= r.Next || (s.Size < 0 && i < len(r.Runs)-1) || s.Base > 1<<60 || s.Size > 1<<60 {
			return bad("its runs")
		}
		end = s.Base + max(s.Size, 0)
	}
	return &r, full, nil
}
