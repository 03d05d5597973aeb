package app

import (
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/errs"
)

// NoRevision adds the flag of commands that may change a sandbox's files.
func NoRevision(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "no-revision", false, "make no revision before and after; what changes becomes one once it is quiet")
}

// Handle is that of a sandbox, whose calls make revisions or not.
func Handle(c *client.Client, id string, noRevision bool) *client.Sandbox {
	s := c.Sandbox(id)
	if noRevision {
		return s.WithoutRevisions()
	}
	return s
}

// Language takes the names that people use.
func Language(s string) string {
	switch strings.ToLower(s) {
	case "javascript", "js", "nodejs":
		return "node"
	case "golang":
		return "go"
	case "py", "python3":
		return "python"
	}
	return s
}

// Megabytes reads 512, 512m, 512MB, 2g, 2GiB.
func Megabytes(flag, s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	bad := errs.New(errs.Invalid, "--%s %.40q is no size", flag, s).WithHint("write megabytes, or 512m, 2g")
	n := strings.TrimRight(strings.ToLower(s), "ib")
	factor := 1.0
	switch {
	case strings.HasSuffix(n, "g"):
		n, factor = n[:len(n)-1], 1024
	case strings.HasSuffix(n, "m"):
		n = n[:len(n)-1]
	}
	v, err := strconv.ParseFloat(n, 64)
	v *= factor
	if err != nil || !(v >= 1 && v <= 1<<30) || v != math.Trunc(v) {
		return 0, bad
	}
	return int(v), nil
}

// Milliseconds reads a duration flag; "" is 0.
func Milliseconds(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(s)
	if err != nil {
		return 0, errs.New(errs.Invalid, "--%s: %v", flag, err)
	}
	return d.Milliseconds(), nil
}

func cut(pair string) (k, v string, ok bool) {
	k, v, ok = strings.Cut(pair, "=")
	return k, v, ok && k != ""
}

// Environment reads K=V, and K alone for our own value of K.
func Environment(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, p := range list {
		k, v, ok := cut(p)
		if !ok && p != "" && !strings.Contains(p, "=") {
			k, ok = p, true
			v = os.Getenv(p)
		}
		if !ok {
			return nil, errs.New(errs.Invalid, "--env %.80q: write K=V", p)
		}
		m[k] = v
	}
	return m, nil
}

// Pairs parses key=value flags.
func Pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, p := range list {
		k, v, ok := cut(p)
		if !ok {
			return nil, errs.New(errs.Invalid, "--%s %.80q: write key=value", flag, p)
		}
		m[k] = v
	}
	return m, nil
}

// AtMostOne refuses flags that do not go together.
func AtMostOne(cmd *cobra.Command, names ...string) error {
	var set []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			set = append(set, "--"+name)
		}
	}
	if len(set) > 1 {
		return errs.New(errs.Invalid, "%s do not go together", strings.Join(set, " and "))
	}
	return nil
}
