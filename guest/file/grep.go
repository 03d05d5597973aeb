package file

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
)

// Bounds of a search.
const (
	workers                = 3
	inFlight               = 16       // files opened ahead of the answer
	smallFile              = 1 << 20  // larger ones wait for one of bigFiles
	searchFileBytesDefault = 16 << 20 // larger files are skipped
	searchFileBytesMax     = 64 << 20
	searchContextMax       = 20
)

// bigFiles bounds the memory of all searches in the guest together: two
// large files at a time.
var bigFiles = make(chan struct{}, 2)

// searchQuery says what to search for.
type searchQuery struct {
	Base       string // absolute path of the root, for messages and bounds only
	Only       string // set: search just this file of the root
	Pattern    string
	Literal    bool
	IgnoreCase bool
	Include    string // glob; empty = all
	Limit      int    // lines
	Context    int
	FileBytes  int64 // 0 = FileBytesDefault
}

// searchResult counts.
type searchResult struct {
	Searched, Skipped int
	Truncated         bool
}

type searchRun struct {
	q       searchQuery
	include *globPattern
	m       *matcher
	res     searchResult
}

// searchFile is one file on its way: opened by the walker, read by a worker,
// answered in the walker's order.
type searchFile struct {
	rel   string
	fd    int
	size  int64
	lines []matchedLine
	skip  bool
	done  chan struct{}
}

// Prepare checks a query before anything is opened.
func (q *searchQuery) Prepare() error {
	_, err := q.compile()
	return err
}

func (q *searchQuery) compile() (*searchRun, error) {
	if q.Context < 0 || q.Context > searchContextMax {
		return nil, errs.New(errs.Invalid, "at most %d lines of context", searchContextMax)
	}
	if q.FileBytes < 0 || q.FileBytes > searchFileBytesMax {
		return nil, errs.New(errs.Invalid, "files larger than %d bytes are not searched", searchFileBytesMax)
	}
	if q.FileBytes == 0 {
		q.FileBytes = searchFileBytesDefault
	}
	s := &searchRun{q: *q}
	var err error
	if q.Include != "" {
		if s.include, err = parseGlob(q.Include); err != nil {
			return nil, err
		}
	}
	s.m, err = newMatcher(q.Pattern, q.Literal, q.IgnoreCase, q.Context)
	return s, err
}

// grep searches the files beneath root, in order of their paths. emit gets
// the lines of one file at a time and may keep them.
func grep(ctx context.Context, root int, q searchQuery, emit func(rel string, lines []matchedLine) error) (searchResult, error) {
	s, err := q.compile()
	if err != nil {
		return searchResult{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	toRead, toEmit := make(chan *searchFile), make(chan *searchFile, inFlight)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for f := range toRead {
				s.read(ctx, f)
			}
		})
	}
	emitted := make(chan error, 1)
	go func() { emitted <- s.answer(cancel, toEmit, emit) }()

	walkErr := s.walk(ctx, root, toRead, toEmit)
	close(toRead)
	close(toEmit)
	wg.Wait()
	if err := <-emitted; err != nil {
		return s.res, err
	}
	if s.res.Truncated {
		return s.res, nil // the walk was cut off by us
	}
	return s.res, walkErr
}

func (s *searchRun) walk(ctx context.Context, root int, toRead, toEmit chan<- *searchFile) error {
	opts := tree.Options{Unreadable: passOver}
	if s.include != nil {
		opts.Depth = s.include.Depth()
	}
	visit := func(it tree.Item) error {
		if tree.IsDir(&it.Stat) {
			if kernelTree(s.q.Base, it.Rel) || (s.include != nil && !s.include.mayContain(it.Rel)) {
				return tree.ErrSkip
			}
			return nil
		}
		if !tree.IsRegular(&it.Stat) || (s.include != nil && !s.include.Match(it.Rel)) {
			return nil
		}
		return searchHand(ctx, s.open(it), toRead, toEmit)
	}
	if s.q.Only == "" {
		return tree.Walk(ctx, root, opts, visit)
	}
	st, err := tree.Lstat(root, s.q.Only)
	if err != nil {
		return err
	}
	return visit(tree.Item{Dir: root, Name: s.q.Only, Rel: s.q.Only, Depth: 1, Stat: st})
}

func (s *searchRun) open(it tree.Item) *searchFile {
	f := &searchFile{rel: it.Rel, fd: -1, size: it.Stat.Size, done: make(chan struct{})}
	if f.skip = it.Stat.Size > s.q.FileBytes; !f.skip {
		fd, err := tree.OpenAt(it.Dir, it.Name, unix.O_RDONLY, 0)
		if f.fd = fd; err != nil {
			f.skip = true
		}
	}
	return f
}

// searchHand gives a file to the answer first, so that its place is kept, and then
// to a worker. The worker closes it, or hand if no worker gets it.
func searchHand(ctx context.Context, f *searchFile, toRead, toEmit chan<- *searchFile) error {
	select {
	case toEmit <- f:
	case <-ctx.Done():
		f.close()
		return ctx.Err()
	}
	if f.skip {
		close(f.done)
		return nil
	}
	select {
	case toRead <- f:
		return nil
	case <-ctx.Done():
		f.close()
		f.skip = true
		close(f.done)
		return ctx.Err()
	}
}

func (f *searchFile) close() {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
	}
}

// read searches one file.
func (s *searchRun) read(ctx context.Context, f *searchFile) {
	defer close(f.done)
	defer f.close()
	if f.size > smallFile {
		select {
		case bigFiles <- struct{}{}:
			defer func() { <-bigFiles }()
		case <-ctx.Done():
			f.skip = true
			return
		}
	}
	content, err := s.content(ctx, f)
	if err != nil || content == nil || isBinary(content) {
		f.skip = true
		return
	}
	f.lines = s.m.lines(content, s.q.Limit+1) // one more, to know of a cut
}

// content reads a file that is not too large; nil when it is.
func (s *searchRun) content(ctx context.Context, f *searchFile) ([]byte, error) {
	st, err := tree.Fstat(f.fd)
	if err != nil {
		return nil, err
	}
	if !tree.IsRegular(&st) || st.Size > max(f.size, smallFile) {
		return nil, nil // swapped or grown since the walk saw it
	}
	buf := make([]byte, 0, max(st.Size, 512)+1)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			if int64(len(buf)) > smallFile {
				return nil, nil // grows while we read
			}
			buf = append(buf, 0)[:len(buf)]
		}
		n := 0
		err := tree.Retry(func() (err error) {
			n, err = unix.Read(f.fd, buf[len(buf):min(cap(buf), len(buf)+smallFile)])
			return err
		})
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return buf, nil
		}
		if len(buf) == 0 && isBinary(buf[:n]) {
			return nil, nil // early, before the rest is read
		}
		buf = buf[:len(buf)+n]
	}
}

// answer hands out results in order. At the limit it stops the walk, and goes
// on receiving so that the walk does not block.
func (s *searchRun) answer(cancel context.CancelFunc, toEmit <-chan *searchFile, emit func(string, []matchedLine) error) error {
	var failed error
	left := s.q.Limit
	for f := range toEmit {
		<-f.done
		if failed != nil || s.res.Truncated {
			continue
		}
		if f.skip {
			s.res.Skipped++
			continue
		}
		s.res.Searched++
		if len(f.lines) == 0 {
			continue
		}
		if len(f.lines) > left || left == 0 {
			f.lines, s.res.Truncated = f.lines[:left], true
			cancel()
		}
		left -= len(f.lines)
		if len(f.lines) > 0 {
			if failed = emit(f.rel, f.lines); failed != nil {
				cancel()
			}
		}
	}
	if errors.Is(failed, io.EOF) {
		return nil
	}
	return failed
}
