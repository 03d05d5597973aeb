package yamlfile

import "fmt"

// Nearest returns the word that was probably meant, "" if none is similar.
func Nearest(word string, words []string) string {
	best, bestAt := "", 3
	if len(word) < 5 {
		bestAt = 2
	}
	if len(word) > 64 {
		return ""
	}
	for _, w := range words {
		if n := distance([]rune(word), []rune(w)); n < bestAt || n == bestAt && best != "" && w < best {
			best, bestAt = w, n
		}
	}
	return best
}

// Suggest writes `; did you mean "model"?`, or nothing.
func Suggest(word string, words []string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// distance counts the letters to insert, drop, change or swap with their neighbour.
func distance(a, b []rune) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range a {
		old, before, now := rows[0], rows[1], rows[2]
		now[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(before[j+1]+1, now[j]+1, before[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], old[j-1]+1)
			}
		}
		rows[0], rows[1], rows[2] = before, now, old
	}
	return rows[1][len(b)]
}
