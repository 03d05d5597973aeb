// Command mcpserver is an MCP server of the official SDK whose one tool does nothing, so that a
// benchmark can tell what skete adds to a call. It also measures such calls itself, by the SDK's
// own client, and prints one duration in nanoseconds per line.
//
//	mcpserver                        # serves over stdin and stdout
//	mcpserver -http 127.0.0.1:0      # serves over HTTP, and prints its URL
//	mcpserver -calls 200             # calls a child that serves over stdin and stdout
//	mcpserver -calls 200 -url URL    # calls the one there
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const toolName = "look"

func main() {
	listen := flag.String("http", "", "the address to serve HTTP on")
	calls := flag.Int("calls", 0, "how many calls to measure")
	url := flag.String("url", "", "the server to call")
	flag.Parse()
	ctx := context.Background()
	var err error
	switch {
	case *calls > 0:
		err = measure(ctx, *url, *calls)
	case *listen != "":
		err = serveHTTP(ctx, *listen)
	default:
		err = server().Run(ctx, &sdk.StdioTransport{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcpserver:", err)
		os.Exit(1)
	}
}

type args struct {
	N int `json:"n"`
}

func server() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "bench"}, nil)
	about := &sdk.Tool{Name: toolName, Description: "Looks.", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}}
	sdk.AddTool(s, about, func(context.Context, *sdk.CallToolRequest, args) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "seen"}}}, nil, nil
	})
	return s
}

func serveHTTP(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	s := server()
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l)
}

func measure(ctx context.Context, url string, calls int) error {
	var t sdk.Transport = &sdk.CommandTransport{Command: exec.CommandContext(ctx, os.Args[0])} // itself
	if url != "" {
		t = &sdk.StreamableClientTransport{Endpoint: url}
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "bench"}, nil).Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for n := range calls {
		began := time.Now()
		if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: toolName, Arguments: args{n}}); err != nil {
			return err
		}
		fmt.Fprintln(out, time.Since(began).Nanoseconds())
	}
	return nil
}
