package runs

// ParseRequest is for the fuzz test, EventView for the test of what it hides.
var (
	ParseRequest = parseRequest
	EventView    = eventView
)
