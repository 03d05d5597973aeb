package guest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	identityFile     = "identity.json"
	identityBytesMax = 1 << 20
)

// identity is who this machine is: what its boot file says, or what the last
// Adopt made of it. It outlives supervise, in a file; it does not outlive the
// boot, because the file names init's own boot id.
type identity struct {
	file string // where it is kept
	own  string // init's boot id

	mu   sync.Mutex
	boot wire.Boot
	id   string // the boot id that callers see
}

// record is the file's content. The environment is bytes: a value need not be
// UTF-8.
type record struct {
	InitBoot string            `json:"init_boot"`
	BootID   string            `json:"boot_id"`
	Sandbox  string            `json:"sandbox"`
	Hostname string            `json:"hostname"`
	Workdir  string            `json:"workdir"`
	Env      map[string][]byte `json:"env"`
}

// openIdentity reads who an earlier supervise of this boot was told to be.
func openIdentity(boot wire.Boot, ownBoot string) (*identity, error) {
	dir := boot.StateDir
	if dir == "" {
		dir = pair.DefaultStateDir
	}
	i := &identity{file: filepath.Join(dir, identityFile), own: ownBoot, boot: boot, id: ownBoot}
	f, err := os.Open(i.file)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, identityBytesMax))
	if err != nil {
		return nil, err
	}
	var r record
	if json.Unmarshal(data, &r) != nil || r.InitBoot != ownBoot || r.BootID == "" {
		return i, nil // of an earlier boot on the same disk
	}
	i.boot, i.id = r.apply(boot), r.BootID
	return i, nil
}

func (r record) apply(b wire.Boot) wire.Boot {
	b.Sandbox, b.Hostname, b.Workdir = r.Sandbox, r.Hostname, r.Workdir
	b.Env = make(map[string]string, len(r.Env))
	for k, v := range r.Env {
		b.Env[k] = string(v)
	}
	return b
}

// now returns the present boot and its id.
func (i *identity) now() (wire.Boot, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.boot, i.id
}

// change stores what f makes of the present boot, then makes it the present
// one. On error nothing has changed.
func (i *identity) change(id string, f func(*wire.Boot)) (wire.Boot, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b := i.boot
	b.Env = maps.Clone(b.Env)
	f(&b)
	r := record{InitBoot: i.own, BootID: id, Sandbox: b.Sandbox, Hostname: b.Hostname, Workdir: b.Workdir, Env: map[string][]byte{}}
	for k, v := range b.Env {
		r.Env[k] = []byte(v)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return b, err
	}
	if len(data) > identityBytesMax {
		return b, errs.New(errs.Invalid, "names and environment have more than %d bytes", identityBytesMax)
	}
	if err := replaceFile(i.file, data, 0o600); err != nil {
		return b, err
	}
	i.boot, i.id = b, id
	return b, nil
}

// replaceFile writes a file at once or not at all.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
