package guest

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // of the format
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"
)

// Java has certificates in files of its own: Debian's in one place, others beside each
// installation. They are replaced by what the machine trusts.

const javaShared = "/etc/ssl/certs/java/cacerts"

// javas are where installations are; the shared file is theirs too.
var javas = []string{"/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/jdk*"}

// trustJava writes the certificates of a bundle to where Java looks, if there is one.
func trustJava(root string, bundle []byte) error {
	places := map[string]bool{}
	for _, glob := range javas {
		list, _ := filepath.Glob(filepath.Join(root, glob, "lib/security"))
		for _, dir := range list {
			places[filepath.Join(dir, "cacerts")] = true
		}
	}
	if len(places) == 0 {
		return nil
	}
	store := keyStore(bundle, time.Now())
	var errs error
	shared := filepath.Join(root, javaShared)
	for p := range places {
		if to, err := os.Readlink(p); err == nil && to == javaShared { // it may lead to nothing yet
			p = shared
		}
		if err := writeFile(p, store); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = errors.Join(errs, fmt.Errorf("trust the network in Java: %w", err))
		}
	}
	return errs
}

// Of the format JKS, which Java has read in all versions: sun.security.provider.JavaKeyStore.
const (
	jksMagic    = 0xfeedfeed
	jksVersion  = 2
	jksTrusted  = 2
	jksPassword = "changeit" // Java's own default
	jksSalt     = "Mighty Aphrodite"
)

// keyStore is a file of the certificates in a bundle of PEM.
func keyStore(bundle []byte, now time.Time) []byte {
	var certificates [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" && !slices.ContainsFunc(certificates, func(c []byte) bool { return bytes.Equal(c, block.Bytes) }) {
			certificates = append(certificates, block.Bytes)
		}
	}
	text := func(b []byte, s string) []byte { return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...) }
	b := binary.BigEndian.AppendUint32(nil, jksMagic)
	b = binary.BigEndian.AppendUint32(b, jksVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(certificates)))
	for i, c := range certificates {
		b = binary.BigEndian.AppendUint32(b, jksTrusted)
		b = text(b, "skete-"+strconv.Itoa(i))
		b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli()))
		b = text(b, "X.509")
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(c))), c...)
	}
	sum := sha1.New() //nolint:gosec // of the format
	for _, u := range utf16.Encode([]rune(jksPassword)) {
		sum.Write(binary.BigEndian.AppendUint16(nil, u))
	}
	sum.Write([]byte(jksSalt))
	sum.Write(b)
	return sum.Sum(b)
}
