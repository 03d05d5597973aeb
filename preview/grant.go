package preview

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// Keys of the store. Secrets are kept as hashes.
const (
	signerKey   = "signer"
	codePrefix  = "code/"
	visitPrefix = "visit/"
	linkPrefix  = "link/"
)

const (
	secretLen   = 26 // rand.Text: 130 bits
	secretChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	linkIDLen   = len("lnk_") + 20
	macHexLen   = 32 // 128 bits
	nameLenMax  = 64
	pathLenMax  = 2048
)

// Visitor is who looks at a preview.
type Visitor struct {
	Tenant string `json:"tenant"`
	// User is all that the app learns of a visitor; "" through a public link.
	User string `json:"user,omitempty"`
	// Owner is the key or login that let the visitor in; "" through a link.
	Owner string `json:"owner,omitempty"`
	// Link is the public link that did.
	Link string `json:"link,omitempty"`
}

// grant is the record of a code or of a visit.
type grant struct {
	Visitor
	Target
	ExpiresAt time.Time `json:"expires_at"`
	Used      bool      `json:"used,omitempty"` // a code that was
}

// Link lets anybody in who has its URL.
type Link struct {
	ID        string    `json:"id"`
	Tenant    string    `json:"tenant"`
	Target              // sandbox and port
	Name      string    `json:"name,omitempty"`
	By        string    `json:"by"` // the user who made it
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// signer holds the secret of a store, from which everything is signed.
type signer struct {
	links    []byte
	identity ed25519.PrivateKey
}

func openSigner(ctx context.Context, kv kv.Store) (signer, error) {
	seed, _, err := kv.Get(ctx, signerKey)
	if errs.Is(err, errs.NotFound) {
		seed = make([]byte, 32)
		_, _ = rand.Read(seed) // never fails, see crypto/rand
		_, err = kv.Create(ctx, signerKey, seed)
		if errs.Is(err, errs.Exists) { // another server was faster
			seed, _, err = kv.Get(ctx, signerKey)
		}
	}
	if err != nil {
		return signer{}, fmt.Errorf("open the secret of previews: %w", err)
	}
	if len(seed) != 32 {
		return signer{}, errs.New(errs.Corrupt, "the secret of previews has %d bytes", len(seed))
	}
	return signer{links: mac(seed, "links"), identity: ed25519.NewKeyFromSeed(mac(seed, "identity"))}, nil
}

func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return h.Sum(nil)
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Invite makes a code for v and returns the address that spends it: good once,
// for CodeFor. path is where the visitor arrives; "" = /.
func (p *Previews) Invite(ctx context.Context, v Visitor, t Target, path string) (string, time.Time, error) {
	path, err := localPath(path)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := p.portOK(ctx, v, t); err != nil {
		return "", time.Time{}, err
	}
	code, g := rand.Text(), grant{Visitor: v, Target: t, ExpiresAt: p.now().Add(p.c.Limits.CodeFor).UTC()}
	if err := p.create(ctx, codePrefix+hashOf(code), g); err != nil {
		return "", time.Time{}, err
	}
	return p.origin(t) + enterPath + "?" + url.Values{"code": {code}, "to": {path}}.Encode(), g.ExpiresAt, nil
}

// URL is a target's address, for who is let in already.
func (p *Previews) URL(t Target) string { return p.origin(t) + "/" }

func (p *Previews) create(ctx context.Context, key string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if _, err := p.c.Grants.Create(ctx, key, data); err != nil {
		return fmt.Errorf("store a grant: %w", err)
	}
	return nil
}

func secretOK(s string) bool { return len(s) == secretLen && strings.Trim(s, secretChars) == "" }

func errCode() error {
	return errs.New(errs.Denied, "this way in is used up, too old, or for another preview").WithHint("open the preview from the app again")
}

// redeem swaps a code for a visit and returns the visit's secret. The update is
// what makes it once: of two at the same time one finds the revision moved.
func (p *Previews) redeem(ctx context.Context, t Target, code string) (string, error) {
	if !secretOK(code) {
		return "", errCode()
	}
	key := codePrefix + hashOf(code)
	g, rev, err := p.getGrant(ctx, key)
	if err != nil {
		return "", err
	}
	if g.Used || g.Target != t || !p.now().Before(g.ExpiresAt) {
		return "", errCode()
	}
	g.Used = true
	data, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	if _, err := p.c.Grants.Update(ctx, key, data, rev); err != nil {
		if errs.Is(err, errs.Conflict) {
			return "", errCode()
		}
		return "", err
	}
	if err := p.ownerOK(ctx, g.Visitor); err != nil {
		return "", err
	}
	secret := rand.Text()
	visit := grant{Visitor: g.Visitor, Target: t, ExpiresAt: p.now().Add(p.c.Limits.VisitFor).UTC()}
	return secret, p.create(ctx, visitPrefix+hashOf(secret), visit)
}

// getGrant reads a code or visit; one that is not there is Denied like all
// that is wrong with it.
func (p *Previews) getGrant(ctx context.Context, key string) (grant, uint64, error) {
	data, rev, err := p.c.Grants.Get(ctx, key)
	if errs.Is(err, errs.NotFound) {
		return grant{}, 0, errCode()
	}
	if err != nil {
		return grant{}, 0, err
	}
	var g grant
	if err := json.Unmarshal(data, &g); err != nil {
		return grant{}, 0, errs.Wrap(errs.Corrupt, err, "a grant of a preview is damaged")
	}
	return g, rev, nil
}

// linkIDPrefix begins the id and the token of a public link.
const linkIDPrefix = "lnk_"

// visitor finds who comes with a cookie: a visit's secret, or a link.
func (p *Previews) visitor(ctx context.Context, t Target, cookie string) (Visitor, error) {
	if strings.HasPrefix(cookie, linkIDPrefix) {
		link, err := p.checkLink(ctx, t, cookie)
		return Visitor{Tenant: link.Tenant, Link: link.ID}, err
	}
	if !secretOK(cookie) {
		return Visitor{}, errCode()
	}
	g, _, err := p.getGrant(ctx, visitPrefix+hashOf(cookie))
	if err != nil {
		return Visitor{}, err
	}
	if g.Target != t || !p.now().Before(g.ExpiresAt) {
		return Visitor{}, errCode()
	}
	return g.Visitor, p.ownerOK(ctx, g.Visitor)
}

func (p *Previews) ownerOK(ctx context.Context, v Visitor) error {
	if p.c.Owner == nil || v.Owner == "" {
		return nil
	}
	return p.c.Owner(ctx, v.Owner)
}

// leave ends a visit.
func (p *Previews) leave(ctx context.Context, cookie string) error {
	if !secretOK(cookie) {
		return nil
	}
	key := visitPrefix + hashOf(cookie)
	_, rev, err := p.c.Grants.Get(ctx, key)
	if err == nil {
		err = p.c.Grants.Delete(ctx, key, rev)
	}
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// ShareRequest asks for a public link.
type ShareRequest struct {
	Name string
	For  time.Duration // 0 = 7 days
}

const shareFor = 7 * 24 * time.Hour

// Share makes a public link.
func (p *Previews) Share(ctx context.Context, v Visitor, t Target, r ShareRequest) (Link, error) {
	def(&r.For, min(shareFor, p.c.Limits.LinkForMax))
	if r.For < time.Second || r.For > p.c.Limits.LinkForMax {
		return Link{}, errs.New(errs.Invalid, "a link lives for a second to %s", p.c.Limits.LinkForMax)
	}
	if len(r.Name) > nameLenMax || strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
		return Link{}, errs.New(errs.Invalid, "a link's name has at most %d bytes and no control characters", nameLenMax)
	}
	if t.Port == SupervisorPort {
		return Link{}, errs.New(errs.Denied, "port %d shows the sandbox's history and is never public", SupervisorPort)
	}
	if err := p.portOK(ctx, v, t); err != nil {
		return Link{}, err
	}
	links, err := p.Links(ctx, v.Tenant, t.Sandbox)
	if err != nil {
		return Link{}, err
	}
	if len(links) >= p.c.Limits.LinksPerSandbox {
		return Link{}, errs.New(errs.Limit, "%s has %d links already", t.Sandbox, len(links)).WithHint("`skete preview revoke` ends one")
	}
	now := p.now().UTC().Truncate(time.Second)
	l := Link{
		ID: linkIDPrefix + strings.ToLower(rand.Text()[:20]), Tenant: v.Tenant, Target: t, Name: r.Name, By: v.User,
		CreatedAt: now, ExpiresAt: now.Add(r.For),
	}
	return l, p.create(ctx, linkPrefix+t.Sandbox+"/"+l.ID, l)
}

// LinkURL is the address that a link gives away. It can be shown again: the
// signature is made from the record.
func (p *Previews) LinkURL(l Link) string { return p.origin(l.Target) + linkPath + p.signer.token(l) }

// token is a link's id and a signature over all that counts of it, so that
// neither a guess nor a changed record lets anybody in.
func (s signer) token(l Link) string {
	sum := mac(s.links, l.ID, l.Tenant, l.Label(), strconv.FormatInt(l.ExpiresAt.Unix(), 10))
	return l.ID + "." + hex.EncodeToString(sum)[:macHexLen]
}

// parseToken splits what token made; the signature is not checked.
func parseToken(s string) (id string, ok bool) {
	id, sum, ok := strings.Cut(s, ".")
	ok = ok && linkIDOK(id) && len(sum) == macHexLen && strings.Trim(sum, "0123456789abcdef") == ""
	return id, ok
}

func linkIDOK(id string) bool {
	return len(id) == linkIDLen && strings.HasPrefix(id, "lnk_") && strings.Trim(id[4:], idDigits) == ""
}

func errLink() error {
	return errs.New(errs.Denied, "this link is not valid any more").WithHint("ask for another one where you have it from")
}

func (p *Previews) checkLink(ctx context.Context, t Target, token string) (Link, error) {
	id, ok := parseToken(token)
	if !ok {
		return Link{}, errLink()
	}
	l, _, err := p.getLink(ctx, t.Sandbox, id)
	if err != nil {
		return Link{}, err
	}
	if l.Target != t || !p.now().Before(l.ExpiresAt) || !hmac.Equal([]byte(p.signer.token(l)), []byte(token)) {
		return Link{}, errLink()
	}
	return l, nil
}

func (p *Previews) getLink(ctx context.Context, sandbox, id string) (Link, uint64, error) {
	data, rev, err := p.c.Grants.Get(ctx, linkPrefix+sandbox+"/"+id)
	if errs.Is(err, errs.NotFound) {
		return Link{}, 0, errLink()
	}
	if err != nil {
		return Link{}, 0, err
	}
	l, err := parseLink(id, data)
	return l, rev, err
}

func parseLink(id string, data []byte) (Link, error) {
	var l Link
	if err := json.Unmarshal(data, &l); err != nil || l.ID != id {
		return Link{}, errs.Wrap(errs.Corrupt, err, "the record of link %.40q is damaged", id)
	}
	return l, nil
}

// Links lists the public links of a tenant's sandbox that are good, oldest first.
func (p *Previews) Links(ctx context.Context, tenant, sandbox string) ([]Link, error) {
	list, prefix := []Link{}, linkPrefix+sandbox+"/"
	err := p.c.Grants.List(ctx, prefix, func(key string, value []byte, _ uint64) error {
		l, err := parseLink(strings.TrimPrefix(key, prefix), value)
		if err == nil && l.Tenant == tenant && p.now().Before(l.ExpiresAt) {
			list = append(list, l)
		}
		return err
	})
	slices.SortFunc(list, func(a, b Link) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, err
}

// Revoke ends a link and everything that it let in. NotFound: there is none.
func (p *Previews) Revoke(ctx context.Context, tenant, sandbox, id string) error {
	none := errs.New(errs.NotFound, "no link %.40q of %.40q", id, sandbox).WithHint("`skete preview list` shows them")
	if !linkIDOK(id) {
		return none
	}
	l, rev, err := p.getLink(ctx, sandbox, id)
	if errs.Is(err, errs.Denied) || err == nil && l.Tenant != tenant {
		return none
	}
	if err != nil {
		return err
	}
	if err := p.c.Grants.Delete(ctx, linkPrefix+sandbox+"/"+id, rev); err != nil {
		return fmt.Errorf("revoke %s: %w", id, err)
	}
	p.active.end(func(s *stay) bool { return s.visitor.Link == id })
	return nil
}

// Sweep removes what has expired; it is called now and then.
func (p *Previews) Sweep(ctx context.Context) error {
	for _, prefix := range []string{codePrefix, visitPrefix, linkPrefix} {
		type old struct {
			key      string
			revision uint64
		}
		var gone []old
		err := p.c.Grants.List(ctx, prefix, func(key string, value []byte, rev uint64) error {
			var g struct {
				ExpiresAt time.Time `json:"expires_at"`
			}
			if json.Unmarshal(value, &g) == nil && !p.now().Before(g.ExpiresAt) {
				gone = append(gone, old{key, rev})
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("sweep previews: %w", err)
		}
		for _, o := range gone {
			if err := p.c.Grants.Delete(ctx, o.key, o.revision); err != nil && !errs.Is(err, errs.Conflict) {
				return fmt.Errorf("sweep previews: %w", err)
			}
		}
	}
	return nil
}

// PublicKey checks identities that previewed apps get.
func (p *Previews) PublicKey() ed25519.PublicKey {
	return p.signer.identity.Public().(ed25519.PublicKey)
}

// identityFor is how long a signed identity is good.
const identityFor = time.Minute

// sign tells the app who asks. The signature binds the user to the preview and
// to the next minute: an app that passes it on gives away nothing that another
// sandbox would take.
func (p *Previews) sign(h http.Header, v Visitor, t Target) {
	if v.User == "" {
		return
	}
	until := strconv.FormatInt(p.now().Add(identityFor).Unix(), 10)
	sig := ed25519.Sign(p.signer.identity, []byte(identityText(t, v.User, until)))
	h.Set("X-User-Id", v.User)
	h.Set("X-Sig", "v1."+until+"."+base64.RawURLEncoding.EncodeToString(sig))
}

func identityText(t Target, user, until string) string {
	return "skete user v1\n" + t.Label() + "\n" + user + "\n" + until
}

// localPath checks where on its own host a visitor is sent: a path with a
// query, nothing that a browser could take for another host.
func localPath(s string) (string, error) {
	if s == "" {
		return "/", nil
	}
	u, err := url.Parse(s)
	bad := err != nil || len(s) > pathLenMax || s[0] != '/' || strings.HasPrefix(s, "//") || u.Host != "" || u.Scheme != "" || u.Fragment != "" ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' })
	if bad {
		return "", errs.New(errs.Invalid, "%.80q is not a path of a preview", s).WithHint("it begins with one slash")
	}
	return s, nil
}
