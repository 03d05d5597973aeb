package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
)

// noted is what a page noted while events came.
type noted struct {
	Frames [][2]float64 `json:"frames"` // when, in ms; and the newest row
	Keys   []float64    `json:"keys"`   // ms from a key to the frame that answers it
	Long   []int        `json:"long"`   // tasks
	Shift  float64      `json:"shift_px"`
}

// paint is how a page keeps up with events. Times are in ms.
type paint struct {
	P50, P99, Key float64
	Long          int // tasks of more than 100 ms
}

// frameMS is a frame of a screen of 60 Hz: no page is measured by less.
const frameMS = 1000. / 60

func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(len(list)-1, int(float64(len(list))*q))]
}

// paintOf takes the time from each answer to the first frame that has its row, or a newer one.
func paintOf(s noted, answers []sent) paint {
	var late []float64
	n := 0
	for _, a := range answers {
		for n < len(s.Frames)-1 && s.Frames[n][1] < float64(a.seq) {
			n++
		}
		late = append(late, s.Frames[n][0]-float64(a.at.UnixMicro())/1000)
	}
	p := paint{P50: quantile(late, 0.5), P99: quantile(late, 0.99), Key: quantile(s.Keys, 0.95)}
	for _, ms := range s.Long {
		if ms > 100 {
			p.Long++
		}
	}
	return p
}

// stream sends events to the page that is open, while keys are pressed in it.
func (w *world) stream(socket, topic string, after uint64, rate int, during time.Duration) ([]sent, uint64) {
	w.t.Helper()
	type result struct {
		answers []sent
		last    uint64
		err     error
	}
	done := make(chan result, 1)
	ctx := w.ctx()
	go func() {
		answers, last, err := w.feed.send(ctx, socket, topic, after, rate, during)
		done <- result{answers, last, err}
	}()
	scale[any](w, "seen", map[string]any{"keys": int(during.Seconds() * 8)})
	r := <-done
	w.ok(r.err)
	return r.answers, r.last
}

// Scenario 18: what happens is on the screen about as soon as a page can paint that does nothing
// else, typing goes on beside it, and nothing moves under the eyes of one who reads above.
func TestScale_stream(t *testing.T) {
	w := newWorld(t, setup{fed: true, scripts: map[string]string{"short": "else: {text: done}\n"}})
	run := w.ended(w.run("short", api.StartRun{}).ID)
	topic := "tree:" + run.ID
	rates := []int{200, 2000}
	during := map[int]time.Duration{200: 5 * time.Second, 2000: 3 * time.Second}
	got := map[string]map[int]paint{}
	var last uint64
	for _, page := range []struct{ name, path, socket, typed string }{
		{"bare", barePath, barePath, "Message"},
		{"ui", "/runs/" + run.ID, topic, "Message to the agent"},
	} {
		got[page.name], last = map[int]paint{}, run.LastSeq
		scale[any](w, "watch", map[string]any{"path": page.path})
		w.ok(w.feed.await(w.ctx(), page.socket))
		for _, rate := range rates {
			scale[any](w, "begin", map[string]any{"typed": page.typed})
			var answers []sent
			answers, last = w.stream(page.socket, topic, last, rate, during[rate])
			s := scale[noted](w, "measured", map[string]any{"newest": answers[len(answers)-1].seq})
			got[page.name][rate] = paintOf(s, answers)
			t.Logf("%s, %d events/s: %+v, %d frames, %d keys, tasks %v", page.name, rate, got[page.name][rate], len(s.Frames), len(s.Keys), s.Long)
		}
	}
	for _, rate := range rates {
		bare, ui := got["bare"][rate], got["ui"][rate]
		for _, is := range []struct {
			what     string
			ui, bare float64
			most     float64
		}{
			{"half of the rows", ui.P50, max(bare.P50, frameMS), 12},
			{"99 of 100 rows", ui.P99, max(bare.P99, 2*frameMS), 8},
			{"95 of 100 keys", ui.Key, max(bare.Key, frameMS), 8},
		} {
			if is.ui > is.most*is.bare {
				t.Errorf("%d events/s: %s took %.0f ms, %.0f on the bare page", rate, is.what, is.ui, is.bare)
			}
		}
		if ui.Long > 5+2*bare.Long {
			t.Errorf("%d events/s: %d long tasks, %d on the bare page", rate, ui.Long, bare.Long)
		}
	}
	scale[any](w, "begin", map[string]any{"reading": true})
	const rate = 2000
	answers, _ := w.stream(topic, topic, last, rate, 2*time.Second)
	s := scale[noted](w, "unread", map[string]any{"rows": len(answers)})
	t.Logf("reading above, %d events/s: %v px, tasks %v", rate, s.Shift, s.Long)
	if s.Shift != 0 {
		t.Errorf("%d events/s moved what is read above by %v px", rate, s.Shift)
	}
	w.clean()
}
