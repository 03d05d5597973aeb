package life

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/keylock"
)

// This file remembers on the host which keys of commands a sandbox has
// used, so that the same key never runs twice: not after its machine died
// either, whose own memory dies with it.
//
// A key that a caller chose is on the disk before its start is sent to the
// guest. One that was made up (wire.MadeUp) is in no hands but those of
// the client that retries a broken start: it is held in memory, and costs
// nothing.

// Bounds of a journal.
const (
	keysMax        = 100_000 // chosen keys; the guest remembers no more either
	recentKeysMax  = 1000    // made-up keys, the newest
	keyLengthMax   = 128
	fingerprintMax = 64
	keyBytesMax    = 64 << 20
	keySlackMax    = 1000 // lines more than keys, before the file is written anew
	keyFilePerm    = 0o600
	keyDirPerm     = 0o700
	newSuffix      = ".new"
	lineAdd        = '+'
	lineDrop       = '-'
	lineLongest    = 1 + keyLengthMax + 1 + 2*fingerprintMax
)

// keyJournal is the used keys of one sandbox: a file of lines, "+key fingerprint"
// before a start, "-key" when a key is free again. A torn last line is of a
// start that was never sent.
//
// All methods are safe for concurrent use.
type keyJournal struct {
	path  string
	locks keylock.Locks[string] // of a key, over its start; before mu

	mu     sync.Mutex
	loaded bool
	used   map[string]string // the caller's fingerprint by key, of those on disk
	size   int64             // of the file
	lines  int
	recent []string // made-up keys, the oldest first
}

// openKeyJournal returns the journal in the file, which need not be there: nothing is
// read before it is needed.
func openKeyJournal(path string) *keyJournal { return &keyJournal{path: path} }

// removeKeyJournal removes the journal of a sandbox that is no more.
func removeKeyJournal(path string) error {
	return errors.Join(keysRemoved(os.Remove(path)), keysRemoved(os.Remove(path+newSuffix)))
}

func keysRemoved(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Copy writes what the journal holds into another file, on the disk when it
// returns; without keys, nothing.
func (j *keyJournal) Copy(to string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil || len(j.used) == 0 {
		return err
	}
	return writeKeys(to, j.used)
}

// add notes that a key is about to be used. existed: it was before.
func (j *keyJournal) add(key, fingerprint string) (existed bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return false, err
	}
	if _, existed = j.used[key]; existed {
		return true, nil
	}
	if len(j.used) >= keysMax {
		return false, errs.New(errs.Limit, "the sandbox has used %d keys", keysMax).WithHint("forget commands that have ended")
	}
	if err := j.append(keyLine(lineAdd, key, fingerprint), true); err != nil {
		return false, errs.Wrap(keyClassOf(err), err, "the key of the command cannot be noted on the host, so it was not started")
	}
	j.used[key] = fingerprint
	return false, nil
}

func keyClassOf(err error) errs.Class {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Limit
	}
	return errs.Internal
}

// drop notes that a key is free. It is not synced: losing it only keeps a key
// used.
func (j *keyJournal) drop(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.load() != nil {
		return
	}
	if _, ok := j.used[key]; !ok {
		return
	}
	delete(j.used, key)
	_ = j.append(keyLine(lineDrop, key, ""), false)
	if j.lines > 2*len(j.used)+keySlackMax {
		j.compact()
	}
}

// compact writes the file anew. What fails leaves the longer one.
func (j *keyJournal) compact() {
	if writeKeys(j.path, j.used) == nil {
		j.loaded = false // sizes are read again
	}
}

// hold keeps a made-up key in memory.
func (j *keyJournal) hold(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.recent) == recentKeysMax {
		j.recent = append(j.recent[:0], j.recent[recentKeysMax/2:]...)
	}
	j.recent = append(j.recent, key)
}

// all returns every key that was used, as a guest is told of it.
func (j *keyJournal) all() ([]*wire.UsedKey, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return nil, err
	}
	var list []*wire.UsedKey
	for key, fingerprint := range j.used {
		list = append(list, &wire.UsedKey{Key: key, Fingerprint: []byte(fingerprint)})
	}
	for _, key := range j.recent {
		list = append(list, &wire.UsedKey{Key: key})
	}
	return list, nil
}

func keyLine(kind byte, key, fingerprint string) []byte {
	b := append([]byte{kind}, key...)
	if fingerprint != "" {
		b = hex.AppendEncode(append(b, ' '), []byte(fingerprint))
	}
	return append(b, '\n')
}

// append adds a line to the file, whole or not at all.
//
// Preconditions: mu is held, the file was loaded.
func (j *keyJournal) append(b []byte, synced bool) error {
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE, keyFilePerm)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(j.path), keyDirPerm); err == nil {
			f, err = os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE, keyFilePerm)
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteAt(b, j.size); err == nil && synced {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err == nil && synced && j.size == 0 {
		err = syncDirs(filepath.Dir(j.path))
	}
	if err != nil {
		_ = f.Truncate(j.size)
		return err
	}
	j.size += int64(len(b))
	j.lines++
	return nil
}

// syncDirs makes the names of a new file and of its directory last.
func syncDirs(dir string) error {
	for _, d := range []string{dir, filepath.Dir(dir)} {
		f, err := os.Open(d)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// load reads the file, once.
//
// Preconditions: mu is held.
func (j *keyJournal) load() error {
	if j.loaded {
		return nil
	}
	data, err := readKeys(j.path)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "the keys that the sandbox has used cannot be read")
	}
	j.used, j.size, j.lines = parseKeys(data)
	j.loaded = true
	return nil
}

func readKeys(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keyBytesMax+1))
	if err == nil && len(data) > keyBytesMax {
		err = errs.New(errs.Corrupt, "the file is larger than %d bytes", keyBytesMax)
	}
	return data, err
}

// parseKeys returns the keys in use and where the next line goes. Lines that are
// no journal's are passed over.
func parseKeys(data []byte) (used map[string]string, size int64, lines int) {
	used = map[string]string{}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	for l := range bytes.Lines(data) {
		lines++
		l = l[:len(l)-1]
		if len(l) < 2 || len(l) > lineLongest {
			continue
		}
		key, printed, _ := bytes.Cut(l[1:], []byte(" "))
		fingerprint, err := hex.DecodeString(string(printed))
		switch {
		case err != nil || len(key) == 0 || len(key) > keyLengthMax:
		case l[0] == lineAdd:
			used[string(key)] = string(fingerprint)
		case l[0] == lineDrop:
			delete(used, string(key))
		}
	}
	return used, int64(len(data)), lines
}

// writeKeys puts a file with the keys in place of what is there.
func writeKeys(path string, used map[string]string) error {
	if err := os.MkdirAll(filepath.Dir(path), keyDirPerm); err != nil {
		return err
	}
	var b bytes.Buffer
	for key, fingerprint := range used {
		b.Write(keyLine(lineAdd, key, fingerprint))
	}
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, keyFilePerm)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(path))
}

// takeKeyJournal copies the journal that Copy wrote to a new sandbox's place; no error
// where there was none.
func takeKeyJournal(from, path string) error {
	data, err := readKeys(from)
	if err != nil || len(data) == 0 {
		return err
	}
	used, _, _ := parseKeys(data)
	return writeKeys(path, used)
}
