package guest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func certificateOf(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Java's own tool reads what is written, whole, with the password that Java has by default.
func TestTrustJava(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/lib/jvm/a/lib/security", "usr/lib/jvm/b/lib/security", "opt/java/openjdk/lib/security", "etc/ssl/certs"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, os.Symlink(javaShared, filepath.Join(root, "usr/lib/jvm/a/lib/security/cacerts"))) // as Debian's, and it leads to nothing
	must(t, os.WriteFile(filepath.Join(root, "opt/java/openjdk/lib/security/cacerts"), []byte("of the image"), 0o644))
	one, two := certificateOf(t, "one"), certificateOf(t, "two")
	bundle := []byte("# words\n" + string(one) + string(two) + "# more\n" + string(one) + "-----BEGIN CERTIFICATE-----\nbroken")
	for range 2 {
		must(t, trustJava(root, bundle))
	}
	if to, err := os.Readlink(filepath.Join(root, "usr/lib/jvm/a/lib/security/cacerts")); err != nil || to != javaShared {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	for _, p := range []string{javaShared, "usr/lib/jvm/b/lib/security/cacerts", "opt/java/openjdk/lib/security/cacerts"} {
		p = filepath.Join(root, p)
		info, err := os.Stat(p)
		must(t, err)
		if info.Mode().Perm() != 0o644 {
			t.Errorf("%s has the mode %v", p, info.Mode())
		}
		if _, err := exec.LookPath("keytool"); err != nil {
			t.Skip("no keytool to read it with: apt install default-jre-headless")
		}
		out, err := exec.Command("keytool", "-list", "-v", "-keystore", p, "-storepass", jksPassword).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "2 entries") || !strings.Contains(string(out), "CN=one") || !strings.Contains(string(out), "CN=two") {
			t.Errorf("%s: %v\n%s", p, err, out)
		}
	}
	if out, err := exec.Command("keytool", "-list", "-keystore", filepath.Join(root, javaShared), "-storepass", "another").CombinedOutput(); err == nil {
		t.Errorf("with another password:\n%s", out)
	}
}

// Where there is no Java, nothing is written.
func TestTrustJava_none(t *testing.T) {
	root := t.TempDir()
	must(t, trustJava(root, certificateOf(t, "one")))
	if list, err := os.ReadDir(root); err != nil || len(list) > 0 {
		t.Errorf("there is %v, %v", list, err)
	}
}
