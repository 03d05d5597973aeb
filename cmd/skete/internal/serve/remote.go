package serve

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/remote"
)

const (
	serviceKeyBytesMax = 4096
	serviceKeyTime     = 20 * time.Second
)

// openRemote makes the provider whose machines a service makes.
func openRemote(ctx context.Context, c Config, dir, guest string) (*remote.Provider, error) {
	s := c.Remote
	at, err := remote.ParseURL("remote.url", s.URL)
	if err != nil {
		return nil, err
	}
	var machines *url.URL
	if s.SandboxURL != "" {
		if machines, err = remote.ParseURL("remote.sandbox_url", s.SandboxURL); err != nil {
			return nil, err
		}
	}
	key, err := serviceKey(ctx, remote.Name, s.KeyFile, s.KeyCommand)
	if err != nil {
		return nil, err
	}
	return remote.New(remote.Config{
		Name: remote.Name, Dir: dir, Keep: time.Duration(s.Timeout), Guest: guest, Log: c.Log,
		Service: remote.NewE2B(remote.E2B{URL: at, SandboxURL: machines, Domain: s.Domain, Key: key, Template: cmp.Or(s.Template, "base")}),
	})
}

// openRunloop is openRemote for Runloop's API.
func openRunloop(ctx context.Context, c Config, dir, guest string) (*remote.Provider, error) {
	s := c.Runloop
	at, err := remote.ParseURL("runloop.url", cmp.Or(s.URL, "https://api.runloop.ai"))
	if err != nil {
		return nil, err
	}
	key, err := serviceKey(ctx, remote.RunloopName, s.KeyFile, s.KeyCommand)
	if err != nil {
		return nil, err
	}
	return remote.New(remote.Config{
		Name: remote.RunloopName, Dir: dir, Keep: time.Duration(s.Timeout), Guest: guest, Log: c.Log,
		Service: remote.NewRunloop(remote.Runloop{URL: at, Key: key, Blueprint: s.Blueprint}),
	})
}

// serviceKey reads the key of a service, from its file or from what a command prints. It
// stands in no setting, and so in no list of processes and no log.
func serviceKey(ctx context.Context, provider, file string, command []string) (string, error) {
	hint := provider + ".key_file holds the key and nothing else; " + provider + ".key_command prints it"
	var data []byte
	var err error
	if file != "" {
		data, err = os.ReadFile(file)
	} else {
		ctx, cancel := context.WithTimeout(ctx, serviceKeyTime)
		defer cancel()
		data, err = exec.CommandContext(ctx, command[0], command[1:]...).Output()
	}
	if err != nil {
		return "", errs.Wrap(errs.Invalid, err, "the key of the provider %s cannot be read", provider).WithHint("%s", hint)
	}
	key := strings.TrimSpace(string(data))
	if key == "" || len(key) > serviceKeyBytesMax || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errs.New(errs.Invalid, "what should be the key of the provider %s is none", provider).WithHint("%s", hint)
	}
	return key, nil
}
