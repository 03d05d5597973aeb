// Command llm tries a real model server: those parts of the suite of model
// drivers that need nothing but an address.
//
//	go run ./test/interop/llm URL [-dialect compat|anthropic|openai] [-model NAME] [-key-env VAR] [-media]
//
// It prints a table and ends with 1 if something failed that is the server's
// or our fault. What a weak model did not manage by itself is marked "weak" and
// fails nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/openai"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type config struct {
	url, dialect, model string
	key                 llm.Key
	media               bool
	timeout             time.Duration
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	c, err := parse(args, errOut)
	if err != nil {
		fmt.Fprintln(errOut, err)
		return 2
	}
	if c.model == "" {
		if c.model, err = firstModel(ctx, c); err != nil {
			fmt.Fprintln(errOut, "which model? use -model NAME:", err)
			return 2
		}
	}
	m, err := open(c)
	if err != nil {
		fmt.Fprintln(errOut, err)
		return 2
	}
	fmt.Fprintf(out, "%s at %s, dialect %s\n\n", c.model, c.url, c.dialect)
	if failed := table(ctx, m, c, out); failed > 0 {
		fmt.Fprintf(out, "\n%d failed\n", failed)
		return 1
	}
	return 0
}

func parse(args []string, errOut io.Writer) (config, error) {
	var c config
	var keyEnv string
	f := flag.NewFlagSet("llm", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&c.dialect, "dialect", "compat", "compat, anthropic or openai")
	f.StringVar(&c.model, "model", "", "what the server calls the model; compat: the first that it lists")
	f.StringVar(&keyEnv, "key-env", "", "the variable that holds the key")
	f.BoolVar(&c.media, "media", false, "the model takes images")
	f.DurationVar(&c.timeout, "timeout", 3*time.Minute, "for each row")
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		c.url, args = args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.url == "" && f.NArg() == 1 {
		c.url = f.Arg(0)
	} else if c.url == "" || f.NArg() > 0 {
		return c, errors.New("usage: llm URL [-dialect D] [-model NAME] [-key-env VAR] [-media]")
	}
	if keyEnv != "" {
		key, ok := os.LookupEnv(keyEnv)
		if !ok {
			return c, fmt.Errorf("%s is not set", keyEnv)
		}
		c.key = llm.NewKey(key)
	}
	return c, nil
}

func open(c config) (llm.Model, error) {
	info := llm.Info{Name: c.model, ID: c.model, Media: c.media}
	switch c.dialect {
	case "compat":
		return compat.New(compat.Options{Info: info, URL: c.url, Key: c.key})
	case "anthropic":
		return anthropic.New(anthropic.Config{Info: info, URL: c.url, Key: c.key})
	case "openai":
		return openai.New(openai.Config{Info: info, URL: c.url, Key: c.key})
	}
	return nil, fmt.Errorf("no dialect %q", c.dialect)
}

// firstModel asks a compat server what it serves.
func firstModel(ctx context.Context, c config) (string, error) {
	base := strings.TrimRight(c.url, "/")
	if !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/models", nil)
	if err != nil {
		return "", errors.New("the URL is not usable")
	}
	if !c.key.IsZero() {
		req.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(&list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("the server lists none (HTTP %d)", resp.StatusCode)
	}
	return list.Data[0].ID, nil
}

// weak is what a model did not manage although everything worked.
type weak string

func (w weak) Error() string { return string(w) }

// skip is a row that was not tried.
type skip string

func (s skip) Error() string { return string(s) }

func table(ctx context.Context, m llm.Model, c config, out io.Writer) (failed int) {
	for _, row := range rows {
		rowCtx, cancel := context.WithTimeout(ctx, c.timeout)
		began := time.Now()
		note, err := row.try(rowCtx, m, c)
		cancel()
		verdict := "ok"
		var isWeak weak
		var isSkip skip
		switch {
		case errors.As(err, &isWeak):
			verdict, note = "weak", string(isWeak)
		case errors.As(err, &isSkip):
			verdict, note = "-", string(isSkip)
		case err != nil:
			verdict, note = "FAIL", err.Error()
			failed++
		}
		fmt.Fprintf(out, "%-22s %-5s %8s  %s\n", row.name, verdict, time.Since(began).Round(time.Millisecond), clip.Line(note, 120))
	}
	return failed
}
