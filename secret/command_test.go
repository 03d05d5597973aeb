package secret

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

// testKey has, as base64, both letters in which its alphabets differ.
var testKey = bytes.Repeat([]byte{0xfb, 0xff, 0xbf, 0x01}, keyBytes/4)

// The key is what a command prints, in any usual form; what one form has sealed, all open.
func TestCommandSealer(t *testing.T) {
	std, urls := base64.StdEncoding.EncodeToString(testKey), base64.URLEncoding.EncodeToString(testKey)
	direct, err := NewSealer(testKey)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := direct.Seal(t.Context(), []byte("hunter2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{
		std, std + "\n", std + "\r\n", strings.TrimRight(std, "="), urls, strings.TrimRight(urls, "="),
		hex.EncodeToString(testKey), strings.ToUpper(hex.EncodeToString(testKey)) + "\n",
	} {
		s, err := CommandSealer(t.Context(), []string{"printf", "%s", printed})
		if err != nil {
			t.Errorf("%q: %v", printed, err)
			continue
		}
		if plain, err := s.Open(t.Context(), sealed, nil); err != nil || string(plain) != "hunter2" {
			t.Errorf("%q: %q, %v", printed, plain, err)
		}
		for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %x", s, s, s, s, s), logged(s)} {
			if !strings.Contains(text, stars) || strings.ContainsAny(text, "0123456789{") {
				t.Errorf("the sealer prints as %q", text)
			}
		}
	}
}

// logged is a sealer as the log has it.
func logged(s Sealer) string {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).Info("x", "sealer", s)
	return b.String()
}

// A command that does not tell a key is refused with the reason; what it printed, which may
// be a key, is in no error, what it said on its standard error is.
func TestCommandSealer_refuses(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(testKey)
	const wordOfIt = "hunter2-word" // is printed and must not be told
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\necho "+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := func(line string) []string { return []string{"sh", "-c", line} }
	for _, c := range []struct {
		name  string
		argv  []string
		class errs.Class
		want  string
	}{
		{"nothing", nil, errs.Invalid, "has no program"},
		{"no program", []string{"", "x"}, errs.Invalid, "has no program"},
		{"one that is not there", []string{"skete-no-such-program"}, errs.Invalid, "not found"},
		{"a path that is not there", []string{filepath.Join(dir, "none")}, errs.Invalid, "no such file"},
		{"one that may not be run", []string{plain}, errs.Invalid, "permission denied"},
		{"a directory", []string{dir}, errs.Invalid, "permission denied"},
		{"a line of a shell", []string{"echo " + key}, errs.Invalid, "no such file"},
		{"an empty answer", []string{"true"}, errs.Invalid, "prints 0 bytes that are no key"},
		{"a word", []string{"echo", wordOfIt}, errs.Invalid, "prints 12 bytes that are no key"},
		{"raw bytes", []string{"printf", "%s", string(bytes.Repeat([]byte{'k'}, keyBytes))}, errs.Invalid, "prints 32 bytes that are no key"},
		{"31 bytes", []string{"echo", base64.StdEncoding.EncodeToString(testKey[:31])}, errs.Invalid, "no key"},
		{"33 bytes", []string{"echo", base64.StdEncoding.EncodeToString(append([]byte{1}, testKey...))}, errs.Invalid, "no key"},
		{"31 bytes in hexadecimal", []string{"echo", hex.EncodeToString(testKey[:31])}, errs.Invalid, "no key"},
		{"one byte too few in hexadecimal", []string{"echo", hex.EncodeToString(testKey)[:63]}, errs.Invalid, "no key"},
		{"two ends of lines", []string{"printf", "%s", key + "\n\n"}, errs.Invalid, "no key"},
		{"a key over two lines", []string{"printf", "%s", key[:20] + "\n" + key[20:]}, errs.Invalid, "no key"},
		{"a space before it", []string{"echo", " " + key}, errs.Invalid, "no key"},
		{"bits too many", []string{"echo", strings.Replace(key, "E=", "F=", 1)}, errs.Invalid, "no key"},
		{"an answer without end", []string{"yes", wordOfIt}, errs.Invalid, "prints more than 256 bytes"},
		{"a failure", sh("echo " + wordOfIt + "; echo the vault is sealed >&2; exit 3"), errs.Unavailable, "exit status 3: the vault is sealed"},
		{"a failure that says nothing", sh("echo " + key + "; exit 1"), errs.Unavailable, "exit status 1"},
		{"a failure after a key", sh("echo " + key + "; echo no lease >&2; exit 1"), errs.Unavailable, "no lease"},
		{"one that tells the key as an error, too", sh("set -x; echo " + key + "; exit 1"), errs.Unavailable, "+ echo ***"},
		{"one that tells the key as an error again and again", sh("echo " + key + "; printf 'twenty bytes of text' >&2; i=0; while [ $i -lt 200 ]; do echo " + key + " >&2; i=$((i+1)); done; exit 1"), errs.Unavailable, "***"},
		{"errors that colour the terminal", sh(`printf '\033[31mred\nlines\033[0m' >&2; exit 1`), errs.Unavailable, "red lines"},
		{"errors without end", sh("yes long >&2 & p=$!; head -c 100000 /dev/zero | tr '\\0' x >&2; kill $p; exit 1"), errs.Unavailable, "…"},
		{"one that is killed", sh("kill -9 $$"), errs.Unavailable, "signal: killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := CommandSealer(t.Context(), c.argv)
			if s != nil || !errs.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v of class %s, want %q of %s", err, errs.Of(err), c.want, c.class)
			}
			all := err.Error() + errs.Public(err) + errs.Hint(err)
			for _, secret := range []string{wordOfIt, key, key[:12], hex.EncodeToString(testKey)} {
				// What cannot be run was never asked; its own name is the operator's.
				if strings.Contains(all, secret) && c.name != "a line of a shell" {
					t.Errorf("the error tells %q: %s", secret, all)
				}
			}
			if strings.ContainsAny(all, "\x1b\n") || len(all) > 2000 {
				t.Errorf("%d bytes: %q", len(all), all)
			}
		})
	}
}

// A command that does not end is ended, with what it has started; so is one whose caller
// goes.
func TestCommandSealer_ends(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		limit time.Duration
		want  string
	}{
		{"time", t.Context(), 200 * time.Millisecond, "it has not ended in 200ms"},
		{"caller", gone, time.Hour, "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			patience.Within(t, 20*time.Second, "the command ends", func() {
				_, err := runForKey(c.ctx, []string{"sh", "-c", "sleep 1000 & echo $! > \"$0\"; wait", pid}, c.limit)
				if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v of class %s", err, errs.Of(err))
				}
			})
			data, err := os.ReadFile(pid)
			if err != nil {
				return // it was ended before it had started anything
			}
			patience.Until(t, 10*time.Second, "what it started has ended", func() bool {
				_, err := os.Stat("/proc/" + strings.TrimSpace(string(data)))
				return os.IsNotExist(err)
			})
		})
	}
}

// A command that prints without end is not waited for.
func TestCommandSealer_endsWhatPrintsOn(t *testing.T) {
	patience.Within(t, 20*time.Second, "the command ends", func() {
		if _, err := runForKey(t.Context(), []string{"yes"}, time.Hour); !errs.Is(err, errs.Invalid) {
			t.Error(err)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(base64.StdEncoding.EncodeToString(testKey))
	f.Add(hex.EncodeToString(testKey) + "\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := parseKey(New(text))
		if (err == nil) != (len(key) == keyBytes) {
			t.Fatalf("%q: %d bytes, %v", text, len(key), err)
		}
		said, _ := json.Marshal(fmt.Sprint(err))
		if len(text) >= 40 && bytes.Contains(said, []byte(text)) {
			t.Errorf("the error repeats %q", text)
		}
	})
}
