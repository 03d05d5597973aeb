// Package llm is what the rest of skete knows of language models: messages,
// requests, answers, usage and errors in a form that belongs to no vendor.
//
//	for delta, err := range model.Stream(ctx, &llm.Request{
//		System:   []llm.Block{llm.Text("You are terse.")},
//		Messages: []llm.Message{llm.User("What is 6*7?")},
//		Tools:    specs,
//	}) {
//		if err != nil { … }                     // an *llm.Error; nothing follows
//		if delta.Kind == llm.DeltaText { fmt.Print(delta.Text) }
//		if delta.Response != nil { use(delta.Response) } // the last delta
//	}
//
// A driver, one package below, translates for one dialect; llmtest is the
// suite that each passes. A Model is safe for concurrent use, keeps nothing
// between calls and never tries again by itself: attempts are the caller's, so
// that they can be seen and budgets hold.
//
// Messages are immutable once they are in a thread's log. What a vendor wants
// back byte for byte (signatures, encrypted reasoning, item ids) travels in
// Block.Vendor: a driver echoes its own and drops another's.
package llm
