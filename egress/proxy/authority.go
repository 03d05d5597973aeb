package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Lives of certificates. They begin a day ago: clocks of machines differ.
const (
	rootLife   = 366 * 24 * time.Hour
	issuerLife = 48 * time.Hour
	leafRenew  = 12 * time.Hour
	early      = 24 * time.Hour
	leavesMax  = 512 // kept; more are made anew
)

// Authority signs the certificates with which a proxy answers for hosts. One is
// trusted in one sandbox and nowhere else, and its key is in memory alone: it derives
// from a secret of the server, so that it is the same after a restart.
//
// The root signs an issuer for each host, which name constraints bind to that host:
// a client refuses whatever else the issuer signs.
//
// Safe for concurrent use.
type Authority struct {
	root *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time

	mu     sync.Mutex
	leaves map[string]leaf
}

type leaf struct {
	cert tls.Certificate
	made time.Time
}

// NewAuthority returns the authority of a sandbox. seed is the server's secret, of at
// least 32 bytes.
func NewAuthority(seed []byte, sandbox string, now func() time.Time) (*Authority, error) {
	if len(seed) < 32 {
		return nil, fmt.Errorf("the authority of %s: a seed of %d bytes is too short", sandbox, len(seed))
	}
	key, err := deriveKey(seed, sandbox)
	if err != nil {
		return nil, fmt.Errorf("the authority of %s: %w", sandbox, err)
	}
	t := now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "skete egress of " + sandbox}, NotBefore: t.Add(-early), NotAfter: t.Add(rootLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 1, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: keyID(key),
	}
	root, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("the authority of %s: %w", sandbox, err)
	}
	return &Authority{root: root, key: key, now: now, leaves: map[string]leaf{}}, nil
}

// deriveKey makes a scalar of P-256 from a secret. A scalar that is out of range, one
// in 2^32, is tried again with the next label.
func deriveKey(seed []byte, sandbox string) (*ecdsa.PrivateKey, error) {
	for i := range 8 {
		scalar, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("skete egress authority %d %s", i, sandbox), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("no key derives from the seed")
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return new(big.Int).SetBytes(b[:])
}

func keyID(key *ecdsa.PrivateKey) []byte {
	b, _ := key.PublicKey.Bytes() // of a valid key
	sum := sha256.Sum256(b)
	return sum[:20]
}

func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// PEM returns the root, which the sandbox trusts.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// certificate returns the one for a host, which is a name or an address.
func (a *Authority) certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if l, ok := a.leaves[host]; ok && now.Sub(l.made) < leafRenew {
		return &l.cert, nil
	}
	cert, err := a.make(host, now)
	if err != nil {
		return nil, fmt.Errorf("a certificate for %.100q: %w", host, err)
	}
	if len(a.leaves) >= leavesMax {
		clear(a.leaves)
	}
	a.leaves[host] = leaf{cert, now}
	return &cert, nil
}

func (a *Authority) make(host string, now time.Time) (tls.Certificate, error) {
	issuerKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	issuer := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "skete egress for one host", SerialNumber: fmt.Sprintf("%x", keyID(issuerKey))},
		NotBefore: now.Add(-early), NotAfter: now.Add(issuerLife), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: keyID(issuerKey), PermittedDNSDomainsCritical: true,
	}
	server := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"skete egress"}}, NotBefore: now.Add(-early), NotAfter: now.Add(issuerLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		b := net.IP(ip.Unmap().AsSlice())
		server.IPAddresses = []net.IP{b}
		issuer.PermittedIPRanges = []*net.IPNet{{IP: b, Mask: net.CIDRMask(8*len(b), 8*len(b))}}
		issuer.ExcludedDNSDomains = []string{""}
	} else {
		server.DNSNames = []string{host}
		issuer.PermittedDNSDomains = []string{host}
		issuer.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	}
	signed, err := sign(issuer, a.root, issuerKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := sign(server, signed, key, issuerKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw, signed.Raw}, PrivateKey: key, Leaf: cert}, nil
}
