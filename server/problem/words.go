package problem

import (
	"strconv"
	"strings"
)

// wordings turn what the JSON layer says of a value into words: what stands
// behind a beginning comes in place of the %.
var wordings = []struct{ begins, words string }{
	{"expected length <= ", "longer than % characters"},
	{"expected length >= ", "shorter than % characters"},
	{"expected number <= ", "more than %"},
	{"expected number >= ", "less than %"},
	{"expected array length <= ", "more than % entries"},
	{"expected array length >= ", "fewer than % entries"},
	{"expected value to be one of ", "none of %"},
	{"unexpected property", "there is no such field"},
}

// inWords is a message of the JSON layer as people say it; one that is not
// known stays as it is.
func inWords(message string) string {
	for _, w := range wordings {
		rest, is := strings.CutPrefix(message, w.begins)
		if !is {
			continue
		}
		if n, err := strconv.ParseFloat(rest, 64); err == nil {
			rest = strconv.FormatFloat(n, 'f', -1, 64) // not 1e+07
		}
		return strings.ReplaceAll(w.words, "%", strings.Trim(rest, `"`))
	}
	return message
}
