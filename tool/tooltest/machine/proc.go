package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// children lists the processes that a process started.
func children(pid int) (list []int) {
	files, _ := filepath.Glob("/proc/" + itoa(pid) + "/task/*/children")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
