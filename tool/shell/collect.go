package shell

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/tool"
)

const (
	liveEvery    = time.Second
	liveBytesMax = 4 << 10
)

// collector gathers the output of one command: its head while it comes, and
// its tail when it has ended. In between it only looks from time to time, for
// those who watch: the machine keeps what it writes, and 10 GB need not go
// through us.
type collector struct {
	emit    func(string)
	head    []byte
	tail    []byte
	gapAt   int64 // where what is left out begins
	omitted int64
}

var errEnough = errors.New("enough was seen")

// collect returns how the command ended.
func (c *collector) collect(ctx context.Context, p tool.Process) (tool.Ended, error) {
	err := p.Output(ctx, tool.Offsets{}, true, c.takeHead)
	if err != nil && !errors.Is(err, errEnough) {
		return tool.Ended{}, err
	}
	if err == nil {
		return p.Wait(ctx)
	}
	ended, err := c.watch(ctx, p)
	if err != nil {
		return ended, err
	}
	return ended, c.takeTail(ctx, p, ended.Written.Stdout)
}

func (c *collector) takeHead(chunk tool.Chunk) error {
	if chunk.Gap > 0 { // the reader was too slow, or came late
		c.gapAt = int64(len(c.head))
		return errEnough
	}
	room := outputHeadBytes + outputTailBytes - len(c.head)
	c.show(chunk.Data[:min(len(chunk.Data), room)])
	c.head = append(c.head, chunk.Data[:min(len(chunk.Data), room)]...)
	if len(chunk.Data) > room {
		c.head = c.head[:outputHeadBytes]
		c.gapAt = outputHeadBytes
		return errEnough
	}
	return nil
}

func (c *collector) show(data []byte) {
	if c.emit != nil && len(data) > 0 {
		c.emit(strings.ToValidUTF8(string(data), "\uFFFD"))
	}
}

// watch waits for the end and shows what comes last in the meantime.
func (c *collector) watch(ctx context.Context, p tool.Process) (tool.Ended, error) {
	type end struct {
		tool.Ended
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	ends := make(chan end, 1)
	go func() {
		e, err := p.Wait(ctx)
		ends <- end{e, err}
	}()
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	seen := c.gapAt
	for {
		select {
		case e := <-ends:
			cancel()
			return e.Ended, e.err
		case <-tick.C:
			if c.emit == nil {
				continue
			}
			now, running, err := p.Status(ctx)
			if err != nil || !running || now.Written.Stdout == seen {
				continue
			}
			from := max(seen, now.Written.Stdout-liveBytesMax)
			seen = now.Written.Stdout
			_ = p.Output(ctx, tool.Offsets{Stdout: from}, false, func(chunk tool.Chunk) error {
				c.show(chunk.Data)
				if chunk.Offset+int64(len(chunk.Data)) >= seen {
					return errEnough
				}
				return nil
			})
		}
	}
}

// takeTail reads the end of what was written, size bytes in all.
func (c *collector) takeTail(ctx context.Context, p tool.Process, size int64) error {
	from := max(c.gapAt, size-outputTailBytes)
	first := int64(-1)
	err := p.Output(ctx, tool.Offsets{Stdout: from}, false, func(chunk tool.Chunk) error {
		if chunk.Gap > 0 {
			c.tail, first = c.tail[:0], -1
		}
		if first < 0 {
			first = chunk.Offset
		}
		c.tail = append(c.tail, chunk.Data[:min(len(chunk.Data), 2*outputTailBytes-len(c.tail))]...)
		if len(c.tail) == 2*outputTailBytes {
			return errEnough // descendants go on writing
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if first < 0 {
		first = size
	}
	c.omitted = max(first-c.gapAt, 0)
	c.show(c.tail)
	return nil
}

// text is the output, with a line in place of what was left out. It ends in a
// newline unless it is empty.
func (c *collector) text() string {
	head, tail := c.head, c.tail
	if c.omitted > 0 {
		head, tail = trimEnd(head), trimStart(tail)
	}
	var b strings.Builder
	b.WriteString(strings.ToValidUTF8(string(head), "\uFFFD"))
	if c.omitted > 0 {
		b.WriteString("\n\n[… output left out here …]\n\n")
	}
	b.WriteString(strings.ToValidUTF8(string(tail), "\uFFFD"))
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		return s + "\n"
	}
	return b.String()
}

// trimEnd leaves out a character that is torn at the end, trimStart one at
// the beginning.
func trimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}
