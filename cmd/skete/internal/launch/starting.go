package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func startingPath(home string) string { return filepath.Join(home, "starting") }

// SayStarting notes what this process, the server of home, does before it takes
// requests: "opening the store"; "" = it takes them, or has ended. It is for people
// alone: a disk that takes no writes is no reason to stop.
func SayStarting(home, what string) {
	if what == "" {
		_ = os.Remove(startingPath(home))
		return
	}
	_ = os.WriteFile(startingPath(home), fmt.Appendf(nil, "%d %s\n", os.Getpid(), what), 0o600)
}

// Starting says what the server of home that is process pid does before it takes
// requests; "" = it does not say.
func Starting(home string, pid int) string {
	data, err := os.ReadFile(startingPath(home))
	if err != nil {
		return ""
	}
	by, what, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	if by != strconv.Itoa(pid) {
		return "" // an earlier one, which was killed
	}
	return what
}
