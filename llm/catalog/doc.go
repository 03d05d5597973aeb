// Package catalog finds models by name: those of the configuration, those that
// keys in the environment make possible, and those of servers on this machine.
//
//	c, err := catalog.New(config, catalog.Options{Getenv: os.Getenv})
//	m, err := c.Open(ctx, "")                          // the server's choice
//	m, err := c.Open(ctx, "fast")                      // a name of the configuration
//	m, err := c.Open(ctx, "anthropic/claude-opus-5-5") // vendor/id needs no configuration
//
// The choice for "" is the configuration's default, then SKETE_MODEL and the
// vendor whose key is in the environment, then a server on loopback that
// answers, then an error whose hint says what to do.
//
// Keys are read when a model is opened, from the environment or a file, so
// that a key that was changed counts at once. They are never logged.
//
// What is known about models (window, prices) comes from the configuration,
// then from a small dated table in this package, then from what a local server
// says about itself; else it is a careful guess and Info.Guessed says so.
//
// A Catalog is safe for concurrent use.
package catalog
