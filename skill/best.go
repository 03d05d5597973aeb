package skill

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Bounds of a query; what is beyond them is not looked at.
const (
	queryBytesMax = 1000
	queryWordsMax = 20
)

// Best returns the places of at most n texts that a query fits best, the best first; what it
// does not fit at all is left out. Words that few texts have count for more (as in BM25), and
// the first letters of a word count less than all of it.
func Best(texts []string, query string, n int) []int {
	asked := wordsOf(query[:min(len(query), queryBytesMax)])
	slices.Sort(asked)
	asked = slices.Compact(asked)
	asked = asked[:min(len(asked), queryWordsMax)]
	scores := make([]float64, len(texts))
	hits := make([]float64, len(texts)) // of one word
	split := make([][]string, len(texts))
	for i, t := range texts {
		split[i] = wordsOf(t)
	}
	for _, word := range asked {
		have := 0
		for i, words := range split {
			if hits[i] = count(words, word); hits[i] > 0 {
				have++
			}
		}
		rare := math.Log(1 + float64(len(texts))/float64(1+have))
		for i, h := range hits {
			scores[i] += rare * h / (h + 1)
		}
	}
	var best []int
	for i, s := range scores {
		if s > 0 {
			best = append(best, i)
		}
	}
	slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return best[:min(len(best), n)]
}

// wordsOf are the words of a text in small letters.
func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// count says how often a word is among others. One that begins as it does is half of it:
// report, reports.
func count(words []string, word string) (n float64) {
	const least = 4
	for _, w := range words {
		switch {
		case w == word:
			n++
		case min(len(w), len(word)) >= least && (strings.HasPrefix(w, word) || strings.HasPrefix(word, w)):
			n += 0.5
		}
	}
	return n
}
