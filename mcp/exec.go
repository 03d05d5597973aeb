package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

var execTools = []*tool{
	does(tool{
		name: "exec", title: "Run a command", scope: write, hints: destroys | open,
		about: "Run a line of bash in the sandbox and return its output and exit code. " +
			"With background it goes on by itself, also when the server is started again: the result names the process, for process_output and process_kill.",
	}, execute),
	does(tool{
		name: "process_output", title: "Read a command's output", scope: read, hints: reads,
		about: "Read the output of a command from an offset on, and whether it still runs. Works for commands that have ended too.",
	}, processOutput),
	does(tool{
		name: "process_list", title: "List commands", scope: read, hints: reads,
		about: "List the commands of a sandbox, with those that ended lately.",
	}, listProcesses),
	does(tool{
		name: "process_kill", title: "End a command", scope: write, hints: destroys | repeats,
		about: "Signal a command and all that it started.",
	}, killProcess),
}

// Bounds of commands.
const (
	execTimeout = 2 * time.Minute
	outputBytes = 32 << 10 // of each stream in a result, if nothing else is asked for
	// inputBytesMax bounds what is given to a command or a file at once: as JSON it fits in a
	// request, also where each byte takes several.
	inputBytesMax = 1 << 20
)

type execIn struct {
	onSandbox
	Command    string            `json:"command" about:"for bash -c (sh where there is no bash)"`
	Stdin      string            `json:"stdin,omitempty" about:"all of its input"`
	Cwd        string            `json:"cwd,omitempty" about:"default /workspace"`
	Env        map[string]string `json:"env,omitempty"`
	Timeout    int               `json:"timeout_seconds,omitempty" minimum:"1" maximum:"3600" about:"then it is ended; default 120, in the background none"`
	Background bool              `json:"background,omitempty" about:"return at once; read it by process_output"`
	OutputMax  int               `json:"output_bytes_max,omitempty" minimum:"1" maximum:"131072" about:"of each stream; of more the beginning and the end are shown. Default 32768"`
}

func execute(ctx context.Context, s *Server, in *execIn) (*sdk.CallToolResult, error) {
	if len(in.Stdin) > inputBytesMax {
		return nil, tooLarge("stdin", len(in.Stdin), "write it to a file in parts, by file_write with append, and read it from there")
	}
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	if in.Background {
		return startInBackground(ctx, sb, in)
	}
	most := cmp.Or(in.OutputMax, outputBytes)
	res, err := sb.RunCommand(ctx, api.RunCommand{
		Command: in.Command, Stdin: in.Stdin, Cwd: in.Cwd, Env: in.Env, OutputMax: int64(max(most/2, 1)),
		TimeoutMS: cmp.Or(time.Duration(in.Timeout)*time.Second, execTimeout).Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	streams := [2]shown{{name: "stdout", head: res.Out, size: res.StdoutBytes}, {name: "stderr", head: res.Err, size: res.StderrBytes}}
	if res.StdoutTruncated || res.StderrTruncated {
		readTails(ctx, sb, res.Key, &streams, most)
	}
	text := streams[0].text(res.Key)
	if res.StderrBytes > 0 {
		text = lines(text, "[stderr]", streams[1].text(res.Key))
	}
	return textResult(lines(text, exitText(res.ExitCode, res.Reason))), nil
}

func tooLarge(what string, n int, hint string) error {
	return errs.New(errs.Limit, "%s has %d bytes, more than %d", what, n, inputBytesMax).WithHint("%s", hint)
}

// lines puts texts beneath each other.
func lines(texts ...string) string {
	var b strings.Builder
	for _, t := range texts {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(t)
	}
	return b.String()
}

func exitText(code int, reason string) string {
	if reason != "" {
		return fmt.Sprintf("[exit code %d: %s]", code, reason)
	}
	return fmt.Sprintf("[exit code %d]", code)
}

// shown is what is shown of a stream: its beginning, and its end from tailAt on.
type shown struct {
	name       string
	head, tail []byte
	size       int64
	tailAt     int64
}

// readTails adds the ends of what was cut. They are kept in the sandbox; where they are
// not any more the beginnings have to do.
func readTails(ctx context.Context, sb *client.Sandbox, key string, streams *[2]shown, most int) {
	var from [2]int64
	for i := range streams {
		st := &streams[i]
		st.tailAt = max(int64(len(st.head)), st.size-int64(most-len(st.head)))
		from[i] = st.tailAt
	}
	got, err := readOutput(ctx, sb.Output(ctx, key, from[0], from[1], false), from, most)
	if err != nil {
		return
	}
	for i := range streams {
		streams[i].tail, streams[i].tailAt = got.data[i], got.from[i]
	}
}

func (s shown) text(key string) string {
	end := int64(len(s.head))
	if s.size <= end {
		return printable(s.head)
	}
	if len(s.tail) == 0 {
		return lines(printable(s.head), s.left(end, s.size, key))
	}
	if s.tailAt <= end {
		return printable(append(s.head, s.tail[min(end-s.tailAt, int64(len(s.tail))):]...))
	}
	return lines(printable(s.head), s.left(end, s.tailAt, key), printable(s.tail))
}

func (s shown) left(from, to int64, key string) string {
	return fmt.Sprintf("[… %d bytes are left out here; process_output with process %s and %s_from %d reads them …]\n", to-from, key, s.name, from)
}

// printable shows bytes as text.
func printable(b []byte) string { return strings.ToValidUTF8(string(b), string(utf8.RuneError)) }

// startInBackground starts a command under a name that a client can ask for later.
func startInBackground(ctx context.Context, sb *client.Sandbox, in *execIn) (*sdk.CallToolResult, error) {
	key := "mcp-" + strings.ToLower(rand.Text()[:12])
	p, err := sb.StartProcess(ctx, api.StartProcess{
		Key: key, Command: in.Command, Cwd: in.Cwd, Env: in.Env, Stdin: in.Stdin != "", Background: true,
		TimeoutMS: (time.Duration(in.Timeout) * time.Second).Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	if in.Stdin != "" {
		if err := writeAll(ctx, sb, key, []byte(in.Stdin)); err != nil {
			return nil, err
		}
	}
	return object(struct {
		Process string `json:"process"`
		PID     int    `json:"pid"`
		State   string `json:"state"`
	}{p.Key, p.PID, p.State})
}

// writeAll gives a command its whole input, as fast as it takes it.
func writeAll(ctx context.Context, sb *client.Sandbox, key string, data []byte) error {
	for at := int64(0); ; {
		ack, err := sb.WriteStdin(ctx, key, at, data[at:], true)
		if err != nil || ack.Closed || ack.Acked <= at {
			return err
		}
		at = min(ack.Acked, int64(len(data)))
	}
}

type outputIn struct {
	onSandbox
	Process    string `json:"process" about:"as exec or process_list names it"`
	StdoutFrom int64  `json:"stdout_from,omitempty" minimum:"0" about:"where to begin; default 0"`
	StderrFrom int64  `json:"stderr_from,omitempty" minimum:"0"`
	Wait       int    `json:"wait_seconds,omitempty" minimum:"0" maximum:"300" about:"wait so long for the command's end; default 0: what there is now"`
	OutputMax  int    `json:"output_bytes_max,omitempty" minimum:"1" maximum:"131072" about:"of both streams; default 32768"`
}

func processOutput(ctx context.Context, s *Server, in *outputIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	if in.Wait > 0 {
		if err := waitFor(ctx, sb, in.Process, time.Duration(in.Wait)*time.Second); err != nil {
			return nil, err
		}
	}
	from := [2]int64{in.StdoutFrom, in.StderrFrom}
	got, err := readOutput(ctx, sb.Output(ctx, in.Process, from[0], from[1], false), from, cmp.Or(in.OutputMax, outputBytes))
	if err != nil {
		return nil, err
	}
	p, err := sb.Process(ctx, in.Process)
	if err != nil {
		return nil, err
	}
	return textResult(got.text(p)), nil
}

// waitFor waits for the end of a command, or until the time is over, which is no error.
func waitFor(ctx context.Context, sb *client.Sandbox, key string, most time.Duration) error {
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := sb.WaitProcess(short, key)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return nil // whichever of the two ends says that the time is up
	}
	return err
}

// output is a part of what a command wrote, of both streams.
type output struct {
	from, next [2]int64
	data       [2][]byte
	dropped    [2]int64 // bytes that the sandbox does not keep
}

var errEnough = errors.New("there is enough")

func readOutput(_ context.Context, events iter.Seq2[api.OutputEvent, error], from [2]int64, most int) (output, error) {
	out := output{from: from, next: from}
	for ev, err := range events {
		if err == nil {
			err = out.take(ev, most)
		}
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (o *output) take(ev api.OutputEvent, most int) error {
	i := 0
	if ev.Stream == "stderr" {
		i = 1
	}
	if ev.To > o.next[i] { // a gap
		o.dropped[i] += ev.To - o.next[i]
		o.next[i] = ev.To
		if len(o.data[i]) == 0 {
			o.from[i] = ev.To
		}
	}
	room := most - len(o.data[0]) - len(o.data[1])
	data := ev.Data[:min(len(ev.Data), room)]
	o.data[i] = append(o.data[i], data...)
	o.next[i] += int64(len(data))
	if len(data) < len(ev.Data) {
		return errEnough
	}
	return nil
}

// text shows what was read, and where to go on.
func (o output) text(p api.Process) string {
	var texts []string
	for i, name := range []string{"stdout", "stderr"} {
		if o.dropped[i] > 0 {
			texts = append(texts, fmt.Sprintf("[… %d bytes of %s were dropped …]", o.dropped[i], name))
		}
		if len(o.data[i]) == 0 {
			continue
		}
		if name == "stderr" {
			texts = append(texts, "[stderr]")
		}
		texts = append(texts, printable(o.data[i]))
	}
	state := "[" + p.State + "]"
	if p.Exit != nil {
		state = exitText(p.Exit.Code, p.Exit.Reason)
	}
	next := fmt.Sprintf("[next: stdout_from %d, stderr_from %d", o.next[0], o.next[1])
	if o.next[0] < p.Stdout.Size || o.next[1] < p.Stderr.Size {
		next += "; there is more"
	}
	return lines(append(texts, state, next+"]")...)
}

type processListIn struct {
	onSandbox
	Running bool `json:"running,omitempty" about:"only those that run"`
	Offset  int  `json:"offset,omitempty" minimum:"0" about:"next_offset of the call before"`
}

type processView struct {
	Process   string     `json:"process"`
	Command   string     `json:"command"`
	State     string     `json:"state"`
	Exit      *api.Exit  `json:"exit,omitempty"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Stdout    int64      `json:"stdout_bytes"`
	Stderr    int64      `json:"stderr_bytes"`
}

func listProcesses(ctx context.Context, s *Server, in *processListIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	all := func(yield func(api.Process, error) bool) {
		for p, err := range sb.Processes(ctx) {
			if err == nil && in.Running && p.State != "running" {
				continue
			}
			if !yield(p, err) {
				return
			}
		}
	}
	p, err := pageOf(all, in.Offset, listMax, func(p api.Process) processView {
		return processView{p.Key, clipLine(strings.Join(p.Argv, " ")), p.State, p.Exit, p.StartedAt, p.EndedAt, p.Stdout.Size, p.Stderr.Size}
	})
	if err != nil {
		return nil, err
	}
	return object(p)
}

type killIn struct {
	onSandbox
	Process string `json:"process" about:"as exec or process_list names it"`
	Signal  string `json:"signal,omitempty" enum:"TERM,KILL,INT,HUP" about:"default KILL"`
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}

func killProcess(ctx context.Context, s *Server, in *killIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(in.Signal, "KILL")
	if err := sb.SignalProcess(ctx, in.Process, signals[name]); err != nil {
		return nil, err
	}
	return textResult("sent " + name + " to " + in.Process), nil
}
