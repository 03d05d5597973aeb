// Package screen shows a run of an agent on a terminal, or as plain lines.
//
//	s := screen.NewStory()
//	for news := range run.Tree(ctx, 0) {
//		print(s.Apply(news)...)             // what happened: lines that stay
//		redraw(s.Tail(view)...)             // what is happening: lines that change
//	}
//
// Story and Dialog are pure: what they return depends only on the news, keys
// and views that they were given; clock, terminal and server are the caller's.
// Terminal draws. Texts of models, tools and guests are hostile: all of them
// go through Clean, so that none can drive the terminal. A line never takes
// more columns than the view has.
//
// Nothing here is safe for concurrent use: one loop owns it all.
package screen
