// Command oddguest stands in for skete-guest where a test needs one that
// misbehaves. The end of the program's file says how (ODD=…):
//
//	hello    answers Hello and Adopt correctly and nothing else
//	silent   parks connections and never says a word
//	garbage  answers every opened stream with random bytes
//	huge     answers the preamble, then sends a frame that claims 4 GiB
//	chatty   speaks before it is asked
//	flood    never ends the line of its answer
//	exit     ends at once, status 3
//	absent   lives, but never dials
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/stage"
	"github.com/skete-dev/skete/guest/wire"
)

func main() {
	if os.Args[0] == "/init" { // of a virtual machine's initramfs
		os.Exit(stage.Run())
	}
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "init" {
		args = args[1:]
	}
	fs := flag.NewFlagSet("oddguest", flag.ExitOnError)
	file := fs.String("boot", wire.BootFile, "the boot file")
	_ = fs.Parse(args)
	data, err := os.ReadFile(*file)
	if err != nil {
		os.Exit(4)
	}
	boot, err := wire.ReadBoot(bytes.NewReader(data))
	if err != nil {
		os.Exit(5)
	}
	run(boot, mode())
}

// mode reads what is written behind the program's end.
func mode() string {
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		os.Exit(6)
	}
	at := bytes.LastIndex(data, []byte("\nODD="))
	if at < 0 {
		os.Exit(7)
	}
	return string(data[at+len("\nODD="):])
}

func run(boot wire.Boot, mode string) {
	ctx := context.Background()
	line := lineOf(boot.Channel, boot.Token)
	switch mode {
	case "exit":
		os.Exit(3)
	case "absent":
		<-time.After(time.Hour)
	case "silent":
		line.hold(func(io.Writer) {})
	case "chatty":
		line.hold(func(w io.Writer) { _, _ = w.Write([]byte("OK 65536\n")) })
	case "garbage":
		line.serve(ctx, func(c net.Conn, port uint32) {
			_ = wire.Grant(c, port)
			_, _ = io.CopyN(c, rand.Reader, 1<<20)
			c.Close()
		})
	case "flood":
		line.serve(ctx, func(c net.Conn, _ uint32) {
			_, _ = io.Copy(c, strings.NewReader(strings.Repeat("A", 8<<20)))
			c.Close()
		})
	case "huge":
		serve(ctx, line, http.HandlerFunc(hugeFrame))
	default:
		mux := http.NewServeMux()
		mux.Handle(wire.NewControlHandler(hello{boot: boot}))
		serve(ctx, line, mux)
	}
}

// hugeFrame answers with a length that no client may believe.
func hugeFrame(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/proto")
	w.WriteHeader(http.StatusOK)
	junk := make([]byte, 1<<20)
	for range 64 { // 64 MiB where a Hello has some hundred bytes
		if _, err := w.Write(junk); err != nil {
			return
		}
	}
}

func serve(ctx context.Context, l line, h http.Handler) {
	ln := &parkedListener{conns: make(chan net.Conn)}
	go func() { _ = http.Serve(ln, h) }()
	l.serve(ctx, func(c net.Conn, port uint32) {
		if err := wire.Grant(c, port); err != nil {
			c.Close()
			return
		}
		ln.conns <- c
	})
}

type parkedListener struct{ conns chan net.Conn }

func (l *parkedListener) Accept() (net.Conn, error) { return <-l.conns, nil }
func (l *parkedListener) Close() error              { return nil }
func (l *parkedListener) Addr() net.Addr            { return &net.UnixAddr{Name: "parked", Net: "unix"} }

type hello struct {
	wire.UnimplementedControlHandler
	boot wire.Boot
}

func (h hello) Hello(context.Context, *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	return connect.NewResponse(&wire.HelloResponse{
		Version: wire.Version, BootId: "odd", User: h.boot.User, Uid: h.boot.UID,
		Home: []byte(h.boot.Home), Workdir: []byte(h.boot.Workdir), RootGranted: h.boot.Root,
	}), nil
}

func (h hello) Adopt(context.Context, *connect.Request[wire.AdoptRequest]) (*connect.Response[wire.AdoptResponse], error) {
	return connect.NewResponse(&wire.AdoptResponse{BootId: "odd"}), nil
}
