package serve

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/store"
)

// formerNode is what every server called itself before data directories had an
// identity of their own.
const formerNode = "local"

// node is who a data directory is among others. Its records carry the ID.
type node struct {
	ID   string    `json:"id"`
	Name string    `json:"name"` // for people: the host's, when it was made
	Made time.Time `json:"made"`
}

// identity returns the node of a data directory, making it at the first start.
// Preconditions: the directory is locked.
func identity(home string) (node, error) {
	path := home + "/node.json"
	var n node
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &n); err != nil || n.ID == "" {
			return n, errs.Wrap(errs.Corrupt, err, "the file node.json of the data directory cannot be read")
		}
		return n, nil
	case !errors.Is(err, fs.ErrNotExist):
		return n, errs.Wrap(errs.Internal, err, "cannot read who this data directory is")
	}
	name, err := os.Hostname()
	if err != nil {
		return n, err
	}
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	n = node{ID: "node_" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:])), Name: name, Made: time.Now().UTC().Round(0)}
	if data, err = json.Marshal(n); err == nil {
		err = writeSynced(path, append(data, '\n'))
	}
	if err != nil {
		return n, errs.Wrap(errs.Internal, err, "cannot keep who this data directory is")
	}
	return n, nil
}

// writeSynced replaces a file, which is on disk then.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path)) // else a power cut may take the name back
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ownerKey is where an external store says whose it is.
const ownerKey = "owner"

// ownStore claims an external store for this data directory, for good. The
// machines, files and histories that its records speak of are here; a server of
// another directory would find none of them, and call them lost.
//
// Exists: it is another one's; the error says whose.
func ownStore(ctx context.Context, s *store.Store, n node) error {
	kv, err := s.KV(ctx, "nodes")
	if err != nil {
		return err
	}
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = kv.Create(ctx, ownerKey, value)
	if !errs.Is(err, errs.Exists) {
		return err
	}
	value, _, err = kv.Get(ctx, ownerKey)
	if err != nil {
		return err
	}
	var owner node
	if err := json.Unmarshal(value, &owner); err != nil {
		return errs.Wrap(errs.Corrupt, err, "whose the external store is cannot be read")
	}
	if owner.ID == n.ID {
		return nil
	}
	return errs.New(errs.Exists, "the store belongs to the data directory %s of the host %.64q since %s; several servers on one store are not built yet",
		owner.ID, owner.Name, owner.Made.Format(time.DateOnly)).
		WithHint("give this server a store of its own, or none; the sandboxes and files of that store are with the other one")
}
