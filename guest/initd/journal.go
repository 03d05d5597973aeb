package initd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/skete-dev/skete/guest/initd/pair"
)

// The journal remembers, over a reboot of the machine with the same disk,
// which keys have been used: a line "+key" before the fork, "-key" when a key
// is given back. It holds no status: what it names at boot is Lost.
//
// A line is in the kernel before the fork; it is on the disk at most
// journalSync later. A power cut within that time can forget a key.
const (
	journalBytesMax = 64 << 20
	journalSync     = 100 * time.Millisecond
)

type journal struct {
	mu    sync.Mutex
	f     *os.File
	dirty bool
}

// openJournal reads the keys of earlier boots and rewrites the file with
// those alone. A torn last line (a crash) is dropped: its fork never happened.
func openJournal(path string) (*journal, []string, error) {
	keys, err := readJournal(path)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) > 0 {
		if err := rewriteJournal(path, keys); err != nil {
			return nil, nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return &journal{f: f}, keys, nil
}

func readJournal(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, journalBytesMax))
	if err != nil {
		return nil, err
	}
	return parseJournal(data), nil
}

// parseJournal returns the keys in use, oldest first. Lines that are no
// journal's are passed over.
func parseJournal(data []byte) []string {
	end := bytes.LastIndexByte(data, '\n')
	used := map[string]bool{}
	var order []string
	for line := range bytes.SplitSeq(data[:end+1], []byte("\n")) {
		if len(line) < 2 || len(line) > pair.KeyBytesMax+1 {
			continue
		}
		key := string(line[1:])
		switch line[0] {
		case '+':
			if !used[key] {
				order = append(order, key)
			}
			used[key] = true
		case '-':
			delete(used, key)
		}
	}
	var keys []string
	for _, k := range order {
		if used[k] && len(keys) < pair.KeysMax {
			keys = append(keys, k)
			delete(used, k)
		}
	}
	return keys
}

func rewriteJournal(path string, keys []string) error {
	var b bytes.Buffer
	for _, k := range keys {
		b.WriteString("+" + k + "\n")
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// add notes a key before its fork.
func (j *journal) add(key string) error { return j.line("+" + key + "\n") }

// drop notes that a key is free again. A lost drop only keeps a key used.
func (j *journal) drop(key string) { _ = j.line("-" + key + "\n") }

func (j *journal) line(s string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.WriteString(s); err != nil {
		return err
	}
	if !j.dirty {
		j.dirty = true
		time.AfterFunc(journalSync, j.sync)
	}
	return nil
}

func (j *journal) sync() {
	j.mu.Lock()
	j.dirty = false
	j.mu.Unlock()
	_ = j.f.Sync()
}
