// Package openai asks models over OpenAI's Responses API, and only that one:
// servers that speak Chat Completions are llm/compat's.
//
//	m, err := openai.New(openai.Config{
//		Info: llm.Info{Name: "openai/gpt-5.5", ID: "gpt-5.5"},
//		Key:  key,
//	})
//
// Nothing is stored at the vendor (store=false): the whole history goes with
// each request, the model's reasoning as items that only the vendor can read.
// Those, and the ids and phases of messages and calls, are Block.Vendor with
// the dialect "openai". They go back only to the model that made them.
//
// The vendor's SDK carries the request and knows the headers and the framing.
// Requests are written and events are read by this package: that is several
// times faster over a long history. Tests hold both against the SDK's types.
//
// A Model is safe for concurrent use, keeps nothing between calls and never
// tries again.
package openai
