// Package llmtest holds the suite that every driver of llm.Model passes, and
// a model server that is fake only in what it says: it speaks the dialect of a
// vendor over real HTTP, and misbehaves on the wire as real ones do.
//
//	func TestModel(t *testing.T) {
//		llmtest.Run(t, llmtest.Driver{Dialect: chat.Dialect{}, New: func(c llmtest.Config) llm.Model {
//			return compat.New(…c.URL, c.Key, c.Model…)
//		}})
//	}
//
// A Dialect is the server's side of a wire format: it renders neutral replies
// (text, reasoning, calls, failures) as bytes, and turns a request that arrived
// back into an llm.Request, so that the suite can compare what was meant with
// what was sent. What a dialect cannot say, its Facts deny, and the suite does
// not ask for it.
//
// Package tape is the other half: one file for each oddity of a real server,
// with the request that was expected, the bytes that came, and what they mean.
//
// A Server also stands alone, for tests of what lies above the drivers:
//
//	s := llmtest.NewServer(chat.Dialect{}, func(n int, seen llmtest.Seen) llmtest.Reply { … })
//	defer s.Close() // s.URL is the base URL
package llmtest
