package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	fileBytesMax   = 4 << 20 // of a file that is read; /proc/mounts of a busy host is large
	outputBytesMax = 1 << 20 // of a program that is asked
	programTimeout = 20 * time.Second
)

// at is a path of the host that is looked at.
func (h Host) at(path string) string { return filepath.Join(h.Root, path) }

// read returns what a file of the host holds, without white space around it;
// "" = it is not there or cannot be read.
func (h Host) read(path string) string {
	f, err := os.Open(h.at(path))
	if err != nil {
		return ""
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, fileBytesMax)) // files of /proc may fail in the middle
	return string(bytes.TrimSpace(data))
}

func (h Host) exists(path string) bool {
	_, err := os.Stat(h.at(path))
	return err == nil
}

// program finds a program; "" = there is none.
func (h Host) program(name string) string {
	if strings.Contains(name, "/") {
		if runs(name) {
			return name
		}
		return ""
	}
	for _, dir := range h.Path {
		if path := filepath.Join(dir, name); runs(path) {
			return path
		}
	}
	return ""
}

func runs(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// ask runs a program and returns what it says.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	var out bounded
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out.String(), nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := outputBytesMax - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// version is the first dotted number of a text: of "v1.16.1\n" and of "QEMU
// emulator version 7.2.22 (Debian …)". Missing parts are 0.
func version(text string) (v [3]int, found bool) {
	for i := 0; i < len(text); i++ {
		if !digit(text[i]) {
			continue
		}
		end := i
		for end < len(text) && (digit(text[end]) || text[end] == '.') {
			end++
		}
		parts := strings.Split(strings.Trim(text[i:end], "."), ".")
		if len(parts) < 2 {
			i = end
			continue
		}
		for n := range min(len(parts), len(v)) {
			x, err := strconv.Atoi(parts[n])
			if err != nil {
				return [3]int{}, false
			}
			v[n] = x
		}
		return v, true
	}
	return v, false
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// older reports whether v is before w.
func older(v, w [3]int) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// dotted writes a version.
func dotted(v [3]int) string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// field returns the value of the first line "name: value" or "name : value".
func field(text, name string) (string, bool) {
	for line := range strings.Lines(text) {
		key, value, is := strings.Cut(line, ":")
		if is && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// kilobytes returns a line of /proc/meminfo in bytes.
func kilobytes(meminfo, name string) (int64, bool) {
	value, is := field(meminfo, name)
	if !is {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return 0, false
	}
	return n << 10, true
}

// span is a range of numbers, both ends in it.
type span struct{ first, last int }

func (s span) meets(t span) bool { return s.first <= t.last && t.first <= s.last }

// taken returns the user ids that /etc/passwd and /etc/subuid give away. Lines
// that make no sense are skipped, as the C library does.
func taken(passwd, subuid string) []span {
	var all []span
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 7 {
			if uid, err := strconv.ParseUint(f[2], 10, 31); err == nil {
				all = append(all, span{int(uid), int(uid)})
			}
		}
	}
	for line := range strings.Lines(subuid) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			continue
		}
		first, err := strconv.ParseUint(f[1], 10, 31)
		count, err2 := strconv.ParseUint(f[2], 10, 31)
		if err == nil && err2 == nil && count > 0 {
			all = append(all, span{int(first), int(first + count - 1)})
		}
	}
	return all
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point   string
	kind    string   // of the file system
	options []string // of the mount and of the file system
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func mounts(mountinfo string) []mount {
	var all []mount
	for line := range strings.Lines(mountinfo) {
		before, after, is := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !is || len(f) < 6 || len(g) < 3 {
			continue
		}
		options := append(strings.Split(f[5], ","), strings.Split(g[2], ",")...)
		all = append(all, mount{point: unescape.Replace(f[4]), kind: g[0], options: options})
	}
	return all
}

// holding returns the mount that a path is on.
func holding(all []mount, path string) (mount, bool) {
	var best mount
	var found bool
	for _, m := range all {
		inside := m.point == "/" || path == m.point || strings.HasPrefix(path, m.point+"/")
		if inside && len(m.point) >= len(best.point) { // of equal ones the later covers
			best, found = m, true
		}
	}
	return best, found
}

// nearest returns the directory itself, or the first above it that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
