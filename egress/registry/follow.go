package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

const (
	followWait  = 10 * time.Second // for one registry
	followBytes = 4 << 20
)

// probe is a page that a registry of a kind has, and says where its files are.
type probe struct {
	path, accept string
	link         func() *regexp.Regexp // its group is a URL
}

var probes = map[string]probe{
	"pip":   {"pip/", "application/vnd.pypi.simple.v1+json, text/html;q=0.5", pattern.Lazy(`(?:"url":\s*|href=)"(https?://[^"]+)"`)},
	"npm":   {"npm/latest", "application/json", pattern.Lazy(`"tarball":\s*"(https?://[^"]+)"`)},
	"cargo": {"config.json", "application/json", pattern.Lazy(`"dl":\s*"(https?://[^"]+)"`)},
}

// Follow asks registries at which hosts the files are that they list: often they are at
// others. It asks all at once and takes seconds; a source that does not answer keeps the
// hosts that it has. Unavailable names those.
func (s *Set) Follow(ctx context.Context, c *http.Client) error {
	var wg sync.WaitGroup
	failed := make([]error, len(s.Sources))
	for i := range s.Sources {
		src := &s.Sources[i]
		if p, ok := probes[src.Tool]; ok {
			wg.Go(func() { failed[i] = src.follow(ctx, c, p) })
		}
	}
	wg.Wait()
	return errors.Join(failed...)
}

func (src *Source) follow(ctx context.Context, c *http.Client, p probe) error {
	ctx, cancel := context.WithTimeout(ctx, followWait)
	defer cancel()
	at := strings.TrimSuffix(src.URL, "/") + "/" + p.path
	fail := func(err error) error {
		return errs.Wrap(errs.Unavailable, err, "ask %s where its files are", src.URL)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fail(err)
	}
	r.Header.Set("Accept", p.accept)
	resp, err := c.Do(r)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("it answers %s", resp.Status))
	}
	page, err := io.ReadAll(io.LimitReader(resp.Body, followBytes))
	if err != nil {
		return fail(err)
	}
	own := hostOf(src.URL)
	hosts := []string{hostOf(resp.Request.URL.String())} // it may have been redirected
	for _, m := range p.link().FindAllSubmatch(page, -1) {
		hosts = append(hosts, hostOf(string(m[1])))
	}
	slices.Sort(hosts)
	hosts = slices.DeleteFunc(slices.Compact(hosts), func(h string) bool { return h == "" || h == own })
	src.Hosts = hosts[:min(len(hosts), hostsMax)]
	return nil
}

// hostOf returns the host of a URL if rules can name it.
func hostOf(raw string) string {
	before, _, _ := strings.Cut(raw, "{") // cargo has places for names in it
	u, err := url.Parse(cleanURL(before))
	if err != nil || u.Port() != "" && u.Port() != "80" && u.Port() != "443" {
		return ""
	}
	return u.Hostname()
}
