package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/skill"
)

// skills measures the list of a thousand, which each run begins with.
func (b *bench) skills(s *server) error {
	const all = 1000
	about := strings.Repeat("Counts the words of text files, and tells which are the most frequent. ", 5)
	for n := range all {
		t := skill.Tree{Files: []skill.Entry{{Path: skill.File, Content: fmt.Appendf(nil, "---\nname: skill-%d\ndescription: %s\n---\n\nDo it.\n", n, about)}}}
		data, err := t.Tar()
		if err == nil {
			_, err = s.c.InstallSkill(b.ctx, api.InstallSkill{Archive: data})
		}
		if err != nil {
			return err
		}
	}
	var ds []time.Duration
	for range b.count(50) {
		d, err := timed(func() error {
			list, err := s.c.Skills(b.ctx)
			if err == nil && len(list) != all {
				err = fmt.Errorf("there are %d skills", len(list))
			}
			return err
		})
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	b.Millis("skills: the list of 1,000 through the API", ds, "p50 <= 200 ms", "")
	return nil
}
