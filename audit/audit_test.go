package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
)

const writerEnv = "SKETE_AUDIT_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		write(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// write appends until it is killed, and says what was appended.
func write(dir string) {
	l, err := audit.Open(context.Background(), audit.Config{Dir: dir, FileBytesMax: 20_000})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		if err := l.Append(audit.Record{Who: "w", What: "test.x", On: strconv.Itoa(i)}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

var at = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

func open(t *testing.T, c audit.Config) *audit.Log {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Now == nil {
		c.Now = func() time.Time { return at }
	}
	l, err := audit.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t *testing.T, l *audit.Log, n int) {
	t.Helper()
	for i := range n {
		must(t, l.Append(audit.Record{Tenant: "default", Who: "ci", What: "test.x", On: strconv.Itoa(i), Result: "201", Detail: map[string]string{"a": "b"}}))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func verify(t *testing.T, l *audit.Log) audit.Report {
	t.Helper()
	r, err := l.Verify(t.Context())
	must(t, err)
	return r
}

func good(t *testing.T, when string, l *audit.Log) audit.Report {
	t.Helper()
	r := verify(t, l)
	if len(r.Bad) > 0 {
		t.Errorf("%s: %+v", when, r.Bad)
	}
	return r
}

// list returns all records, the oldest first, page by page.
func list(t *testing.T, l *audit.Log, q audit.Query) []audit.Record {
	t.Helper()
	var all []audit.Record
	for q.Max = 7; ; {
		page, err := l.List(t.Context(), q)
		must(t, err)
		all = append(all, page...)
		if len(page) < q.Max {
			break
		}
		q.Before = page[len(page)-1].N
	}
	slices.Reverse(all)
	return all
}

// exported is a log of some files, and what is known of its end.
func exported(t *testing.T) (text []byte, head audit.Head) {
	t.Helper()
	l := open(t, audit.Config{FileBytesMax: 1000})
	add(t, l, 13)
	var b bytes.Buffer
	must(t, l.Export(t.Context(), &b))
	r := good(t, "at first", l)
	return b.Bytes(), audit.Head{N: r.Last, Hash: r.Hash}
}

// What is appended is there, in order, after a restart too, and is what was written.
func TestAppend(t *testing.T) {
	c := audit.Config{Dir: t.TempDir(), Node: "n1", KV: kvtest.NewMemory(), FileBytesMax: 1500}
	for range 3 {
		l := open(t, c)
		add(t, l, 10)
		good(t, "open", l)
		must(t, l.Close())
		must(t, l.Close())
		if err := l.Append(audit.Record{}); !errs.Is(err, errs.Unavailable) {
			t.Errorf("a log that is closed: %v", err)
		}
	}
	l := open(t, c)
	r := good(t, "at the end", l)
	if r.Records != 30 || r.First != 1 || r.Last != 30 || r.Removed != 0 {
		t.Errorf("%+v", r)
	}
	all := list(t, l, audit.Query{})
	if len(all) != 30 {
		t.Fatalf("%d records are listed", len(all))
	}
	for i, rec := range all {
		want := audit.Record{N: uint64(i + 1), Time: at, Node: "n1", Tenant: "default", Who: "ci", What: "test.x", On: strconv.Itoa(i % 10), Result: "201", Detail: map[string]string{"a": "b"}}
		if d := cmp.Diff(want, rec); d != "" {
			t.Error(d)
		}
	}
}

// One byte that is changed, anywhere, is found, and the first bad record named.
func TestVerify_everyByte(t *testing.T) {
	text, head := exported(t)
	bits := []byte{1, 0x20, 0x80}
	if testing.Short() {
		bits = bits[1:2]
	}
	n, i := uint64(0), 0 // of the newest record before a line, and where the line begins
	for line := range bytes.Lines(text) {
		in := n + 1 // the first that is not to be trusted
		for j := range line {
			for _, bit := range bits {
				changed := bytes.Clone(text)
				changed[i+j] ^= bit
				r, err := audit.Verify(bytes.NewReader(changed), head)
				must(t, err)
				if len(r.Bad) == 0 {
					t.Fatalf("byte %d, %q → %q, is not found", i+j, line[j], changed[i+j])
				}
				if got := r.Bad[0].N; got != in {
					t.Fatalf("byte %d, %q → %q: %+v, not record %d", i+j, line[j], changed[i+j], r.Bad[0], in)
				}
			}
		}
		if i += len(line); line[0] != '{' {
			n++
		}
	}
}

// What is cut off is found, wherever that is; what was removed, added or put elsewhere too.
func TestVerify_lines(t *testing.T) {
	text, head := exported(t)
	for i := range text {
		r, err := audit.Verify(bytes.NewReader(text[:i]), head)
		must(t, err)
		if len(r.Bad) == 0 {
			t.Fatalf("cut off at %d of %d: nothing is found", i, len(text))
		}
	}
	all := slices.Collect(bytes.Lines(text))
	try := func(what string, changed [][]byte) {
		t.Helper()
		r, err := audit.Verify(bytes.NewReader(bytes.Join(changed, nil)), head)
		must(t, err)
		if len(r.Bad) == 0 {
			t.Errorf("%s: nothing is found", what)
		}
	}
	for i, line := range all {
		if line[0] == '{' { // of a file; the records are whole without
			continue
		}
		try(fmt.Sprintf("without line %d", i+1), slices.Delete(slices.Clone(all), i, i+1))
		try(fmt.Sprintf("line %d twice", i+1), slices.Insert(slices.Clone(all), i, all[i]))
		if i > 0 {
			swapped := slices.Clone(all)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			try(fmt.Sprintf("line %d before the one before it", i+1), swapped)
		}
	}
	r, err := audit.Verify(bytes.NewReader(text), audit.Head{})
	if must(t, err); len(r.Bad) > 0 || r.Hash != head.Hash || r.Last != head.N {
		t.Errorf("as it is: %+v", r)
	}
	r, err = audit.Verify(bytes.NewReader(text), audit.Head{N: head.N, Hash: strings.Repeat("0", 64)})
	if must(t, err); len(r.Bad) != 1 || !strings.Contains(r.Bad[0].Why, "apart from the log") {
		t.Errorf("with another hash at the end: %+v", r)
	}
}

// Files that are gone are found at the next start, by what is kept apart from them; numbers
// are not used twice.
func TestVerify_files(t *testing.T) {
	for name, x := range map[string]struct {
		remove func(files []string) []string
		n      uint64 // of the first that is bad
	}{
		"the oldest": {func(files []string) []string { return files[:1] }, 1},
		"one":        {func(files []string) []string { return files[1:2] }, 0},
		"the newest": {func(files []string) []string { return files[len(files)-1:] }, 0},
		"all":        {func(files []string) []string { return files }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := audit.Config{Dir: t.TempDir(), Node: "n1", KV: kvtest.NewMemory(), FileBytesMax: 2000}
			l := open(t, c)
			add(t, l, 33)
			must(t, l.Close())
			files, err := filepath.Glob(filepath.Join(c.Dir, "*.log"))
			must(t, err)
			if len(files) < 3 {
				t.Fatal(files)
			}
			for _, f := range x.remove(files) {
				if x.n == 0 {
					_, number, _ := strings.Cut(strings.TrimSuffix(filepath.Base(f), ".log"), "-")
					x.n, err = strconv.ParseUint(number, 10, 64)
					must(t, err)
				}
				must(t, os.Remove(f))
			}
			l = open(t, c)
			add(t, l, 1)
			r := verify(t, l)
			if len(r.Bad) == 0 || r.Bad[0].N != x.n || !strings.Contains(r.Bad[0].Why, "missing") {
				t.Errorf("%+v, not from %d on", r.Bad, x.n)
			}
			if r.Last != 34 {
				t.Errorf("the next number is %d", r.Last)
			}
		})
	}
}

// Old files are removed beyond a size, which is told and no fault.
func TestRotate(t *testing.T) {
	c := audit.Config{Dir: t.TempDir(), KV: kvtest.NewMemory(), FileBytesMax: 2000, BytesMax: 8000}
	l := open(t, c)
	add(t, l, 200)
	r := good(t, "after many", l)
	if r.First == 1 || r.Removed != r.First-1 || r.Records != r.Last-r.First+1 {
		t.Errorf("%+v", r)
	}
	size := int64(0)
	files, err := os.ReadDir(c.Dir)
	must(t, err)
	for _, f := range files {
		info, err := f.Info()
		must(t, err)
		size += info.Size()
	}
	if size > 8000+2*2000 {
		t.Errorf("they have %d bytes", size)
	}
	all := list(t, l, audit.Query{})
	for i, rec := range all {
		if rec.N != r.First+uint64(i) {
			t.Fatalf("number %d is at %d", rec.N, i)
		}
	}
	must(t, l.Close())
	good(t, "after a restart", open(t, c))
}

// A line that a crash left in half is cut off, and told; a file of which the end cannot be
// read is left as it is, and found.
func TestOpen_torn(t *testing.T) {
	for end, want := range map[string]string{`0123456789abcdef {"n":`: "", "no record at all\n": "does not begin with a hash", "{}\n": "first line of a file"} {
		c := audit.Config{Dir: t.TempDir(), KV: kvtest.NewMemory()}
		l := open(t, c)
		add(t, l, 5)
		must(t, l.Close())
		files, err := filepath.Glob(filepath.Join(c.Dir, "*.log"))
		must(t, err)
		f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString(end)
		must(t, err)
		must(t, f.Close())
		l = open(t, c)
		add(t, l, 1)
		all := list(t, l, audit.Query{})
		r := verify(t, l)
		if want == "" {
			if len(r.Bad) > 0 || len(all) != 7 || all[5].What != "audit.recovered" || all[5].Detail["bytes"] != strconv.Itoa(len(end)) {
				t.Errorf("%q: %+v, %+v", end, r, all)
			}
			continue
		}
		if len(r.Bad) == 0 || !strings.Contains(r.Bad[0].Why, want) || r.Bad[0].N != 6 || all[5].What != "audit.restarted" {
			t.Errorf("%q: %+v, %+v", end, r, all)
		}
	}
}

// What was appended is there after kill -9.
func TestAppend_killed(t *testing.T) {
	dir := t.TempDir()
	last := -1
	for range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		said := bufio.NewScanner(out)
		for i := 0; i < 300 && said.Scan(); i++ {
			last, err = strconv.Atoi(said.Text())
			must(t, err)
		}
		must(t, cmd.Process.Kill())
		for said.Scan() {
			last, err = strconv.Atoi(said.Text())
			must(t, err)
		}
		_ = cmd.Wait()
		l := open(t, audit.Config{Dir: dir})
		good(t, "killed", l)
		newest, err := l.List(t.Context(), audit.Query{What: "test", Max: 1})
		if must(t, err); len(newest) != 1 || newest[0].On < strconv.Itoa(last) && len(newest[0].On) <= len(strconv.Itoa(last)) {
			t.Errorf("%d was said to be there, the newest is %+v", last, newest)
		}
		must(t, l.Close())
	}
}

// On a full disk records are missed, nothing is written in half, and what was missed is told
// when there is room.
func TestAppend_diskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Skip("skipped: no disk of its own: ", err)
	}
	defer func() { must(t, syscall.Unmount(dir, 0)) }()
	l := open(t, audit.Config{Dir: dir})
	missed := 0
	for range 400 {
		if l.Append(audit.Record{Who: "ci", What: "test.x", On: strings.Repeat("x", 200)}) != nil {
			missed++
		}
	}
	if missed == 0 {
		t.Fatal("the disk was not full")
	}
	good(t, "full", l)
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=256k"))
	add(t, l, 1)
	good(t, "with room", l)
	newest, err := l.List(t.Context(), audit.Query{Max: 2})
	must(t, err)
	if len(newest) != 2 || newest[1].What != "audit.missed" || newest[1].Detail["records"] != strconv.Itoa(missed) {
		t.Errorf("%d were missed: %+v", missed, newest)
	}
	must(t, l.Close())
}

// What is left for later is written soon, at the latest when the log is closed; who leaves it
// does not wait for the disk, and what is too much is told.
func TestLater(t *testing.T) {
	c := audit.Config{Dir: t.TempDir(), FileBytesMax: 1 << 30}
	l := open(t, c)
	const n = 20_000
	for i := range n {
		l.Later(audit.Record{Who: "w", What: "test.x", On: strconv.Itoa(i)})
	}
	must(t, l.Close())
	l = open(t, c)
	r := good(t, "after a restart", l)
	missed, told := 0, uint64(0)
	for q := (audit.Query{What: "audit.missed", Max: audit.PageMax}); ; {
		page, err := l.List(t.Context(), q)
		must(t, err)
		for _, rec := range page {
			n, err := strconv.Atoi(rec.Detail["records"])
			must(t, err)
			missed += n
			told++
		}
		if len(page) < q.Max {
			break
		}
		q.Before = page[len(page)-1].N
	}
	if r.Records-told+uint64(missed) != n {
		t.Errorf("of %d records %d are there, and %d are told to be missed", n, r.Records-told, missed)
	}
}

// Many append at once while others read.
func TestLog_atOnce(t *testing.T) {
	l := open(t, audit.Config{FileBytesMax: 5000, BytesMax: 40_000})
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		writers.Go(func() { add(t, l, 300) })
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				good(t, "while it is written", l)
				if _, err := l.List(t.Context(), audit.Query{Max: 20}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	good(t, "at the end", l)
}

// Records are chosen by what they tell; what is asked wrongly is refused.
func TestList(t *testing.T) {
	now := at
	l := open(t, audit.Config{Now: func() time.Time { return now }})
	for i, r := range []audit.Record{
		{Tenant: "a", Who: "x", What: "tool.started", On: "1"},
		{Tenant: "b", Who: "x", What: "tool.ended", On: "1"},
		{Tenant: "a", Who: "y", What: "toolkit", On: "2"},
		{Tenant: "a", Who: "x", What: "tool", On: "2"},
	} {
		now = at.Add(time.Duration(i) * time.Minute)
		must(t, l.Append(r))
	}
	for want, q := range map[string]audit.Query{
		"4 3 2 1": {}, "4 3 1": {Tenant: "a"}, "3": {Who: "y"}, "4 2 1": {What: "tool"}, "1": {What: "tool.started"}, "2 1": {On: "1"},
		"4 3 2": {Since: at.Add(time.Minute)}, "1 ": {Until: at.Add(time.Minute)}, "2 1 ": {Before: 3}, "4 3": {Max: 2}, "": {Who: "z"},
	} {
		found, err := l.List(t.Context(), q)
		must(t, err)
		var got []string
		for _, r := range found {
			got = append(got, strconv.FormatUint(r.N, 10))
		}
		if strings.Join(got, " ") != strings.TrimSpace(want) {
			t.Errorf("%+v: %v, not %s", q, got, want)
		}
	}
	for _, n := range []int{-1, audit.PageMax + 1} {
		if _, err := l.List(t.Context(), audit.Query{Max: n}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Whatever a text has in it, it stays one line of bounded length.
func TestAppend_odd(t *testing.T) {
	dir := t.TempDir()
	l := open(t, audit.Config{Dir: dir})
	detail := map[string]string{"empty": ""}
	for i := range 100 {
		detail[strconv.Itoa(i)] = strings.Repeat("x", 100_000)
	}
	for _, s := range []string{"a\nb", "\x1b[31mred", "\xff\xfe", "\x00", strings.Repeat("ü", 10_000), "\u2028", `"}`} {
		must(t, l.Append(audit.Record{Tenant: s, Who: s, What: s, On: s, Result: s, Detail: map[string]string{s: s}}))
	}
	must(t, l.Append(audit.Record{Who: "x", What: "y", Detail: detail}))
	good(t, "odd ones", l)
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	text, err := os.ReadFile(files[0])
	must(t, err)
	rows := slices.Collect(bytes.Lines(text))
	if len(rows) != 1+8 {
		t.Errorf("they are %d lines", len(rows))
	}
	for _, row := range rows {
		if len(row) > 64<<10 || bytes.ContainsAny(row[:len(row)-1], "\x00\x1b\n\r") {
			t.Errorf("%.200q", row)
		}
	}
}

// Verify takes whatever there is.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("{\"skete_audit\":1,\"first\":1,\"prev\":\"" + strings.Repeat("0", 64) + "\"}\n"))
	f.Add([]byte("{\"skete_audit\":1,\"first\":18446744073709551615,\"prev\":\"" + strings.Repeat("0", 64) + "\"}\n" + strings.Repeat("0", 64) + " {\"n\":18446744073709551615}\n" + strings.Repeat("0", 64) + " {\"n\":1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := audit.Verify(bytes.NewReader(text), audit.Head{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Records > 0 && len(r.Bad) == 0 && !bytes.Contains(text, []byte(r.Hash)) {
			t.Fatalf("%+v of %q", r, text)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}
