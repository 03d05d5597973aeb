package runs

// ParseRequest is for the fuzz test.
var ParseRequest = parseRequest
