// Command goproxy is the library of that name as a proxy that takes TLS apart, as
// skete's does, for `make bench` to measure beside it. It prints its address, and the
// certificate that it signs with.
package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/elazarl/goproxy"
)

func main() {
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	p.Tr = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // what it reaches is this run's own
	p.CertStore = &certs{}
	p.OnRequest().HandleConnect(goproxy.AlwaysMitm)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { // it ends with what started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(ln.Addr())
	_ = pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: goproxy.GoproxyCa.Certificate[0]})
	fmt.Println()
	log.Fatal(http.Serve(ln, p))
}

// certs keeps what was signed, as skete does: one host is asked.
type certs struct {
	mu  sync.Mutex
	one *tls.Certificate
}

func (c *certs) Fetch(_ string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.one != nil {
		return c.one, nil
	}
	one, err := gen()
	c.one = one
	return one, err
}
