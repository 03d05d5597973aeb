package main

import "testing"

// BenchmarkStep is for profiles of a step with everything around it.
func BenchmarkStep(b *testing.B) {
	steps := max(b.N, 10)
	w, err := walk(b.Context(), interval, steps, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(w.cpu.Microseconds())/float64(steps), "cpu-µs/step")
	b.ReportMetric(float64(medianTime(w.steps).Nanoseconds()), "p50-ns/step")
}
