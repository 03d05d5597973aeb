package skill

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// This file keeps the files of versions in the store, so that every server of it has them.
//
// A content is an archive, cut into values of the store. It belongs to one version of one
// record, so that removing it needs no agreement with other servers: only the one whose
// change of the record dropped the content removes it. What a crash leaves over, on either
// way, is noted before its first piece is written, and swept later.

const (
	pieceBytes = 64 << 10 // what a value may have
	piecesMax  = (2*TreeBytesMax)/pieceBytes + 1
	// putTime is what a content may take until its record is written, clocks that differ
	// included. Later it is a leftover.
	putTime = time.Hour
)

// contents keeps archives by a random name.
type contents struct {
	kv  kv.Store
	now func() time.Time
}

// noted is a content that is being written, or was.
type noted struct {
	V  int       `json:"v"`
	At time.Time `json:"at"`
}

func noteKey(id string) string         { return "put/" + id }
func pieceKey(id string, i int) string { return fmt.Sprintf("data/%s/%04d", id, i) }

// put keeps an archive, and returns its name.
func (c contents) put(ctx context.Context, data []byte) (id string, err error) {
	id = rand.Text()
	note, err := json.Marshal(noted{V: recordForm, At: c.now().UTC()})
	if err == nil {
		_, err = c.kv.Create(ctx, noteKey(id), note)
	}
	i := 0
	for piece := range slices.Chunk(data, pieceBytes) {
		if err == nil {
			_, err = c.kv.Create(ctx, pieceKey(id, i), piece)
		}
		i++
	}
	if err != nil {
		c.drop(ctx, []string{id})
		return "", err
	}
	return id, nil
}

// get returns an archive. NotFound: there is none of that name, or not all of it.
func (c contents) get(ctx context.Context, id string) ([]byte, error) {
	if id == "" {
		return nil, errs.New(errs.NotFound, "there are no files of the skill")
	}
	pieces := map[string][]byte{}
	err := c.kv.List(ctx, "data/"+id+"/", func(key string, value []byte, _ uint64) error {
		if len(pieces) == piecesMax {
			return errs.New(errs.Corrupt, "a skill has too many pieces")
		}
		pieces[key] = bytes.Clone(value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var data []byte
	for i := range len(pieces) {
		piece, ok := pieces[pieceKey(id, i)]
		if !ok {
			return nil, errs.New(errs.NotFound, "a piece of a skill is missing")
		}
		data = append(data, piece...)
	}
	if len(data) == 0 {
		return nil, errs.New(errs.NotFound, "there are no files of the skill")
	}
	return data, nil
}

// drop removes contents. What it cannot remove is left to a sweep.
func (c contents) drop(ctx context.Context, ids []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, id := range ids {
		if c.remove(ctx, id) != nil {
			return
		}
	}
}

// remove removes the pieces first: what is still noted is swept.
func (c contents) remove(ctx context.Context, id string) error {
	revisions := map[string]uint64{}
	err := c.kv.List(ctx, "data/"+id+"/", func(key string, _ []byte, revision uint64) error {
		revisions[key] = revision
		return nil
	})
	for key, revision := range revisions {
		if err == nil {
			err = c.kv.Delete(ctx, key, revision)
		}
	}
	if err != nil {
		return err
	}
	_, revision, err := c.kv.Get(ctx, noteKey(id))
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.kv.Delete(ctx, noteKey(id), revision)
}

// old are the contents that were begun so long ago that their record was written, or never
// will be.
func (c contents) old(ctx context.Context) (ids []string, err error) {
	err = c.kv.List(ctx, noteKey(""), func(key string, value []byte, _ uint64) error {
		var n noted
		if err := json.Unmarshal(value, &n); err != nil || n.V != recordForm {
			return errs.Wrap(errs.Corrupt, err, "the note of a skill's files cannot be read")
		}
		if c.now().Sub(n.At) > putTime {
			ids = append(ids, strings.TrimPrefix(key, noteKey("")))
		}
		return nil
	})
	return ids, err
}
