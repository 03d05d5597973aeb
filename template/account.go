package template

import (
	"bytes"
	"strconv"
	"strings"
)

const accountsBytesMax = 1 << 20 // of an imported passwd or group file

// finishEtc puts what is the machine's own into an imported tree.
func finishEtc(t *layerTree) error {
	for name, text := range map[string]string{
		"etc/passwd":      account(t.ReadFile("etc/passwd", accountsBytesMax), passwdText, passwdUser),
		"etc/group":       account(t.ReadFile("etc/group", accountsBytesMax), groupText, groupUser),
		"etc/resolv.conf": "", "etc/hosts": hostsText, "etc/hostname": "sandbox\n",
	} {
		if err := t.File(name, text, Attr{Mode: 0o644}); err != nil {
			return err
		}
	}
	return nil
}

// account adds the sandbox's user to passwd or group unless its number is
// taken there; then that one is the user.
func account(data []byte, otherwise, line string) string {
	text := otherwise
	if len(data) > 0 && bytes.IndexByte(data, 0) < 0 {
		text = string(data)
	}
	if hasNumber(text, userID) {
		return text
	}
	if hasName(text, "user") {
		line = "sandbox" + strings.TrimPrefix(line, "user")
	}
	return strings.TrimRight(text, "\n") + "\n" + line
}

func hasNumber(text string, id int) bool {
	for line := range strings.Lines(text) {
		if f := strings.Split(line, ":"); len(f) > 2 && strings.TrimSpace(f[2]) == strconv.Itoa(id) {
			return true
		}
	}
	return false
}

func hasName(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}
