package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/api"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nameserver answers every question for an address with 127.0.0.1, on port 53 of a
// loopback address that it returns.
func nameserver(t *testing.T) (address string) {
	address = "127.0.53.53"
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Skipf("skipped: no name server of the test's own: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
				m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return address
}

// certified is a certificate for names, and the file of the authority that clients
// trust for it.
func certified(t *testing.T, names ...string) (cert tls.Certificate, file string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	form := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "skete's tests"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	must(t, err)
	leaf := form
	leaf.SerialNumber, leaf.Subject, leaf.DNSNames, leaf.IsCA, leaf.KeyUsage = big.NewInt(2), pkix.Name{CommonName: names[0]}, names, false, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &leaf, &form, &key.PublicKey, key)
	must(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), 0o644))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// A client that has a domain and a key, and no address: names of its own for the API
// and for each sandbox, with TLS at a proxy in front of the server.
func TestBridge_names(t *testing.T) {
	t.Parallel()
	ns := nameserver(t)
	back := listenAddress(t)
	cert, ca := certified(t, "skete.test", "*.preview.skete.test")
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: back})
		r.Out.Host = r.In.Host
	}})
	front.EnableHTTP2 = true
	front.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	front.StartTLS()
	defer front.Close()
	_, port, err := net.SplitHostPort(front.Listener.Addr().String())
	must(t, err)
	w := newWorld(t, "--providers", "gvisor", "--listen", back, "--set", "origin=https://skete.test:"+port, "--set", "preview.domain=skete.test")
	w.start()
	made, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: "their-app"})
	w.ok(err)
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	w.ok(os.WriteFile(resolv, []byte("nameserver "+ns+"\n"), 0o644))
	domain := "preview.skete.test:" + port
	for _, f := range []foreign{foreigns[1], foreigns[2]} {
		t.Run(f.name, func(t *testing.T) {
			cmd := f.command(t, strings.Replace(f.script, "everything", "names", 1))
			// The names are the client's alone: a resolver in a mount namespace of its own.
			inner := exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolv}, cmd.Args...)...)
			inner.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "E2B_DOMAIN="+domain, "E2B_API_KEY="+made.Secret, "NODE_EXTRA_CA_CERTS="+ca, "SSL_CERT_FILE="+ca)
			var stderr bytes.Buffer
			inner.Stderr = &stderr
			out, err := inner.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, stderr.String(), w.log)
			}
			var got struct {
				Stdout, Signed, Host string
				Running              bool
			}
			must(t, json.Unmarshal(out, &got))
			if got.Stdout != "first" || got.Signed != "first" || !got.Running || !strings.HasPrefix(got.Host, "8080-") || !strings.HasSuffix(got.Host, "."+domain) {
				t.Errorf("%+v", got)
			}
		})
	}
}
