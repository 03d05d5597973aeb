// Package anthropic asks models over Anthropic's Messages API.
//
//	m, err := anthropic.New(anthropic.Config{
//		Info: llm.Info{Name: "anthropic/claude-opus-5-5", ID: "claude-opus-5-5"},
//		Key:  key,
//	})
//
// The vendor's SDK carries the request and knows the headers, the framing and
// the errors. Requests are written and events are read by this package: that
// is several times faster over a long history, and what must come back byte for
// byte never passes through another's types. Tests hold both against the SDK's
// types, so that a field that the vendor does not know fails the build.
//
// What the vendor wants back (thinking with its signature, redacted thinking)
// is Block.Vendor with the dialect "anthropic": the whole content block.
//
// A Model is safe for concurrent use, keeps nothing between calls and never
// tries again.
package anthropic
