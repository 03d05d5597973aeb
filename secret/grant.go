package secret

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// As is how a value is sent.
type As string

// Ways to send a value.
const (
	Bearer As = "bearer" // Authorization: Bearer VALUE
	Basic  As = "basic"  // Authorization: Basic, with Key as the user
	Header As = "header" // the header Key
	Query  As = "query"  // the parameter Key
	AWS    As = "aws"    // signs the request, which the program has signed (Signature Version 4); the value is ID:SECRET or ID:SECRET:SESSION
)

// Grant says where a secret is sent to, how, and for whom.
type Grant struct {
	// Where is the host, and perhaps ports, methods and paths. What the policy of a
	// sandbox refuses is refused all the same.
	Where egress.Rule `json:"where"`
	As    As          `json:"as"`
	Key   string      `json:"key,omitempty"`
	// OAuth says that Where is a token endpoint: it is sent the secret, by POST, and the tokens
	// that it answers stay on the host. The secret's other grants say where those are sent,
	// in place of the secret.
	OAuth bool `json:"oauth,omitempty"`
	// Env is a variable of commands in the sandbox, which holds no secret but a word that
	// stands for it: some programs send nothing without one.
	Env string `json:"env,omitempty"`
	// Agents and Sandboxes may use it, by their names (a sandbox also by its ID): an agent
	// in the sandboxes that were made for runs of its own. Both empty = all of the tenant.
	Agents    []string `json:"agents,omitempty"`
	Sandboxes []string `json:"sandboxes,omitempty"`
}

// User is what asks.
type User struct {
	Agent     string   // whose run the sandbox was made for; "" = none
	Sandboxes []string // the names of the sandbox: its ID, and its own
	// Wants, if not nil, are all that the user uses: of grants that name it, and not of those
	// that are for all of the tenant.
	Wants Wants
}

// Wants are the hosts to which a user sends a secret, by the secret's name.
type Wants map[string][]string

// wants reports whether a user uses a secret at all.
func (u User) wants(name string) bool {
	return u.Wants == nil || len(u.Wants[name]) > 0
}

// wantsAt reports whether a user uses a secret at a host.
func (u User) wantsAt(name, host string) bool {
	return u.Wants == nil || slices.Contains(u.Wants[name], host)
}

// allows reports whether a grant is for a user.
func (g Grant) allows(u User) bool {
	if len(g.Agents) == 0 && len(g.Sandboxes) == 0 {
		return u.Wants == nil
	}
	return u.Agent != "" && slices.Contains(g.Agents, u.Agent) ||
		slices.ContainsFunc(u.Sandboxes, func(name string) bool { return name != "" && slices.Contains(g.Sandboxes, name) })
}

// Bounds of a secret.
const (
	ValueMax  = 64 << 10
	GrantsMax = 32
	namesMax  = 100 // of agents and sandboxes of a grant
	wordMax   = 128
)

var (
	nameForm  = pattern.Lazy(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
	fieldForm = pattern.Lazy(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}$`) // a token of HTTP, but for the grave accent
	envForm   = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// refusedHeaders are about the connection and not about who asks.
var refusedHeaders = []string{
	"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Encoding", "Accept-Encoding",
}

// check names what is wrong with a grant.
func (g Grant) check(at string) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, at+fmt.Sprintf(format, args...)) }
	for _, p := range egress.Problems(egress.Policy{Allow: []egress.Rule{g.Where}}) {
		add("%s: %s", strings.TrimPrefix(p.Field, "allow[0]."), p.Text)
	}
	switch {
	case g.Where.Host == "*":
		add("host: a secret is for hosts that are named")
	case g.Where.Pinned:
		add("pinned: what is sent to a pinned host cannot be changed")
	}
	if g.OAuth {
		list = append(list, g.checkEndpoint(at)...)
	}
	switch g.As {
	case Bearer:
		if g.Key != "" {
			add("key: %s has none", g.As)
		}
	case Basic:
		if len(g.Key) > wordMax || strings.ContainsAny(g.Key, ":\r\n\x00") {
			add("key: %.40q is no user", g.Key)
		}
	case Header:
		if !fieldForm().MatchString(g.Key) || slices.Contains(refusedHeaders, http.CanonicalHeaderKey(g.Key)) {
			add("key: %.40q is no header that a secret can be sent in", g.Key)
		}
	case Query:
		if g.Key == "" || len(g.Key) > wordMax || strings.ContainsAny(g.Key, "\r\n\x00") {
			add("key: %.40q is no parameter", g.Key)
		}
	case AWS:
		if g.Key != "" || g.Env != "" {
			add("key: %s has none, and variables of its own", g.As)
		}
	default:
		add("as: %.40q is none of bearer, basic, header, query, aws", g.As)
	}
	if g.Env != "" && !envForm().MatchString(g.Env) {
		add("env: %.40q is no variable", g.Env)
	}
	if len(g.Agents)+len(g.Sandboxes) > namesMax {
		add("agents: there are more than %d agents and sandboxes", namesMax)
	}
	for _, n := range slices.Concat(g.Agents, g.Sandboxes) {
		if n == "" || len(n) > wordMax {
			add("agents: %.40q is no name", n)
		}
	}
	return list
}

// checkEndpoint names what is wrong with a grant as that of a token endpoint.
func (g Grant) checkEndpoint(at string) []string {
	var list []string
	if len(g.Where.Methods) > 0 && !slices.Equal(g.Where.Methods, []string{http.MethodPost}) {
		list = append(list, at+"methods: a token endpoint is asked by POST alone; leave them out")
	}
	if len(g.Where.Paths) != 1 || strings.Contains(g.Where.Paths[0], "*") {
		list = append(list, at+"paths: a token endpoint is one path without *, as /oauth/token; grant another one by itself")
	}
	return list
}

// checkOAuth names what does not go together with a token endpoint.
func checkOAuth(grants []Grant) (list []string) {
	if !slices.ContainsFunc(grants, func(g Grant) bool { return g.OAuth }) {
		return nil
	}
	for i, g := range grants {
		at := fmt.Sprintf("grants[%d].", i)
		switch {
		case strings.Contains(g.Where.Host, "*"):
			list = append(list, at+"host: the hosts of a secret with a token endpoint are named one by one, without *")
		case g.As == AWS:
			list = append(list, at+"as: a secret with a token endpoint signs nothing; set another secret to sign")
		case !g.OAuth && g.As != Bearer:
			list = append(list, at+"as: tokens of a token endpoint are sent as bearer; say how the secret is sent at the token endpoint alone")
		}
	}
	return list
}

// covers reports whether a grant is about a request.
func (g Grant) covers(q egress.Request) bool {
	return g.Where.Covers(q) && (!g.OAuth || q.Method == http.MethodPost)
}

// check refuses what is no secret.
func check(name string, value Value, grants []Grant) error {
	var list []string
	if !nameForm().MatchString(name) {
		list = append(list, fmt.Sprintf("name: %.80q is no name: a-z, 0-9, - and _, at most 63", name))
	}
	if n := len(value.text); n == 0 || n > ValueMax {
		list = append(list, fmt.Sprintf("value: it has %d bytes; 1 to %d are possible", n, ValueMax))
	}
	list = append(list, checkGrants(grants)...)
	for i, g := range grants {
		if g.As != Basic && g.As != Query && strings.ContainsAny(value.text, "\r\n\x00") {
			list = append(list, fmt.Sprintf("value: it has more than one line, which grants[%d] cannot send", i))
		}
		if _, ok := parseAWS(value.text); g.As == AWS && !ok {
			list = append(list, fmt.Sprintf("value: it is no ID:SECRET or ID:SECRET:SESSION, with which grants[%d] signs", i))
		}
	}
	if len(list) > 0 {
		return errs.New(errs.Invalid, "the secret: %s", strings.Join(list, "; "))
	}
	return nil
}

func checkGrants(grants []Grant) (list []string) {
	if len(grants) > GrantsMax {
		return []string{fmt.Sprintf("grants: there are %d, at most %d are possible", len(grants), GrantsMax)}
	}
	for i, g := range grants {
		list = append(list, g.check(fmt.Sprintf("grants[%d].", i))...)
	}
	return append(list, checkOAuth(grants)...)
}

// Held is a secret on its way to a host that it is granted for.
type Held struct {
	Name    string
	Version int
	Grant   Grant
	value   Value
	made    time.Time // the secret
	oauth   bool      // it has a token endpoint
}

// OAuth reports whether the secret has a token endpoint, at which it is sent itself, and
// nowhere else.
func (h Held) OAuth() bool { return h.oauth }

// Apply puts the value into a request, in place of what the sandbox has sent there. One that
// Signs is not applied.
func (h Held) Apply(r *http.Request) {
	switch h.Grant.As {
	case Bearer:
		r.Header.Set("Authorization", "Bearer "+h.value.text)
	case Basic:
		r.Header.Set("Authorization", "Basic "+h.basic())
	case Header:
		r.Header.Set(h.Grant.Key, h.value.text)
	case Query:
		r.URL.RawQuery = withParameter(r.URL.RawQuery, h.Grant.Key, h.value.text)
	}
}

func (h Held) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(h.Grant.Key + ":" + h.value.text))
}

// withParameter sets a parameter of a query, whose others stay as they are.
func withParameter(query, key, value string) string {
	var parts []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); part != "" && (err != nil || plain != key) {
			parts = append(parts, part)
		}
	}
	return strings.Join(append(parts, url.QueryEscape(key)+"="+url.QueryEscape(value)), "&")
}

// Forms are the texts in which the value may come back: as it is, and as it was sent.
// They are what is masked in an answer.
func (h Held) Forms() []string {
	forms := formsOf(h.value.text)
	if basic := h.basic(); h.Grant.As == Basic && !slices.Contains(forms, basic) {
		forms = append(forms, basic)
	}
	return forms
}

func formsOf(v string) []string {
	forms := []string{v}
	for _, s := range []string{url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v))} {
		if !slices.Contains(forms, s) {
			forms = append(forms, s)
		}
	}
	return forms
}
