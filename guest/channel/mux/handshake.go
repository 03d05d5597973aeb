package mux

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
)

// A session begins so: the host repeats hello+nonce until it reads ok+nonce,
// then writes start+nonce; from there on both speak yamux. Everything else that
// either reads meanwhile is of an earlier session and thrown away.
const (
	tagHello = "SKHELLO:"
	tagOK    = "SKREADY:"
	tagStart = "SKSTART:"

	tagBytes   = 8
	nonceBytes = 16
	wordBytes  = tagBytes + nonceBytes
)

const (
	helloEvery    = 10 * time.Millisecond
	answerTimeout = 5 * time.Second
	readBytes     = 64 << 10
)

// filler ends an old session at the other end, wherever in a frame that is: the
// byte is no version of yamux, and there are more of them than a frame has.
var filler = bytes.Repeat([]byte{0xff}, frameBytesMax+2*yamuxHeader)

// fillAt says before which of its hellos the host sends the filler: seldom,
// since a guest that is still booting finds all of it in the line.
func fillAt(hello int) bool { return hello == 50 || hello%500 == 0 }

type nonce [nonceBytes]byte

func newNonce() nonce {
	var n nonce
	_, _ = rand.Read(n[:])
	return n
}

func word(tag string, n nonce) []byte { return append([]byte(tag), n[:]...) }

// nextWord passes over everything up to the next word, and stands before it:
// the caller passes over the whole of it, or, when it is not for him, over its
// tag alone. A host that was cut off in the middle of one word may begin another
// right there, so what looks like a word can hold the beginning of the true one.
func nextWord(r *bufio.Reader) (tag string, n nonce, err error) {
	for {
		if _, err := r.Peek(wordBytes); err != nil {
			return "", n, err
		}
		buf, _ := r.Peek(r.Buffered())
		at, tag := findWord(buf)
		if tag == "" {
			_, _ = r.Discard(at)
			continue
		}
		copy(n[:], buf[at+tagBytes:])
		_, err := r.Discard(at)
		return tag, n, err
	}
}

// findWord returns where the first whole word is, and its tag; without one,
// where one may begin.
func findWord(buf []byte) (at int, tag string) {
	end := len(buf) - wordBytes + 1
	for at < end {
		i := bytes.IndexByte(buf[at:end], tagHello[0])
		if i < 0 {
			return end, ""
		}
		at += i
		switch tag := string(buf[at : at+tagBytes]); tag {
		case tagHello, tagOK, tagStart:
			return at, tag
		}
		at++
	}
	return end, ""
}

// greet is the host's half. When it returns without an error, r stands before
// the guest's first byte of the session.
func greet(ctx context.Context, conn net.Conn, r *bufio.Reader) error {
	n := newNonce()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	answered := make(chan error, 1)
	go func() { answered <- awaitOK(r, n) }()
	err := sayHello(conn, n, answered)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	if _, err := conn.Write(word(tagStart, n)); err != nil {
		return err
	}
	if !stop() { // in the last moment: the deadline is set, or about to be
		return ctx.Err()
	}
	return conn.SetDeadline(time.Time{})
}

// sayHello repeats the hello until answered says something, which it returns.
func sayHello(conn net.Conn, n nonce, answered <-chan error) error {
	tick := time.NewTicker(helloEvery)
	defer tick.Stop()
	msg := word(tagHello, n)
	for i := 1; ; i++ {
		_ = conn.SetWriteDeadline(time.Now().Add(helloEvery))
		var err error
		if fillAt(i) {
			_, err = conn.Write(filler)
		}
		if err == nil {
			_, err = conn.Write(msg)
		}
		// A line that is full is no error: the peer does not read it yet.
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			<-answered //nolint:errcheck // ours is the first
			return err
		}
		select {
		case err := <-answered:
			return err
		case <-tick.C:
		}
	}
}

func awaitOK(r *bufio.Reader, n nonce) error {
	for {
		tag, got, err := nextWord(r)
		if err != nil {
			return err
		}
		if tag == tagOK && got == n {
			_, err := r.Discard(wordBytes)
			return err
		}
		_, _ = r.Discard(tagBytes)
	}
}

// answeredMax is how many hosts' numbers the guest remembers in a handshake.
const answeredMax = 16

// answer is the guest's half. Several hosts may have come and gone since the
// line was last read: each number is answered once, and whose number was
// answered may start. If that host is gone, the next one's hello ends its
// session at once.
func answer(port Port, r *bufio.Reader) error {
	var answered []nonce
	for {
		tag, n, err := nextWord(r)
		if err != nil {
			return err
		}
		known := slices.Contains(answered, n)
		if tag == tagStart && known {
			_, err := r.Discard(wordBytes)
			return errors.Join(err, port.SetWriteDeadline(time.Time{}))
		}
		if tag == tagHello && !known {
			answered = append(answered, n)
			answered = answered[max(0, len(answered)-answeredMax):]
			_ = port.SetWriteDeadline(time.Now().Add(answerTimeout))
			if _, err := port.Write(word(tagOK, n)); err != nil {
				return fmt.Errorf("answer the host: %w", err)
			}
		}
		_, _ = r.Discard(tagBytes)
	}
}
