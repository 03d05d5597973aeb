package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/errs"
)

// uiAddress is what `skete ui --json` prints.
type uiAddress struct {
	URL       string    `json:"url"` // logs one browser in, once
	ExpiresAt time.Time `json:"expires_at"`
}

func (a program) ui() *cobra.Command {
	var next string
	var open bool
	cmd := &cobra.Command{
		Use: "ui [RUN]", Short: "Open the web UI in the browser, logged in",
		Long: `Open the web UI in the browser of this computer, or, where it has none, print the
address to open.

The address logs one browser in as you, once and within two minutes, after it has
asked there; from then on that browser has a cookie, for 12 hours or until your key
is revoked. Elsewhere the server's own address asks for an API key.`,
		Example: `  skete ui
  skete ui run_u3k3sgqnhescfzbi54fr
  skete ui --print
  skete ui --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				next = "/runs/" + url.PathEscape(args[0])
			}
			at, err := a.uiAddress(cmd.Context(), next)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, at)
			}
			if open && app.OpenBrowser(cmd.Context(), at.URL) {
				a.Note("opened the browser")
				return nil
			}
			_, err = fmt.Fprintln(a.Out, at.URL)
			return err
		},
	}
	printOnly := cmd.Flags().Bool("print", false, "print the address alone")
	cmd.PreRun = func(*cobra.Command, []string) { open = !*printOnly }
	return cmd
}

// uiAddress asks the server for an address that logs a browser in.
func (a program) uiAddress(ctx context.Context, next string) (uiAddress, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return uiAddress{}, err
	}
	base, err := a.browserURL()
	if err != nil {
		return uiAddress{}, err
	}
	code, err := c.LoginCode(ctx)
	if err != nil {
		return uiAddress{}, err
	}
	at := uiAddress{URL: strings.TrimSuffix(base, "/") + code.Path, ExpiresAt: code.ExpiresAt}
	if next != "" {
		at.URL += "&" + url.Values{"next": {next}}.Encode()
	}
	return at, nil
}

// browserURL is the server's address for a browser. On this computer it has the name that
// the addresses of previews have too: a browser keeps their cookies apart by that.
func (a program) browserURL() (string, error) {
	if !a.Local() {
		return a.URL, nil
	}
	var f serve.Facts
	data, err := os.ReadFile(serve.FactsPath(a.Home))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil || f.URL == "" {
		return "", errs.Wrap(errs.Unavailable, err, "the server at %s listens on no address for browsers", client.SocketPath(a.Home)).
			WithHint("start it with --listen 127.0.0.1:7733")
	}
	return strings.Replace(f.URL, "//127.0.0.1:", "//localhost:", 1), nil
}
