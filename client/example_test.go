package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// The examples run against a real server, which TestMain starts.

// open makes a sandbox for an example.
func open(ctx context.Context) (*client.Client, *client.Sandbox, func()) {
	c, err := client.FromEnv()
	if err != nil {
		panic(err)
	}
	info, err := c.CreateSandbox(ctx, api.CreateSandbox{})
	if err != nil {
		panic(err)
	}
	sb := c.Sandbox(info.ID)
	return c, sb, func() {
		if err := sb.Destroy(ctx); err != nil {
			panic(err)
		}
		c.Close()
	}
}

func Example() {
	ctx := context.Background()
	c, err := client.FromEnv()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	info, err := c.CreateSandbox(ctx, api.CreateSandbox{
		MemoryMB: 256,
		TTLMS:    (5 * time.Minute).Milliseconds(),
	})
	if err != nil {
		panic(err)
	}
	sb := c.Sandbox(info.ID)
	defer sb.Destroy(ctx)

	out, err := sb.Shell("echo $((6 * 7))").Output(ctx)
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// 42
	// <nil>
}

func ExampleCmd_Run() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	cmd := sb.Command("sort", "-r")
	cmd.Stdin = strings.NewReader("one\ntwo\nthree\n")
	cmd.Stdout = os.Stdout
	if err := cmd.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// two
	// three
	// one
}

func ExampleExitError() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	err := sb.Shell("exit 3").Run(ctx)
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		fmt.Println(exit.Code(), err)
	}
	err = sb.Command("/no/such/program").Run(ctx)
	fmt.Println(errs.Of(err))
	// Output:
	// 3 exit status 3
	// not_found
}

// A command in the background is found again by its key, by this program or
// another one, with all of its output.
func ExampleSandbox_Attach() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	_, err := sb.StartProcess(ctx, api.StartProcess{Key: "build", Background: true, Command: "echo begins; sleep 0.1; echo ends; exit 4"})
	if err != nil {
		panic(err)
	}
	cmd := sb.Attach("build")
	cmd.Stdout = os.Stdout
	fmt.Println(cmd.Run(ctx))
	// Output:
	// begins
	// ends
	// exit status 4
}

func ExampleCmd_terminal() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	cmd := sb.Shell("stty size; tty >/dev/null && echo a terminal")
	cmd.Spec.Terminal = &api.TerminalSize{Cols: 100, Rows: 30}
	out, err := cmd.Output(ctx)
	fmt.Println(strings.ReplaceAll(string(out), "\r", ""), err)
	// Output:
	// 30 100
	// a terminal
	//  <nil>
}

func ExampleFiles_Write() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	files := sb.Files()
	f, err := files.Write(ctx, "notes/today", []byte("first"), client.WriteOptions{MakeParents: true})
	if err != nil {
		panic(err)
	}
	// Compare and swap: only over what we know.
	_, err = files.Write(ctx, "notes/today", []byte("second"), client.WriteOptions{IfSHA256: f.SHA256})
	fmt.Println(err)
	_, err = files.Write(ctx, "notes/today", []byte("third"), client.WriteOptions{IfSHA256: f.SHA256})
	fmt.Println(errs.Of(err))
	data, err := files.Read(ctx, "notes/today", 1<<20)
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// <nil>
	// conflict
	// second <nil>
}

func ExampleFiles_Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	_, sb, done := open(context.Background())
	defer done()
	defer cancel()

	_, err := sb.StartProcess(ctx, api.StartProcess{Background: true, Command: "while :; do echo x > seen; sleep 0.05; done"})
	if err != nil {
		panic(err)
	}
	for ev, err := range sb.Files().Watch(ctx, ".", false) {
		if err != nil {
			panic(err)
		}
		fmt.Println(path.Base(ev.Path))
		break
	}
	// Output: seen
}

func ExampleSandbox_DialPort() {
	ctx := context.Background()
	_, sb, done := open(ctx)
	defer done()

	// A server on a loopback port inside.
	server := sb.Command("python3", "-u", "-c", `
import socket
l = socket.create_server(("127.0.0.1", 0))
print(l.getsockname()[1])
c, _ = l.accept()
c.sendall(b"hello " + c.makefile("rb").read())
`)
	r, w := io.Pipe()
	server.Stdout = w
	if err := server.Start(ctx); err != nil {
		panic(err)
	}
	var port int
	if _, err := fmt.Fscan(r, &port); err != nil {
		panic(err)
	}
	conn, err := sb.DialPort(ctx, port)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "from outside")
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	answer, err := io.ReadAll(conn)
	fmt.Printf("%s %v\n", answer, err)
	go io.Copy(io.Discard, r)
	_ = server.Wait()
	_ = w.Close()
	// Output: hello from outside <nil>
}
