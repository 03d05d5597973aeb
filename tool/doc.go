// Package tool is what an agent can do: the Tool interface, the places where
// tools act (Files, Commands), and the registry that makes tools by name.
//
// A tool promises by its Effect what may happen when it is run again. The
// agent writes tool.started before it calls Run and tool.completed after it;
// after a crash in between it calls Run again for Read and Keyed tools, with
// the same Key and Again set, and never for Once tools. A Keyed tool that is
// run again must not act twice: it attaches to what the first run started, or
// sees from Request.Plan that it was done.
//
// What goes wrong with the work (a missing file, an exit code, bad arguments)
// is a Result that the model reads. A Go error means that the platform broke;
// the agent then tells the model only that, never the error's text. A panic is
// caught and treated the same.
//
// Tools are safe for concurrent use.
package tool
