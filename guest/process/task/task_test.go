package task

import "testing"

func TestParseStat_namesCannotLie(t *testing.T) {
	for in, want := range map[string]Task{
		"12 (sh) S 1 12 12 0 -1":            {PID: 12, Parent: 1, Group: 12, Session: 12, State: 'S'},
		"12 (a) R 9 9 9 9) Z 1 2 3 0 -1":    {PID: 12, Parent: 1, Group: 2, Session: 3, State: 'Z'},
		"12 () (\n)) R 4 5 6 0":             {PID: 12, Parent: 4, Group: 5, Session: 6, State: 'R'},
		"":                                  {},
		"12 sh S 1 12 12":                   {},
		"x (sh) S 1 12 12 0":                {},
		"12 (sh) S one 12 12 0":             {},
		"12 (sh":                            {},
		")12(":                              {},
		"99999999999999999999 (sh) S 1 1 1": {},
	} {
		if got, ok := parse(in); got != want || ok != (want != Task{}) {
			t.Errorf("%q: %+v, %v", in, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12 (sh) S 1 12 12 0 -1")
	f.Add("12 (a) R 9 9 9 9) Z 1 2 3 0 -1")
	f.Fuzz(func(t *testing.T, s string) {
		if got, ok := parse(s); !ok && got != (Task{}) {
			t.Fatalf("%+v", got)
		}
	})
}
